"""The trial of a slot after an update: faults, and the verdict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.boards.slots import (
    Pending,
    Trial,
    Unit,
    bad_parts,
    booted,
    faults,
    hopeless,
    lost,
    parts_before,
    pending_untrusted,
)
from gateway.status.conditions import conditions

WELL = Unit("edgert-gateway.service", "active", 0)
SLOT = st.sampled_from("AB")


def status(*parts: tuple[str, str, str]) -> dict[str, Any]:
    told = [{"part": p, "name": n, "level": level, "text": f"{p} {n} is {level}"} for p, n, level in parts]
    return {"health": {"parts": told}}


@pytest.mark.parametrize(
    ("line", "slot"),
    [
        ("quiet edgert.slot=B ro", "B"),
        ("edgert.slot=A rauc.slot=B", "A"),
        ("edgert.slot=C", ""),
        ("root=/dev/sda1 ro", ""),
        ("", ""),
    ],
)
def test_the_slot_that_was_started(line: str, slot: str) -> None:
    assert booted(line) == slot


TEXTS = st.lists(st.text()).map(tuple)


@given(st.builds(Pending, SLOT, SLOT, st.text(), TEXTS, TEXTS, st.text(), st.text(), st.booleans()))
def test_a_note_is_read_as_it_was_written(update: Pending) -> None:
    assert pending_untrusted(update.text()) == update


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"source": "A"}', "\0" * 100])
def test_a_damaged_note_is_none(text: str) -> None:
    assert pending_untrusted(text) is None


def test_a_note_with_an_unknown_slot_is_none() -> None:
    assert pending_untrusted(Pending("A", "C", "1").text()) is None


def test_faults_are_those_that_the_system_before_did_not_have() -> None:
    now = status(("sensors", "", "good"), ("central", "", "bad"), ("flow", "a", "bad"), ("flow", "b", "warning"))
    assert bad_parts(now) == {"central": "central  is bad", "flow a": "flow a is bad"}
    assert faults(now, [WELL], ["central"]) == ["flow a is bad"]
    assert faults(now, [WELL], ["central", "flow a"]) == []


def whole(central: dict[str, Any], flows: tuple[str, ...] = ()) -> dict[str, Any]:
    """A status as the gateway puts it together."""
    told = {
        "ingest": {"connected": True, "messages": 1, "broker": "b"},
        "central": {"enabled": True, "broker": "c", **central},
        "flows": [{"name": name, "state": "running"} for name in flows],
    }
    return {**told, "health": {"parts": [condition.plain() for condition in conditions(told)]}}


DRAINS = {"connected": True, "outbox_rows": 7, "last_ack_age_s": 1.0}
AWAY = {"connected": False, "outbox_rows": 0, "last_ack_age_s": None}
UNACKNOWLEDGED = {"connected": True, "outbox_rows": 7, "last_ack_age_s": None}
EMPTY = {"connected": True, "outbox_rows": 0, "last_ack_age_s": None}
NO_COLLECTOR = {"connected": True, "outbox_rows": 7, "last_ack_age_s": None, "unacknowledged_s": 90.0}


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        (DRAINS, DRAINS, ""),
        (DRAINS, EMPTY, ""),
        (DRAINS, AWAY, "central: c: no connection yet"),
        (EMPTY, AWAY, "central: c: no connection yet"),
        (AWAY, AWAY, ""),
        (DRAINS, UNACKNOWLEDGED, "7 rows in the outbox, and none was acknowledged yet"),
        (DRAINS, NO_COLLECTOR, "no collector has acknowledged a result for 90 s"),
        (EMPTY, UNACKNOWLEDGED, ""),
        (EMPTY, NO_COLLECTOR, ""),
        (NO_COLLECTOR, UNACKNOWLEDGED, ""),
    ],
)
def test_the_central_broker_is_reached_and_the_outbox_drains_as_before(
    before: dict[str, Any], now: dict[str, Any], found: str
) -> None:
    said = faults(whole(now), [WELL], parts_before(whole(before)))
    assert (found in said[0]) if found else not said


def test_a_flow_that_is_gone_is_a_fault_and_one_that_came_is_none() -> None:
    now = whole(DRAINS, ("new", "stays"))
    assert faults(now, [WELL], (), ("stays",)) == []
    assert faults(now, [WELL], (), ("stays", "gone")) == ["flow gone is not there any more"]


def test_a_gateway_that_does_not_answer_is_a_fault_whatever_was_before() -> None:
    assert faults("no socket", [WELL], ["sensors"]) == ["the gateway does not answer: no socket"]


@pytest.mark.parametrize(
    ("unit", "gone"),
    [
        (WELL, False),
        (Unit("u", "failed", 0), True),
        (Unit("u", "activating", 4), False),
        (Unit("u", "active", 5), True),
    ],
)
def test_a_service_that_is_started_again_and_again_is_lost(unit: Unit, gone: bool) -> None:
    assert hopeless(unit) is gone
    assert bool(faults(status(), [unit], [])) is gone


def test_a_service_that_did_not_come_up_before_is_no_fault_of_the_update() -> None:
    agent = Unit("edgert-agent.service", "activating", 9)
    assert faults(status(), [WELL, agent], [agent.name]) == []
    assert lost([WELL, agent], [agent.name]) == []
    assert lost([WELL, agent], []) == [agent]


def test_a_slot_is_good_once_it_was_well_for_long_enough() -> None:
    trial = Trial(within_s=100.0, steady_s=10.0)
    assert trial.see(0.0, ["starts"]) is None
    assert trial.see(50.0, []) is None
    assert trial.see(55.0, ["a flow failed"]) is None
    assert trial.see(60.0, []) is None
    assert trial.see(69.9, []) is None
    assert trial.see(70.0, []) == "good"


def test_a_slot_that_is_well_when_time_is_over_may_show_that_it_stays_so() -> None:
    trial = Trial(within_s=100.0, steady_s=10.0)
    assert trial.see(95.0, []) is None
    assert trial.see(101.0, []) is None
    assert trial.see(105.0, []) == "good"


def test_a_slot_is_bad_when_time_is_over_or_a_service_is_lost() -> None:
    assert Trial(100.0, 10.0).see(100.0, ["starts"]) == "bad"
    assert Trial(100.0, 10.0).see(1.0, ["lost"], hopeless=True) == "bad"


@given(st.lists(st.tuples(st.floats(0.1, 20.0), st.booleans()), min_size=1))
def test_every_trial_ends(steps: list[tuple[float, bool]]) -> None:
    """At the latest when `within_s` and `steady_s` are over."""
    trial, at_s = Trial(60.0, 10.0), 0.0
    for step_s, well in steps:
        at_s += step_s
        if trial.see(at_s, [] if well else ["fault"]) is not None:
            return
        assert at_s < 60.0 + 10.0 + 20.0
