"""What a board knows of the others before it hands an instance over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.fleet.drain import _freest
from agent.fleet.movable import Movable
from agent.fleet.moves import candidate_untrusted
from agent.interference.exchange import Candidate
from agent.interference.peaks import Load
from agent.interference.ring import Ring
from agent.interference.ring import pack as pack_ring
from agent.interference.score import Crowd, Room
from edgert.core.errors import EdgertError
from tests.agent.fleet.told import TOLD, member
from tests.agent.interference.worlds import flat


def test_a_board_that_takes_instances_is_one_to_choose_from() -> None:
    found = candidate_untrusted(member(TOLD))
    assert found is not None
    assert (found.gateway, found.crowd.room, found.high) == ("g2", Room(2.0, 1e6), Load(0.5, 0.1))


def test_one_that_cools_down_takes_what_people_drain_and_one_that_is_drained_takes_nothing() -> None:
    cooling = member({**TOLD, "takes": False})
    assert candidate_untrusted(cooling) is None
    assert candidate_untrusted(cooling, cooling=True) is not None
    assert candidate_untrusted(member(TOLD, drained=True), cooling=True) is None


def test_a_ring_that_came_a_while_ago_is_seen_later_and_one_that_is_over_is_not_seen() -> None:
    rising = Ring(tuple(float(n) for n in range(90)), (0.0,) * 90)
    told = member(TOLD, ring=pack_ring(rising))
    told.sections["ring"] = replace(told.sections["ring"], heard=100.0)
    found = candidate_untrusted(told, now=150.0)
    assert found is not None
    assert found.crowd.ring.cpu[0] == pytest.approx(40, abs=0.2), "30 windows of one second, and 10 of two"
    assert candidate_untrusted(told, now=280.0) is None


@pytest.mark.parametrize("wrong", [
    {"room": [0, 1e6]}, {"room": [2.0]}, {"room": "much"}, {"room": [True, 1.0]}, {"room": [float("nan"), 1.0]},
    {"high": [-1, 0]}, {"high": None}, {"takes": "yes"}, {"room": [1e-200, 1e6]},
])  # fmt: skip
def test_nonsense_of_another_board_is_no_candidate(wrong: dict[str, Any]) -> None:
    assert candidate_untrusted(member({**TOLD, **wrong})) is None


def test_a_board_without_links_or_with_a_damaged_ring_is_no_candidate() -> None:
    assert candidate_untrusted(member(TOLD, link=("10.0.0.1", 0))) is None
    assert candidate_untrusted(member(TOLD, ring=b"\x01")) is None
    assert candidate_untrusted(member([1, 2])) is None
    assert candidate_untrusted(member(TOLD, drained=None)) is None


def one_of(cpu: float) -> Movable:
    return Movable("f", ("window",), flat(cpu), (("source", "window"),), {"source": "g1", "window": "g1"})


def other(gateway: str, ring: Ring) -> Candidate:
    crowd = Crowd(ring, Room(1.0, 1e6))
    return Candidate(gateway, crowd, crowd.load)


def test_a_drain_spreads_what_it_moves_over_the_others() -> None:
    candidates = [other("g2", flat(0.1)), other("g3", flat(0.3))]
    assert [_freest(one_of(0.4), candidates, {"g2", "g3"}) for _ in range(3)] == ["g2", "g3", "g2"]


def test_a_drain_goes_beyond_the_room_of_the_others_where_none_has_any() -> None:
    assert _freest(one_of(0.9), [other("g2", flat(0.5)), other("g3", flat(0.4))], {"g2", "g3"}) == "g3"


def test_a_drain_keeps_labels_and_says_when_no_other_board_has_them() -> None:
    candidates = [other("g2", flat(0.1)), other("g3", flat(0.3))]
    assert _freest(one_of(0.4), candidates, {"g3"}) == "g3"
    with pytest.raises(EdgertError, match="no other board that takes operators has the labels that window needs"):
        _freest(one_of(0.4), candidates, set())
