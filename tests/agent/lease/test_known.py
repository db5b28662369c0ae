from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.lease.known import Known, Standing, is_majority, standings_untrusted

names = st.sampled_from("abcdefg")
standings = st.builds(Standing, st.integers(0, 3), st.integers(0, 3), st.booleans())
memories = st.dictionaries(names, standings)


@given(st.sets(names, min_size=1), st.sets(names))
def test_two_sides_of_a_fleet_never_both_have_a_majority(members: set[str], side: set[str]) -> None:
    other = members - side
    assert not (is_majority(side, members) and is_majority(other, members))
    assert is_majority(side, members) or is_majority(other, members)


def test_of_two_even_halves_the_one_with_the_first_name_has_it() -> None:
    assert is_majority("ad", "abcd")
    assert not is_majority("bc", "abcd")
    assert is_majority("a", "ab")
    assert not is_majority("", "")


@given(memories, memories, memories)
def test_the_order_in_which_memories_meet_does_not_matter(
    first: dict[str, Standing], second: dict[str, Standing], third: dict[str, Standing]
) -> None:
    all_ = first, second, third

    def merged(order: tuple[int, ...]) -> dict[str, list[int]]:
        known = Known("a")
        for number in order:
            known.merge(all_[number])
        return known.plain()

    assert merged((0, 1, 2)) == merged((2, 1, 0)) == merged((1, 0, 2, 1))


def test_a_forgotten_board_counts_again_when_it_starts_anew_or_refutes_its_death() -> None:
    for later in (Standing(2, 0, gone=False), Standing(1, 1, gone=False)):
        known = Known("a", {"b": Standing(1, 0, gone=False)})
        known.forget("b")
        known.saw("b", Standing(1, 0, gone=False))  # an old word
        assert known.members == {"a"}
        known.saw("b", later)
        assert known.members == {"a", "b"}


@given(memories)
def test_a_memory_comes_back_from_the_disk(memory: dict[str, Standing]) -> None:
    plain = Known("a", memory).plain()
    assert Known("a", standings_untrusted(plain)).plain() == plain


@pytest.mark.parametrize(
    "bad", [None, [], {"b": 1}, {"b": [1, 2]}, {"b": [1, -2, 0]}, {"": [1, 2, 0]}, {"b": [1, 2, "x"]}]
)
def test_bad_memories_are_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        standings_untrusted(bad)
