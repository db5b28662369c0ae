"""How each part of the gateway is, from what it achieved lately."""

from __future__ import annotations

from typing import Any

import pytest

from edgert.core.checkpoint.position import Position
from edgert.core.text.conditions import texts
from edgert.flow.document import from_plain
from edgert.flow.plan import Location
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.report import Report
from gateway.status.activity import AcknowledgementWait, ActivityMeter, LastProgress, MessageRate
from gateway.status.all_dropped import CLOCK
from gateway.status.conditions import Condition, conditions, of_broker, worst
from tests.runtime.worlds import DOCUMENT, flow_run
from tests.status_example import example_status

BAD = {"operator": "in", "topic": "tele/x", "beginning": "21.5 C", "reason": "expected JSON, got 6 bytes", "age_s": 1.0}


def of(status: dict[str, Any], part: str) -> Condition:
    [found] = [condition for condition in conditions(status) if condition.part == part]
    return found


def flow(**changes: Any) -> Condition:
    status = example_status()
    recent = changes.pop("recent", {})
    status["flows"][0] |= changes
    status["flows"][0]["recent"] |= recent
    return of(status, "flow")


def test_a_gateway_at_work_is_good_in_all_parts() -> None:
    status = example_status()
    assert {condition.level for condition in conditions(status)} == {"good"}
    assert worst(conditions(status)) == "good"


def test_a_flow_that_refuses_all_is_bad_and_shows_what_came() -> None:
    found = flow(malformed=BAD, recent={"refused_since_row": 1746, "refusing_s": 61.0, "refused_age_s": 0.2})
    assert (found.level, found.state) == ("bad", "refuses all")
    assert found.reason == (
        "refuses all its input: 1,746 malformed payloads and no row in 61 s: expected JSON, got '21.5 C' on tele/x"
    )


def test_some_malformed_payloads_are_a_warning_until_they_end() -> None:
    recent = {"refused_since_row": 1, "refusing_s": 0.5, "refused_age_s": 0.5}
    assert flow(malformed=BAD, recent=recent).level == "warning"
    assert flow(malformed=BAD, recent=recent | {"refused_since_row": 0, "refusing_s": None}).level == "warning"
    assert flow(malformed=BAD, recent={"refused_age_s": 300.0}).level == "good"


def test_a_field_that_never_came_is_named_with_those_that_did() -> None:
    found = flow(never_seen=[{"operator": "in", "fields": ["tmep"], "seen": ["hum", "temp"]}])
    assert (found.level, found.reason) == ("warning", "field tmep never seen; seen: hum, temp")


def test_a_field_that_came_without_a_usable_value_is_said_so() -> None:
    came = {"lux": "null", "power": "[231, 0]", "inner": "{'a': 1}"}
    found = flow(never_seen=[{"operator": "in", "fields": ["lux", "tmep"], "came": came, "seen": ["temp"]}])
    assert found.reason.split("; ") == [
        "field tmep never seen",
        "seen: temp",
        "field lux came, and never with a usable value: got null",
        "field power came, and never with a usable value: got [231, 0] (arrays are not read)",
        "field inner came, and never with a usable value: got {'a': 1} (an object: name the fields in it, with a dot)",
    ]


def test_an_operator_that_drops_all_is_bad() -> None:
    found = flow(dropping=[["hot", "poison", 3, 2.0], ["slow", "late", 50, 12.0]])
    assert (found.level, found.reason) == ("bad", f"slow has dropped all of its last 50 rows: late; {CLOCK}")


@pytest.mark.parametrize(("rows", "seconds"), [(50, 5.0), (4, 60.0)], ids=["a moment only", "too few"])
def test_an_operator_that_drops_all_for_a_moment_is_a_warning(rows: int, seconds: float) -> None:
    assert flow(dropping=[["hot", "late", rows, seconds]]).level == "warning"


def test_messages_that_hold_no_row_are_told_from_none() -> None:
    found = flow(recent={"row_age_s": None, "messages": 40})
    assert (found.level, found.reason) == ("idle", "40 messages came since the start, and held no row")
    assert flow(recent={"row_age_s": None, "messages": 0}).reason == "no row has come since the start"


def test_a_flow_without_input_is_idle_and_not_wrong() -> None:
    assert flow(recent={"row_age_s": None}).level == "idle"


CUT_OFF = {"connected": False, "error": "no answer to a ping"}


