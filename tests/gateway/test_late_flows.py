"""A flow that drops all its rows as late says so: in the status, by /healthz and in the log."""

from __future__ import annotations

import logging

import pytest

from edgert.runtime.instance.report import Report
from gateway.status.late_flows import QUIET_S, LateFlows
from gateway.web.health import reasons
from tests.gateway.status_example import example_status


def report(rows: int, late: int) -> dict[str, Report]:
    return {"in": Report(rows_in=rows), "window": Report(rows_in=rows, drops={"late": late} if late else {})}


def test_a_flow_of_which_all_rows_are_late_says_so_until_one_is_in_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    flows = LateFlows()
    for second in range(21):
        flows.look("f", report(100 + 5 * second, 5 * second), float(second))
    assert "all 100 rows of the last 20 s came too late for window" in flows.said["f"]
    assert [r.levelname for r in caplog.records] == ["WARNING"], "once"
    flows.look("f", report(205, 100), 21.0)
    flows.look("f", report(205, 100), 22.0)
    assert flows.said == {}
    assert "in time again" in caplog.records[-1].message


@pytest.mark.parametrize(
    ("seconds", "rows", "late"),
    [(30, 5, 4), (5, 50, 50), (9, 1, 1)],
    ids=["one in five is in time", "a moment only", "too few"],
)
def test_a_flow_of_which_some_rows_are_late_says_nothing(seconds: int, rows: int, late: int) -> None:
    flows = LateFlows()
    for second in range(seconds):
        flows.look("f", report(rows * second, late * second), float(second))
    assert flows.said == {}


def test_silence_counts_neither_for_nor_against_it() -> None:
    flows = LateFlows()
    for second in range(100):
        n = min(second, 12)
        flows.look("f", report(n, n), float(second))
    assert flows.said["f"].startswith("all 12 rows")
    flows.look("f", report(12, 12), 12.0 + QUIET_S + 1.0)
    assert flows.said == {}, "for a while"


def test_a_restarted_flow_begins_anew() -> None:
    flows = LateFlows()
    for second in range(20):
        flows.look("f", report(5 * second, 5 * second), float(second))
    flows.look("f", report(0, 0), 20.0)
    assert flows.said == {}


def test_health_is_503_while_all_rows_of_a_flow_are_late() -> None:
    status = example_status()
    assert reasons(status) == []
    status["flows"][0]["late"] = "all 40 rows of the last 20 s came too late"
    assert reasons(status) == [f"flow {status['flows'][0]['name']}: all 40 rows of the last 20 s came too late"]
