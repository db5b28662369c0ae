"""Codecs of other packages come by entry point, and only when asked for."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from edgert.codecs import registry
from edgert.codecs.json import JsonCodec


class Shouting(JsonCodec):
    def __init__(self, fields: frozenset[str] | None, **options: Any) -> None:
        super().__init__(fields)
        self.options = options


@pytest.fixture(autouse=True)
def third_party(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints(
        [
            EntryPoint("shout", f"{__name__}:Shouting", registry.GROUP),
            EntryPoint("json", "nowhere:at_all", registry.GROUP),
        ]
    )
    monkeypatch.setattr(registry, "entry_points", points.select)


def test_codec_of_another_package_is_found_by_name_and_gets_its_options() -> None:
    codec = registry.make("shout", frozenset(["a"]), volume=3)
    assert isinstance(codec, Shouting)
    assert codec.options == {"volume": 3}
    assert registry.names() == ("json", "senml", "shout", "value")


def test_nobody_replaces_a_built_in_codec() -> None:
    assert type(registry.make("json")) is JsonCodec


def test_codecs_are_imported_when_asked_for() -> None:
    check = (
        "import sys, edgert.codecs as c; sys.exit(any(f'{c.__name__}.{m}' in sys.modules for m in ('json', 'senml')))"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
