"""Places of a listener: those who hold idle connections keep nobody out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgert.links.pending import PendingConnections


def test_oldest_connection_of_the_address_that_has_most_gives_way() -> None:
    waiting = PendingConnections[int](4)
    assert [waiting.enter(number, "theirs") for number in range(3)] == [None, None, None]
    assert waiting.enter(3, "ours") is None
    assert waiting.enter(4, "ours") == 0
    assert waiting.enter(5, "ours") == 1, "the oldest of both, which have two each"
    waiting.leave(1)  # lost its place before
    waiting.leave(3)
    assert waiting.enter(6, "ours") is None
    assert list(waiting) == [2, 4, 5, 6]


@given(st.lists(st.integers(0, 5), max_size=60))
def test_newest_connection_always_has_a_place_and_there_are_never_too_many(addresses: list[int]) -> None:
    waiting, held = PendingConnections[int](4), dict[int, int]()
    for number, address in enumerate(addresses):
        gone = waiting.enter(number, str(address))
        if gone is not None:
            of = list(held.values())
            assert of.count(held[gone]) == max(map(of.count, of))
            assert gone == min(one for one, at in held.items() if at == held[gone])
            del held[gone]
        held[number] = address
        assert list(waiting) == list(held)
        assert len(held) <= 4
