"""A database of its own for each test, and batches as large as their rows say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgert.core.results import results as results_module
from edgert.store.database import Database


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "gateway.db", "g1")


@pytest.fixture(scope="module")
def uncompressed() -> Iterator[None]:
    """Nothing is compressed: a batch is as large as its rows say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results_module, "compressed", lambda payload: payload)
        yield