@pytest.mark.parametrize("age_s", [None, 0.5, 86_400.0])
def test_a_flow_whose_sensors_broker_is_away_is_not_good_and_one_of_silent_sensors_is(age_s: float | None) -> None:
    status = example_status()
    [air] = status["flows"]
    air["recent"]["row_age_s"] = age_s
    assert of(status, "flow").level == ("idle" if age_s is None else "good")
    status["ingest"] |= CUT_OFF
    found = of(status, "flow")
    assert (found.level, found.state) == ("warning", "no input")
    assert found.reason.endswith("the sensors' broker is disconnected"), "why stands at the broker, once"
    assert ("24 h ago" in found.reason) == (age_s == 86_400.0)
    air["filters"] = []  # its source is on another board
    assert of(status, "flow").level != "warning"


def test_a_subscription_that_is_refused_is_the_fault_of_the_flow_that_needs_it() -> None:
    status = example_status()
    status["ingest"]["refused"] = {"soil/#": "not authorized"}
    assert (of(status, "sensors").level, of(status, "flow").level) == ("bad", "good")
    status["flows"][0]["filters"] = ["air/+", "soil/#"]
    found = of(status, "flow")
    assert (found.level, found.state, found.reason) == (
        "bad",
        "not reading",
        "subscription refused to soil/#: not authorized",
    )


@pytest.mark.parametrize(("seconds", "level"), [(5.0, "good"), (45.0, "warning"), (420.0, "bad")])
def test_a_flow_whose_results_never_land_is_not_good_where_those_of_another_do(seconds: float, level: str) -> None:
    found = flow(outbox_rows=437, unacknowledged_s=seconds)
    assert found.level == level
    if level != "good":
        assert found.state == "not landing"
        assert "none of its results was acknowledged" in found.reason
        assert "437 rows wait in the outbox" in found.reason


def test_a_flow_whose_results_wait_for_a_dead_collector_is_a_warning_beside_the_fault() -> None:
    status = example_status()
    status["central"] |= {"outbox_rows": 437, "unacknowledged_s": 420.0}
    status["flows"][0] |= {"outbox_rows": 437, "unacknowledged_s": 420.0}
    assert [c.part for c in conditions(status) if c.level == "bad"] == ["central"]
    found = of(status, "flow")
    assert (found.level, found.state) == ("warning", "results wait")
    assert "no collector" in found.reason


STILL = [90.0, 1_700_000_000.0, "tank-3"]


@pytest.mark.parametrize(
    ("still", "result_age_s", "window_s", "level"),
    [
        (STILL, None, 60.0, "bad"),
        (STILL, 100.0, 60.0, "bad"),
        (STILL, None, 3600.0, "warning"),
        (STILL, 1.0, 60.0, "warning"),
        (STILL, None, 0.0, "good"),
        (None, None, 60.0, "good"),
    ],
    ids=["never a result", "none since", "no window should have closed", "another way has results", "no window", "-"],
)
def test_time_that_stands_still_is_named_with_its_device(
    still: list[Any] | None, result_age_s: float | None, window_s: float, level: str
) -> None:
    found = flow(still=still, window_s=window_s, recent={"result_age_s": result_age_s})
    assert found.level == level
    if level != "good":
        assert found.state == "time stands still"
        assert "time stands still at 2023-11-14 22:13:20 UTC: tank-3 has sent rows for 90 s" in found.reason


def test_a_time_that_no_calendar_has_is_told_in_seconds() -> None:
    assert "stands still at 1e+18 s" in flow(still=[90.0, 1e18, "a"]).reason


@pytest.mark.parametrize("state", ["blocked", "stuck", "failed"])
def test_a_flow_that_does_not_run_is_bad(state: str) -> None:
    assert flow(state=state).level == "bad"


@pytest.mark.parametrize(("seconds", "level"), [(5.0, "good"), (45.0, "warning"), (420.0, "bad")])
def test_a_dead_collector_is_seen_by_what_is_not_acknowledged(seconds: float, level: str) -> None:
    status = example_status()
    status["central"] |= {"outbox_rows": 437, "unacknowledged_s": seconds}
    found = of(status, "central")
    assert found.level == level
    if level != "good":
        assert "437 result rows in the outbox" in found.reason
        assert "is edgert-collector running" in found.reason
    assert level != "bad" or "for 7 min" in found.reason


def test_a_central_side_that_is_away_is_bad_once_results_wait_for_it() -> None:
    status = example_status()
    status["central"] |= {"connected": False, "error": "refused", "outbox_rows": 0}
    assert of(status, "central").level == "warning"
    status["central"] |= {"outbox_rows": 5, "unacknowledged_s": 61.0}
    assert of(status, "central").level == "bad"


