"""Drivers of other packages: an entry point in the group `edgert.drivers`, read from an installed distribution."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from agent.drivers.base import DriverError
from agent.drivers.registry import make

DRIVER = """
from agent.drivers.entities import Operator, Query, EngineReport

class Driver:
    def __init__(self, address):
        self.name, self.address = "third", address

    async def report(self):
        return EngineReport("third", {"q/o": Operator("q/o", "q")}, {"q": Query("q")}, {"queue_size": {"q/o": 3.0}})

    async def close(self):
        pass
"""


def test_a_driver_of_another_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "third-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[edgert.drivers]\nthird = third_party_driver:Driver\n")
    (tmp_path / "third_party_driver.py").write_text(DRIVER)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        report = asyncio.run(make("third=/run/third.sock").report())
    finally:
        sys.modules.pop("third_party_driver", None)
    assert report.metrics["queue_size"] == {"q/o": 3.0}


@pytest.mark.parametrize("text", ["unknown=x", "storm", "=x", ""])
def test_a_setting_of_another_form_names_the_kinds(text: str) -> None:
    with pytest.raises(DriverError, match="expected KIND=ADDRESS with KIND one of edgert, flink, storm, got"):
        make(text)
