"""A flow whose rows are nearly all ahead of time says so: a device sends local time as UTC, most often."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgert.flow.physical import Fusion
from edgert.operators.sources.source import AHEAD_KEPT
from edgert.runtime.instance.report import Report
from edgert.runtime.instance.report import report as made
from gateway.status.rows_ahead import RowsAheadFinder
from gateway.web.health import reasons
from tests.operators.worlds import WALL, Way
from tests.status_example import example_status, judged

AHEAD = {
    "rows": 40, "for_s": 20.0, "topic": "tele/hall/SENSOR", "beginning": '{"Time":"2026-11-27T11:00:00"}',
    "seconds": 7199.6,
}  # fmt: skip


def report(second: int, rows: int, ahead: int) -> dict[str, Report]:
    return {"in": Report(rows_in=rows, rows_out=rows, drops={AHEAD_KEPT: ahead}, at=1.0 + second)}


def test_rows_that_are_all_ahead_are_a_fault_until_one_is_in_time() -> None:
    flow = RowsAheadFinder()
    found = [flow.look(report(second, 100 + 5 * second, 5 * second)) for second in range(21)]
    assert found[9] is None, "a moment only"
    assert found[20] == (100, 20.0)
    assert flow.look(report(21, 205, 100)) is None
    assert flow.look(report(22, 0, 0)) is None, "begun anew"


def test_one_device_of_five_is_no_fault_and_one_row_in_time_of_fifty_is() -> None:
    few, most = RowsAheadFinder(), RowsAheadFinder()
    for second in range(30):
        assert few.look(report(second, 5 * second, second)) is None
        found = most.look(report(second, 50 * second, 49 * second))
    assert found == (49 * 29, 29.0)


def test_rows_each_five_minutes_are_a_fault_after_three() -> None:
    flow = RowsAheadFinder()
    for minute in range(15):
        assert flow.look(report(60 * minute, minute // 5, minute // 5)) is None
    assert flow.look(report(60 * 15, 3, 3)) == (3, 900.0)


@pytest.mark.parametrize("fusion", ["full", "none"])
def test_a_source_of_local_time_keeps_a_sample(fusion: Fusion) -> None:
    operators: dict[str, Any] = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "mean": {
            "type": "tumbling_window", "input": "in", "size_s": 60, "aggregates": {"m": "mean(t)"},
        },
        "out": {"type": "publish", "input": "mean", "topic": "y"},
    }  # fmt: skip
    way, flow = Way({"name": "f", "operators": operators}, fusion), RowsAheadFinder()
    for second in range(20):
        payload = json.dumps({"time": WALL + second + 7200, "t": 21.5}).encode()
        way.feed(["x/a"] * 5, [payload] * 5, float(second))
        reports = {name: made(stage, 1.0 + second) for name, stage in way.run.stages.items()}
        found = flow.look(reports)
    assert found == (95, 19.0)
    sample = reports["in"].input["ahead"]
    assert (sample["topic"], sample["seconds"]) == ("x/a", 7200.0)
    assert sample["beginning"].startswith('{"time"')


def said(**changes: Any) -> list[dict[str, str]]:
    status = example_status()
    status["flows"][0] |= changes
    status["flows"][0]["recent"]["result_age_s"] = changes.get("result_age_s")
    return [part for part in judged(status)["health"]["parts"] if part["level"] != "good"]


def test_it_is_a_warning_with_how_far_and_a_sample() -> None:
    [part] = said(ahead=AHEAD)
    assert (part["level"], part["state"]) == ("warning", "ahead of time")
    assert part["text"] == (
        "flow air: rows are 2 hours ahead of time: is the device's clock or time_zone right? Their windows end only "
        'then: got \'{"Time":"2026-11-27T11:00:00"}\' on tele/hall/SENSOR'
    )
    [part] = said(ahead=AHEAD | {"seconds": 19_799.7})
    assert "rows are 5.5 hours ahead" in part["reason"]
    [part] = said(ahead=AHEAD | {"seconds": 90.0})
    assert "rows are 90 s ahead" in part["reason"]


@pytest.mark.parametrize(
    "changes",
    [{"ahead": AHEAD, "result_age_s": 5.0}, {"ahead": AHEAD, "window_s": 0.0}, {"ahead": None}],
    ids=["a window has closed since", "no window", "in time"],
)
def test_it_is_none_where_results_come(changes: dict[str, Any]) -> None:
    assert said(**changes) == []


def test_the_gateway_is_ready_all_the_same() -> None:
    status = example_status()
    status["flows"][0]["ahead"] = AHEAD
    status["flows"][0]["recent"]["result_age_s"] = None
    assert reasons(judged(status)) == []
