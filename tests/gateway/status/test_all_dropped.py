"""A flow that drops all its rows says so: in the status, by /healthz and in the log."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from edgert.core.batch import Batch
from edgert.flow.document import from_plain
from edgert.flow.physical import Fusion
from edgert.operators.base.logic import Logic, Now
from edgert.operators.fusion.chain import Chain
from edgert.operators.joins import JoinLatest
from edgert.operators.registry import REGISTRY
from edgert.runtime.instance.report import Report
from edgert.runtime.instance.report import report as made
from gateway.status.all_dropped import CLOCK, AllDroppedFinder
from gateway.web.health import reasons
from tests.operators.worlds import WALL, Way
from tests.status_example import example_status, judged


def report(second: float, rows: int, dropped: int, reason: str = "late", out: int = 0) -> dict[str, Report]:
    at = 1.0 + second
    window = Report(rows_in=rows, rows_out=out, drops={reason: dropped} if dropped else {}, at=at)
    return {"in": Report(rows_in=rows, at=at), "window": window}


def lasts(flow: AllDroppedFinder, reports: dict[str, Report]) -> bool:
    return any(each.lasts for each in flow.look(reports))


@pytest.mark.parametrize(("reason", "out"), [("late", 1), ("late (values)", 5), ("poison", 0)])
def test_a_flow_of_which_all_rows_go_says_so_until_one_is_kept(
    reason: str, out: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Windows of before may still be emitted, and rows whose value came too late go on without it."""
    caplog.set_level(logging.INFO)
    flow = AllDroppedFinder("f")
    for second in range(21):
        found = flow.look(report(second, 100 + 5 * second, 5 * second, reason, out * second))
    [fault] = found
    assert fault == ("window", reason, 100, 20.0, "")
    assert str(fault).endswith(CLOCK) == (reason != "poison")
    assert [r.levelname for r in caplog.records] == ["WARNING"], "once"
    assert not flow.look(report(21, 205, 100, reason, 500))
    assert not flow.look(report(22, 205, 100, reason, 500))
    assert caplog.records[-1].levelname == "INFO"


@pytest.mark.parametrize(
    ("seconds", "rows", "late"),
    [(30, 5, 4), (5, 50, 50), (9, 1, 1)],
    ids=["one in five is in time", "a moment only", "too few"],
)
def test_a_flow_of_which_some_rows_are_late_says_nothing(
    seconds: int, rows: int, late: int, caplog: pytest.LogCaptureFixture
) -> None:
    flow = AllDroppedFinder("f")
    assert not any(lasts(flow, report(second, rows * second, late * second)) for second in range(seconds))
    assert not caplog.records


def test_rows_that_lose_a_value_only_are_not_dropped() -> None:
    flow = AllDroppedFinder("f")
    assert not any(flow.look(report(second, second, second, "bad_value (values)")) for second in range(30))


def allowed_devices() -> Logic:
    table = {"type": "annotate", "input": "in", "table": {"known": {"room": "hall"}}, "missing": "drop"}
    source = {"type": "mqtt_source", "topic": "in/{source}"}
    document = {
        "name": "f",
        "operators": {"in": source, "step": table, "out": {"type": "publish", "topic": "y", "input": "step"}},
    }
    return Chain([from_plain(document, REGISTRY).nodes["step"]])


@pytest.mark.parametrize(
    "logic",
    [JoinLatest(["source"], ["x"], "drop"), allowed_devices()],
    ids=["a join whose second input speaks rarely", "a list of allowed devices"],
)
def test_rows_that_an_operator_is_told_to_drop_are_as_a_filters(logic: Logic) -> None:
    flow = AllDroppedFinder("f")
    for second in range(30):
        assert not logic.process(Batch([{"time": 0.0, "source": "a"}], 0.0), 0, Now(0.0, 0.0))
        assert logic.drops.total() == second + 1
        assert not flow.look({"step": Report(rows_in=second + 1, drops=dict(logic.drops), at=1.0 + second)})


@pytest.mark.parametrize("fusion", ["full", "none"])
@pytest.mark.parametrize(
    ("operator", "says"),
    [
        ({"type": "filter", "where": "temp > 23"}, "wrong type in o: "),
        ({"type": "map", "set": {"x": "1 / (hum - hum)"}}, "division by zero in o: "),
    ],
    ids=["text where a number is compared", "a division by zero"],
)
def test_why_a_row_was_dropped_is_said_with_the_row(operator: dict[str, Any], says: str, fusion: Fusion) -> None:
    source = {"type": "mqtt_source", "topic": "x/{source}"}
    out = {"type": "publish", "input": "o", "topic": "y"}
    way = Way({"name": "f", "operators": {"in": source, "o": {**operator, "input": "in"}, "out": out}}, fusion)
    flow = AllDroppedFinder("f")
    for second in range(20):
        row = {"time": WALL + second, "temp": "21.5", "hum": 60.5}
        way.feed(["x/a"], [json.dumps(row).encode()], float(second))
        found = flow.look({name: made(stage, 1.0 + second) for name, stage in way.run.stages.items()})
    [fault] = found
    assert str(fault).startswith(f"o has dropped all of its last 19 rows: {says}")
    assert "'21.5'" in str(fault) or operator["type"] == "map"


def test_payloads_that_a_source_refuses_are_no_rows_that_it_drops(caplog: pytest.LogCaptureFixture) -> None:
    """They are told as malformed payloads, with a sample."""
    flow = AllDroppedFinder("f")
    for second in range(30):
        assert not flow.look({"in": Report(rows_in=second, drops={"bad_payload": second}, at=1.0 + second)})
    assert not caplog.records


def test_an_operator_that_emits_what_it_took_does_not_drop_all() -> None:
    flow = AllDroppedFinder("f")
    assert not any(flow.look(report(second, second, second, "poison", second)) for second in range(30))


def test_silence_counts_neither_for_nor_against_it() -> None:
    flow = AllDroppedFinder("f")
    for second in range(100):
        n = min(second, 8)
        [*found] = flow.look(report(second, n, n))
    assert [(each.rows, each.seconds) for each in found] == [(8, 8.0)]


def test_rows_that_come_once_an_hour_and_are_all_dropped_are_a_fault_after_ten() -> None:
    flow = AllDroppedFinder("f")
    for minute in range(60 * 10 + 1):
        rows = minute // 60
        assert lasts(flow, report(60.0 * minute, rows, rows)) == (rows >= 10), minute
    assert not flow.look(report(60.0 * 602, 11, 10)), "one is kept"


def test_where_rows_come_quickly_it_is_a_fault_within_13_s_of_looks_each_2_s() -> None:
    flow = AllDroppedFinder("f")
    said = [at for at in range(0, 60, 2) if lasts(flow, report(at, 50 * at, 50 * at))]
    assert said[0] <= 12


def test_a_restarted_flow_begins_anew() -> None:
    flow = AllDroppedFinder("f")
    for second in range(20):
        flow.look(report(second, 5 * second, 5 * second))
    assert not flow.look(report(20, 0, 0))


def test_health_is_503_while_all_rows_of_a_flow_are_late() -> None:
    status = example_status()
    assert reasons(status) == []
    status["flows"][0]["dropping"] = [["window", "late", 40, 20.0]]
    said = f"flow air: window has dropped all of its last 40 rows: late; {CLOCK}"
    assert reasons(judged(status)) == [said]