def test_waiting_begins_anew_with_each_acknowledgement_and_ends_with_an_empty_outbox() -> None:
    waiting = AcknowledgementWait()
    assert [waiting.look(0, 0, 0.0), waiting.look(5, 0, 10.0), waiting.look(9, 0, 50.0)] == [0.0, 0.0, 40.0]
    assert [waiting.look(7, 1, 60.0), waiting.look(7, 1, 65.0), waiting.look(0, 2, 70.0)] == [0.0, 5.0, 0.0]
    assert waiting.look(3, 2, 100.0) == 0.0


def test_the_rate_of_messages_is_an_average_over_ten_seconds() -> None:
    rate = MessageRate()
    for second in range(25):  # 30 messages each third second
        rate.look(30 * (second // 3), float(second))
    found = rate.plain(24.5)
    assert 8.0 <= found["rate"] <= 12.0
    assert found["message_age_s"] == 0.5


def test_what_a_flow_achieved_is_told_from_its_reports() -> None:
    run = flow_run("none")
    progress = LastProgress()
    source, sink = next(iter(run.stages)), list(run.stages)[-1]

    def look(now: float, taken: int, refused: int, results: int, messages: int = 0) -> dict[str, Any]:
        reports = {name: Report() for name in run.stages}
        reports[source] = Report(rows_in=messages, rows_out=taken, drops={"bad_payload": refused})
        reports[sink] = Report(rows_in=results)
        progress.look(run, reports, now)
        return progress.plain(now)

    assert look(0.0, 0, 0, 0)["row_age_s"] is None
    assert look(1.0, 10, 0, 1) == {
        "row_age_s": 0.0, "refused_age_s": None, "result_age_s": 0.0, "refusing_s": None, "refused_since_row": 0,
        "refusing": "", "messages": 0, "silent": [],
    }  # fmt: skip
    look(2.0, 10, 5, 1)
    found = look(12.0, 10, 9, 1)
    assert (found["row_age_s"], found["refusing_s"], found["refused_since_row"]) == (11.0, 10.0, 9)
    assert look(13.0, 11, 9, 2)["refused_since_row"] == 0
    assert look(14.0, 11, 9, 2, 7)["messages"] == 7


def test_a_source_that_refuses_all_is_told_though_another_takes_rows() -> None:
    parts = {name: {"type": "mqtt_source", "topic": f"{name}/{{source}}"} for name in ("a", "b")}
    outs = {f"out-{name}": {"type": "publish", "input": name, "topic": "out/{source}"} for name in parts}
    two = from_plain({"name": "two", "operators": parts | outs}, REGISTRY)
    run = FlowRun(two, REGISTRY, 1, 1, Progress(Position()))
    progress = LastProgress()

    def look(now: float, refused_of_a: int, rows_of_b: int) -> dict[str, Any]:
        reports = {name: Report() for name in run.stages}
        reports["a"] = Report(rows_in=refused_of_a, drops={"bad_payload": refused_of_a})
        reports["b"] = Report(rows_in=rows_of_b, rows_out=rows_of_b)
        progress.look(run, reports, now)
        return progress.plain(now)

    found = look(1.0, 1, 0)
    assert (found["refusing"], found["silent"]) == ("a", ["b"])
    look(2.0, 2, 5)
    found = look(62.0, 14, 14)
    assert (found["refused_since_row"], found["refusing_s"], found["silent"]) == (14, 61.0, [])
    told = flow(recent=found, malformed=BAD)
    assert (told.level, told.state) == ("bad", "refuses all")
    assert told.reason.startswith("source a refuses all its input: 14 malformed payloads and no row in")


def test_a_source_to_which_nothing_has_come_is_named_beside_one_at_work() -> None:
    told = flow(recent={"silent": ["b"]})
    assert (told.level, told.reason) == ("good", "no message has come to b yet")


def test_a_flow_that_has_just_started_is_not_said_to_work() -> None:
    status = example_status()
    status["flows"][0]["recent"] = {}
    assert of(status, "flow").level == "idle"


def test_a_part_whose_source_is_on_another_board_takes_what_comes_from_there() -> None:
    flow = from_plain(DOCUMENT, REGISTRY)
    away = {name: Location("g1" if name in ("in", "ok", "by") else "g2") for name in flow.nodes}
    for gateway, takes in (("g1", "in"), ("g2", "minute")):
        run = FlowRun(flow, REGISTRY, 1, 1, Progress(Position()), gateway=gateway, assignment=away, fission=False)
        progress = LastProgress()
        reports = {name: Report() for name in run.stages}
        progress.look(run, reports, 1.0)
        assert progress.plain(1.0)["row_age_s"] is None
        progress.look(run, reports | {takes: Report(rows_in=5, rows_out=5)}, 2.0)
        assert progress.plain(3.0)["row_age_s"] == 1.0, gateway


def test_an_operator_all_of_whose_rows_were_dropped_is_named() -> None:
    run = flow_run("none")
    meter = ActivityMeter(run)
    last = list(run.stages)[-1]
    for at in (1.0, 5.0):
        told = {name: Report(rows_in=int(at), rows_out=int(at), at=at) for name in run.stages}
        told[last] = Report(rows_in=int(at), drops={"late": int(at), "bad_value (values)": 9}, at=at)
        recent = meter.look(told)
    assert recent.dropping == ((last, "late", 4, 4.0, ""),)


def test_a_read_that_could_not_be_taken_in_is_bad() -> None:
    status = example_status()
    status["ingest"]["failed"] = "what was read could not be taken in: KeyError: 1"
    found = of(status, "sensors")
    assert (found.level, found.reason) == ("bad", "what was read could not be taken in: KeyError: 1")


def test_a_database_that_has_lost_something_is_a_warning() -> None:
    status = example_status()
    status["database"] = {"path": "gateway.db", "lost": "the database gateway.db is gone"}
    found = of(status, "database")
    assert (found.level, str(found)) == ("warning", "database: the database gateway.db is gone")


def test_the_address_of_a_broker_stands_once_in_a_reason() -> None:
    said = of_broker("b:1883", "no connection to b:1883: Connection refused")
    assert said == "no connection to b:1883: Connection refused"
    assert of_broker("b:1883", "closed by the broker") == "b:1883: closed by the broker"


DAY_S = 86_400


@pytest.mark.parametrize(
    ("left_days", "life_days", "failed", "level"),
    [
        (100, 300, "", "good"),
        (74, 300, "", "good"),
        (74, 300, "no answer", "warning"),  # the last quarter: several attempts have failed
        (76, 300, "no answer", "good"),
        (29, 300, "", "warning"),  # nothing renews it
        (20, 30, "", "good"),
        (0, 300, "no answer", "bad"),
    ],
)
def test_a_certificate_that_ends_is_told_in_time(left_days: int, life_days: int, failed: str, level: str) -> None:
    status = example_status()
    status["certificate"] |= {
        "left_s": left_days * DAY_S, "life_s": life_days * DAY_S, "renewal_error": failed
    }  # fmt: skip
    found = of(status, "certificate")
    assert found.level == level
    assert (failed in found.reason) or level == "good"


def test_a_certificate_that_cannot_be_used_is_bad() -> None:
    status = example_status()
    status["certificate"] |= {"left_s": None, "life_s": None, "ends": None, "error": "certificate has expired"}
    found = of(status, "certificate")
    assert (found.level, found.reason) == ("bad", "/var/edgert/identity/board.pem: certificate has expired")
    status["certificate"] = None
    assert not [one for one in conditions(status) if one.part == "certificate"]


def test_flows_that_wait_for_one_broker_are_told_in_one_line() -> None:
    status = example_status()
    [air] = status["flows"]
    status["ingest"] |= CUT_OFF
    status["flows"] = [air | {"name": name} for name in ("air", "soil", "water")]
    parts = [condition.plain() for condition in conditions(status)]
    assert sum("no answer to a ping" in text for text in texts(parts, "bad")) == 1
    assert [text for text in texts(parts, "warning") if "flow" in text] == [
        "3 flows wait for the sensors' broker: air, soil, water"
    ]
    status["flows"] = [air]
    parts = [condition.plain() for condition in conditions(status)]
    [one] = [text for text in texts(parts, "warning") if "flow" in text]
    assert one.startswith("flow air: last row ")


def test_a_page_whose_port_is_taken_is_a_warning() -> None:
    status = example_status() | {"web": {"url": "", "error": "expected to listen on 127.0.0.1:8080, got: taken"}}
    [page] = [condition for condition in conditions(status) if condition.part == "web"]
    assert (page.level, str(page)) == ("warning", "page: expected to listen on 127.0.0.1:8080, got: taken")
    status["web"] = {"url": "http://127.0.0.1:8080/", "error": ""}
    assert not [condition for condition in conditions(status) if condition.part == "web"]
