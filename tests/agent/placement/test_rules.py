"""Rules of a flow's placement: pins and labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.fleet.deploy import assignment
from agent.placement.problem.build import PlacementRule
from agent.placement.rules import Rules, newest
from edgert.core.errors import EdgertError

NAMES = st.sampled_from(["readings", "window", "window#1", "window#2", "central"])
RULES = st.builds(
    Rules,
    st.dictionaries(NAMES, st.sampled_from(["g1", "g2"])),
    st.dictionaries(NAMES, st.frozensets(st.sampled_from(["gpu=yes", "room=3"]))),
    st.sampled_from(["", "hybrid", "even"]),
)
OPERATORS: dict[str, dict[str, list[str]]] = {
    "readings": {"inputs": []},
    "window#1": {"inputs": ["readings"]},
    "window#2": {"inputs": ["readings"]},
    "central": {"inputs": ["window#1", "window#2"]},
}
LABELS = {"g1": frozenset[str](), "g2": frozenset({"gpu=yes"}), "g3": frozenset({"gpu=yes", "room=3"})}


@given(RULES)
def test_rules_survive_the_gateways_that_keep_them(rules: Rules) -> None:
    assert Rules.untrusted(rules.plain()) == rules


@pytest.mark.parametrize(
    ("plain", "error"),
    [
        ([], "expected a map"),
        ({"pins": {"window": 3}}, r"pins: expected \{operator: gateway\}"),
        ({"labels": {"window": "gpu=yes"}}, "labels: expected"),
        ({"labels": [["gpu=yes"]]}, "labels: expected"),
        ({"heuristic": "best"}, "heuristic: expected one of hybrid"),
    ],
)
def test_malformed_rules_are_refused(plain: object, error: str) -> None:
    with pytest.raises(EdgertError, match=error):
        Rules.untrusted(plain)


def test_the_rules_of_the_newest_coordinator_hold() -> None:
    old, new = Rules({"window": "g1"}), Rules({"window": "g2"})
    parts = [{"rules": r.plain(), "rules_fence": fence} for r, fence in ((new, 7), (old, 3))]
    assert newest(parts) == newest(parts[::-1]) == new
    assert newest([{"state": "prepared"}]) == Rules()


def test_a_move_by_hand_is_a_pin_until_it_is_taken_back() -> None:
    rules = Rules({"window": "g1"}, heuristic="hybrid").pinned({"window": "g2", "central#1": "g3"})
    assert rules.for_problem("f", LABELS) == {"f/window": PlacementRule(frozenset({"g2"}), frozenset())}
    assert rules.kept_copies() == ["central#1"]
    assert rules.unpinned(["window"]).pins == {"central#1": "g3"}


def test_a_flow_begins_where_pins_labels_and_inputs_say() -> None:
    assert set(assignment(OPERATORS, Rules(), "g1", LABELS).values()) == {"g1"}
    on = assignment(OPERATORS, Rules({"window#2": "g3"}, {"window": frozenset({"gpu=yes"})}), "g1", LABELS)
    assert on == {"readings": "g1", "window#1": "g2", "window#2": "g3", "central": "g2"}


def test_on_a_drained_board_begin_only_sources_and_what_is_pinned_to_it() -> None:
    on = assignment(OPERATORS, Rules({"window#2": "g1"}), "g1", LABELS, {"g1"})
    assert on == {"readings": "g1", "window#1": "g2", "window#2": "g1", "central": "g2"}
    assert set(assignment(OPERATORS, Rules(), "g1", LABELS, set(LABELS)).values()) == {"g1"}, "all are drained"
    gpu = Rules(labels={"window": frozenset({"gpu=yes"})})
    assert assignment(OPERATORS, gpu, "g1", LABELS, {"g2"})["window#1"] == "g3"


def test_what_is_pinned_to_a_board_that_takes_nothing_stays_where_it_is() -> None:
    takers = {"g1": LABELS["g1"], "g3": LABELS["g3"]}
    rules = Rules({"central": "g2"}, {"window": frozenset({"gpu=yes"}), "readings": frozenset({"room=9"})})
    assert rules.held_back(OPERATORS, takers) == ["readings", "central"]
    assert rules.for_problem("f", takers) == {"f/window": PlacementRule(frozenset(), frozenset({"gpu=yes"}))}
    assert Rules().held_back(OPERATORS, {}) == list(OPERATORS)


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        (Rules({"minute": "g1"}), "expected an operator, one of central"),
        (Rules(labels={"window": frozenset({"room=9"})}), "expected a board with the labels room=9"),
        (Rules({"window": "g1"}, {"window": frozenset({"gpu=yes"})}), "g1, where it is pinned to, lacks a label"),
    ],
)
def test_rules_that_no_board_can_keep_are_refused(rules: Rules, error: str) -> None:
    with pytest.raises(EdgertError, match=error):
        assignment(OPERATORS, rules, "g1", LABELS)


def test_an_operator_without_a_pin_is_not_unpinned_without_a_word() -> None:
    rules = Rules({"minute#2": "g2"})
    for name in ("nosuch", "minute"):
        with pytest.raises(
            EdgertError, match=f"unpin: expected operators or copies that are pinned, minute#2, got {name}"
        ):
            rules.unpinned([name])
