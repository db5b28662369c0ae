"""The benchmark of raw figures, in short: a real gateway with 300 instances, in slots."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.figures.gateway import FLOWS, LINE, gateway
from benchmarks.figures.measure import BENCHMARK, SLOTS, VERBS, cpu
from benchmarks.report import Report


@pytest.mark.integration
def test_all_instances_are_there_and_are_read(tmp_path: Path) -> None:
    with gateway(tmp_path / "g", 2) as (process, client):
        figures = client.call("figures")
        instances = [one for flow in figures["flows"].values() for one in flow["instances"].values()]
        assert len(instances) == FLOWS * LINE == 300
        assert {one["slot"] for one in instances} == {0, 1}
        assert sum(len(flow["edges"]) for flow in figures["flows"].values()) == FLOWS * (LINE - 1)
        assert process.alive


def test_the_picture_shows_a_reading_of_each_verb(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report = Report("figures", "x", {"cpu": "none"}, 1)
    for slots in SLOTS:
        for verb in VERBS:
            report.add(cpu(verb, slots), 3.0, "ms", limit=5.0 if verb == "figures" else None)
    assert BENCHMARK.draw(report, tmp_path).stat().st_size > 1000
