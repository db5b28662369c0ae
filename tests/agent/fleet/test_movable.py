"""Which instances may leave a board, by themselves and when people want it."""

from __future__ import annotations

from typing import Any

import pytest

from agent.fleet.movable import crossing, leaving, movable, with_keys
from agent.interference.ring import NOTHING
from agent.placement.rules import Rules

OPERATORS = {
    "readings": {"source": True, "type": "mqtt_source", "inputs": []},
    "window": {"source": False, "type": "tumbling_window", "inputs": ["readings"]},
    "say": {"source": False, "type": "publish", "inputs": ["window"]},
    "central": {"source": False, "type": "ship", "inputs": ["window"]},
}
FIGURES = {"instances": {
    "readings": {"operators": ["readings"]}, "window": {"operators": ["window"]},
    "say": {"operators": ["say"]}, "central": {"operators": ["central"]},
}}  # fmt: skip
RINGS = dict.fromkeys(OPERATORS, NOTHING)


def part(rules: dict[str, Any] | None = None, **on: str) -> dict[str, Any]:
    assignment = {operator: [on.get(operator, "g1"), -1] for operator in OPERATORS}
    return {"assignment": assignment, **({"rules": rules} if rules else {})}


def names(told: dict[str, Any]) -> set[str]:
    return set(movable("f", told, OPERATORS, FIGURES, RINGS, "g1"))


def test_sources_and_what_publishes_stay() -> None:
    assert names(part()) == {"f/window", "f/central"}


def test_what_is_elsewhere_or_has_no_ring_is_not_offered() -> None:
    assert names(part(central="g2")) == {"f/window"}
    assert set(movable("f", part(), OPERATORS, FIGURES, {"window": NOTHING}, "g1")) == {"f/window"}


def test_what_people_pinned_or_labelled_stays_and_so_does_a_flow_that_a_heuristic_places() -> None:
    assert names(part({"pins": {"window": "g1"}})) == {"f/central"}
    assert names(part({"labels": {"central": ["uplink=yes"]}})) == {"f/window"}
    assert names(part({"heuristic": "hybrid"})) == set()


def test_operators_that_are_fused_with_a_source_stay_and_leave_a_board_that_is_drained() -> None:
    fused = {"instances": {"readings": {"operators": ["readings", "window"]}, "central": {"operators": ["central"]}}}
    assert set(movable("f", part(), OPERATORS, fused, RINGS, "g1")) == {"f/central"}
    found = leaving("f", part({"pins": {"window": "g1"}}), OPERATORS, fused, RINGS, "g1")
    assert [one.operators for one in found] == [("window",), ("central",)]


def test_a_key_leaves_with_the_operator_that_reads_it() -> None:
    """It runs in no instance: left behind, it would keep the board in the flow."""
    operators = {
        "readings": OPERATORS["readings"],
        "by-room": {"source": False, "type": "key_by", "inputs": ["readings"]},
        "by-sensor": {"source": False, "type": "key_by", "inputs": ["by-room"]},
        "window": {**OPERATORS["window"], "inputs": ["by-sensor"]},
    }
    figures = {"instances": {name: FIGURES["instances"][name] for name in ("readings", "window")}}
    told = {"assignment": {operator: ["g1", -1] for operator in operators}}
    for found in (movable("f", told, operators, figures, RINGS, "g1").values(),
                  leaving("f", told, operators, figures, RINGS, "g1")):  # fmt: skip
        assert [set(one.operators) for one in found] == [{"window", "by-sensor", "by-room"}]
    pinned = told | {"rules": {"pins": {"by-room": "g1"}}}
    (one,) = movable("f", pinned, operators, figures, RINGS, "g1").values()
    assert one.operators == ("window", "by-sensor")


def test_a_move_takes_along_the_keys_of_which_nobody_is_left_to_read_them() -> None:
    operators = {
        "readings": OPERATORS["readings"],
        "by-room": {"source": False, "type": "key_by", "inputs": ["readings"]},
        "by-sensor": {"source": False, "type": "key_by", "inputs": ["by-room"]},
        "window": {**OPERATORS["window"], "inputs": ["by-sensor"]},
        "central": OPERATORS["central"],
    }
    before = {**dict.fromkeys(operators, "g2"), "readings": "g1"}
    moved = with_keys({**before, "window": "g3"}, ["window"], operators, Rules())
    assert moved == {**before, "by-room": "g3", "by-sensor": "g3", "window": "g3"}
    pinned = Rules(pins={"by-sensor": "g2"})
    assert with_keys({**before, "window": "g3"}, ["window"], operators, pinned) == {**before, "window": "g3"}


def test_a_key_stays_with_a_reader_that_stays() -> None:
    operators = {
        "by-sensor": {"source": False, "type": "key_by", "inputs": []},
        "minute": {**OPERATORS["window"], "inputs": ["by-sensor"]},
        "hour": {**OPERATORS["window"], "inputs": ["by-sensor"]},
    }
    after = {"by-sensor": "g2", "minute": "g3", "hour": "g2"}
    assert with_keys(after, ["minute"], operators, Rules()) == after
    assert with_keys({**after, "hour": "g1"}, ["hour", "minute"], operators, Rules())["by-sensor"] == "g3"


def test_copies_of_an_operator_leave_one_by_one() -> None:
    operators = {"window#1": OPERATORS["window"], "window#2": OPERATORS["window"]}
    figures = {"instances": {"window#1": {"operators": ["window"]}, "window#2": {"operators": ["window"]}}}
    told = {"assignment": {"window#1": ["g1", -1], "window#2": ["g1", -1]}, "rules": {"pins": {"window#2": "g1"}}}
    found = movable("f", told, operators, figures, dict.fromkeys(operators, NOTHING), "g1")
    assert [one.operators for one in found.values()] == [("window#1",)]


def test_a_move_to_its_neighbours_costs_less_than_one_away_from_them() -> None:
    (one,) = movable("f", part(say="g2", central="g2"), OPERATORS, FIGURES, {"window": NOTHING}, "g1").values()
    assert crossing(one, "g2") == pytest.approx(-1 / 3), "two edges fewer and one more, of three"
    assert crossing(one, "g3") == pytest.approx(1 / 3)
