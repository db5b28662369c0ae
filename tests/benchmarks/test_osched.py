"""The benchmark of OS scheduling, in short: real slots, the real agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.osched.flows import FLOWS, flows
from benchmarks.osched.measure import board, lacks
from benchmarks.osched.picture import draw
from benchmarks.osched_cost.measure import measure as measure_cost
from benchmarks.report import Options, Report


def test_flows_are_the_same_each_time_and_their_demand_is_known() -> None:
    documents, demand_s = flows()
    assert flows() == (documents, demand_s)
    assert len(documents) == FLOWS
    assert 0.001 * FLOWS < demand_s < 0.0027 * FLOWS


@pytest.mark.integration
@pytest.mark.skipif(lacks() is not None, reason=str(lacks()))
def test_results_come_back_under_the_plain_os_and_under_a_policy(tmp_path: Path) -> None:
    seen = {}
    with board(tmp_path, 3) as world:
        for policy in ("none", "qs"):
            for seconds in (1.0, 5.0, 20.0):  # on a busy machine nothing may have come back by then
                seen[policy] = {"0.1": [world.run(policy, 60.0, 0.5, seconds)]}
                if seen[policy]["0.1"][0]["results"] > 0:
                    break
            assert seen[policy]["0.1"][0]["results"] > 0
            assert seen[policy]["0.1"][0]["p99_ms"] > 0
        status = world.use("qs")
        assert status["policy"] == "qs"
        assert len(status["operators"]) == 5 * FLOWS
    report = Report("osched", "x", {}, 1)
    report.curves = seen
    assert draw(report, tmp_path).stat().st_size > 1000


@pytest.mark.integration
@pytest.mark.skipif(lacks() is not None, reason=str(lacks()))
def test_the_cost_of_the_agent_is_measured_at_a_hundred_operators() -> None:
    report = Report("osched_cost", "x", {}, 1)
    measure_cost(Options(quick=True, repetitions=1, say=lambda text: None), report, seconds=16.0)
    assert report.notes == ["100 operators, a period of 1 s"]
    assert all(figure.median > 0 for figure in report.figures.values())
