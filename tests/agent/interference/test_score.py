"""The interference score: as its formula says, whatever way it is computed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.interference.ring import HORIZON, SECONDS, STARTS, WINDOWS, Ring, board_ring
from agent.interference.score import Crowd, Footprint, Room, smooth

values = st.lists(st.floats(0, 10), min_size=WINDOWS, max_size=WINDOWS).map(tuple)
rings = st.builds(Ring, values, values)
rooms = st.builds(Room, st.floats(0.5, 8), st.floats(0.5, 8))


def by_formula(without: Ring, own: Ring, room: Room, n: int) -> float:
    """Figure 5 of the paper, once per resource."""
    score = 0.0
    for r, c, limit in zip((without.cpu, without.link), (own.cpu, own.link), room, strict=True):
        for p in range(WINDOWS):
            ru = sum(w * r[q] for w, q in ((0.5, p - 1), (1, p), (0.5, p + 1)) if 0 <= q < WINDOWS)
            cu = ru + sum(w * c[q] for w, q in ((0.5, p - 1), (1, p), (0.5, p + 1)) if 0 <= q < WINDOWS)
            score += (cu**n - ru**n) / (limit**n * SECONDS[p]) * (1 - STARTS[p] / HORIZON)
    return score


def flat(cpu: float, link: float = 0.0) -> Ring:
    return Ring((cpu,) * WINDOWS, (link,) * WINDOWS)


@given(without=rings, own=rings, room=rooms, n=st.integers(2, 4))
def test_a_score_is_that_of_the_formula_on_its_own_board_and_on_another(
    without: Ring, own: Ring, room: Room, n: int
) -> None:
    wanted = pytest.approx(by_formula(without, own, room, n), rel=1e-6, abs=1e-6)
    footprint = Footprint(own, n)
    assert Crowd(without, room, n).joined(footprint) == wanted
    assert Crowd(board_ring([without, own]), room, n).within(footprint) == wanted


@given(some=st.lists(rings, min_size=1, max_size=4), room=rooms)
def test_a_board_after_changes_is_the_board_made_anew(some: list[Ring], room: Room) -> None:
    footprints = [Footprint(ring) for ring in some]
    crowd = Crowd(board_ring(some[:1]), room)
    crowd.change(arrived=footprints[1:])
    crowd.change(left=footprints[:1])
    fresh = Crowd(board_ring(some[1:]), room)
    probe = Footprint(flat(1.0, 2.0))
    assert crowd.joined(probe) == pytest.approx(fresh.joined(probe), abs=1e-9)
    assert crowd.load == pytest.approx(fresh.load, abs=1e-9)


def test_a_crowded_board_counts_more_than_twice_as_much_as_one_half_as_full() -> None:
    own = Footprint(flat(0.1))
    full, half = (Crowd(flat(load), Room(1.0, 1.0)).joined(own) for load in (0.8, 0.4))
    assert half < full < 2 * half
    cubic = Footprint(flat(0.1), 3)
    full, half = (Crowd(flat(load), Room(1.0, 1.0), 3).joined(cubic) for load in (0.8, 0.4))
    assert full > 2 * half


def test_near_interference_weighs_more_than_far() -> None:
    soon = tuple(1.0 if p < 30 else 0.0 for p in range(WINDOWS))
    late = tuple(1.0 if p >= 60 else 0.0 for p in range(WINDOWS))
    own = Footprint(flat(0.1))
    scores = [Crowd(Ring(busy, (0.0,) * WINDOWS), Room(1.0, 1.0)).joined(own) for busy in (soon, late)]
    assert scores[0] > 3 * scores[1]


def test_a_window_reaches_half_into_its_neighbours() -> None:
    assert smooth([0, 4, 0, 0]) == [2, 4, 2, 0]


@pytest.mark.parametrize(("room", "n"), [(Room(0.0, 1.0), 2), (Room(1.0, 1.0), 1)])
def test_no_room_and_no_amplifier_are_refused(room: Room, n: int) -> None:
    with pytest.raises(ValueError, match="expected room above 0 and an amplifier above 1"):
        Crowd(flat(0.0), room, n)
