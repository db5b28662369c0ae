"""Events that are drawn from a seed, and events of a description."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.simulation.described.description import parse
from agent.simulation.described.events import EARLIEST, LATEST, LONGEST_S, SHORTEST_S, FleetEvent, drawn
from agent.simulation.described.ways import DescriptionError
from tests.agent.simulation.worlds import boards


@given(st.integers(), st.integers(1, 9), st.floats(10, 1e5), *[st.integers(0, 8)] * 3)
def test_drawn_events_are_those_of_the_seed_in_order_and_within_the_time(
    seed: int, count: int, seconds: float, kills: int, cuts: int, jumps: int
) -> None:
    names = [f"b{n}" for n in range(count)]
    found = drawn(Random(seed).random, names, seconds, kills, cuts, jumps)
    assert found == drawn(Random(seed).random, names, seconds, kills, cuts, jumps)
    kinds = [event.kind for event in found]
    expected = (kills, cuts if count > 1 else 0, jumps)
    assert (kinds.count("kill"), kinds.count("cut"), kinds.count("clock")) == expected
    assert [event.at_s for event in found] == sorted(event.at_s for event in found)
    for event in found:
        assert EARLIEST * seconds - 0.1 <= event.at_s <= LATEST * seconds + 0.1
        assert len(set(names).intersection(event.boards)) == len(event.boards)
        assert (event.for_s is None) == (event.kind == "clock")
        assert event.for_s is None or SHORTEST_S <= event.for_s <= LONGEST_S
        assert str(event)


def test_events_of_a_description_come_in_the_order_of_their_times() -> None:
    found = parse(boards(1, 1, events=[
        {"at_s": 9, "cut": ["a", "b"], "one_way": True, "for_s": 3},
        {"at_s": 5, "kill": "@coordinator"},
        {"at_s": 7, "clock": "b", "by_s": -60},
    ])).events  # fmt: skip
    assert found == (
        FleetEvent(5.0, "kill", ("@coordinator",)), FleetEvent(7.0, "clock", ("b",), by_s=-60.0),
        FleetEvent(9.0, "cut", ("a", "b"), 3.0, True),
    )  # fmt: skip
    assert [str(event) for event in found] == [
        "@coordinator loses its power", "the wall clock of b jumps by -60.0 s",
        "nothing that a sends arrives at b for 3.0 s",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"at_s": 1}, r"events\[0\]: expected one of kill, card, restart, cut, heal, clock, got at_s"),
        ({"at_s": 1, "kill": "a", "cut": "a"}, r"events\[0\]: expected one of"),
        ({"kill": "a"}, r"events\[0\].at_s: expected seconds since the flow was deployed"),
        ({"at_s": -1, "kill": "a"}, r"events\[0\].at_s: expected a number, not negative, got -1"),
        ({"at_s": 1, "kill": "z"}, r"events\[0\].kill: expected a board of a, b, @coordinator, got 'z'"),
        ({"at_s": 1, "kill": ["a", "b"]}, r"events\[0\].kill: expected a board"),
        ({"at_s": 1, "cut": ["a", "a"]}, r"events\[0\].cut: expected a board, or two different ones"),
        ({"at_s": 1, "cut": [1]}, r"events\[0\].cut: expected a board"),
        ({"at_s": 1, "cut": "a", "one_way": 1}, r"events\[0\].one_way: expected true or false, got 1"),
        ({"at_s": 1, "kill": "a", "one_way": True}, r"events\[0\]: expected at_s, for_s, kill, got one_way"),
        ({"at_s": 1, "clock": "a", "by_s": "x"}, r"events\[0\].by_s: expected seconds, got 'x'"),
        ({"at_s": 1, "kill": "a", "for_s": True}, r"events\[0\].for_s: expected a number"),
    ],
)
def test_an_event_that_is_none_is_named(event: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        parse(boards(1, 1, events=[event]))


def test_the_speed_of_a_board_is_above_0() -> None:
    with pytest.raises(DescriptionError, match=r"boards\[0\].speed: expected a number above 0, got 0"):
        parse({"boards": [{"name": "a", "speed": 0}], "otherwise": {}})
