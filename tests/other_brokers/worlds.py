"""The broker built from Mochi, with its hook and as it comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.ports import free_port
from tests.brokers import Broker
from tests.other_brokers.build import MOCHI


def mochi(folder: Path, version: str) -> Broker:
    """With a hook in the place of what it lacks: as it comes it loses messages itself, see `test_takeover`."""
    return _mochi(folder, "-whole-takeover")


def mochi_as_it_comes(folder: Path, version: str) -> Broker:
    return _mochi(folder)


def _mochi(folder: Path, *options: str) -> Broker:
    if not MOCHI.exists():
        pytest.skip(f"{MOCHI} is not built (python -m tests.other_brokers.build, needs Go)")
    port = free_port()
    return Broker([str(MOCHI), *options, str(port)], port, folder)
