"""Places of a listener: those who hold idle connections keep nobody out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.membership.places import Served, Waiting


def test_oldest_connection_of_a_host_gives_way_when_the_host_has_its_share() -> None:
    waiting = Waiting[int](8)
    assert waiting.enter(0, "theirs", 2) is None
    assert [waiting.enter(number, "ours", 2) for number in range(1, 5)] == [None, None, 1, 2]
    waiting.leave(3)
    waiting.leave(1)  # lost its place before
    assert waiting.enter(5, "ours", 2) is None
    assert len(waiting) == 3


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), max_size=60))
def test_newest_connection_always_has_a_place_and_there_are_never_too_many(entries: list[tuple[int, int]]) -> None:
    waiting, held = Waiting[int](4), dict[int, int]()
    for number, (host, share) in enumerate(entries):
        gone = waiting.enter(number, str(host), share)
        if gone is not None:
            of_host = [one for one, at in held.items() if at == host]
            assert gone == (of_host[0] if len(of_host) >= share else next(iter(held)))
            del held[gone]
        held[number] = host
        assert len(waiting) == len(held) <= 4


def test_one_member_does_not_take_the_places_of_all_others() -> None:
    served = Served(3, 2)
    assert [served.begin("a") for _ in range(3)] == [True, True, False]
    assert served.begin("b")
    assert not served.begin("c")
    served.end("a")
    assert served.begin("c")
