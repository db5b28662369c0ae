from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.lease.voters import Voters, is_majority, voters_untrusted

names = st.sampled_from("abcdefg")


@given(st.sets(names, min_size=1), st.sets(names))
def test_two_sides_of_a_fleet_never_both_have_a_majority(members: set[str], side: set[str]) -> None:
    assert not (is_majority(side, members) and is_majority(members - side, members))


@given(st.sets(names, min_size=1), st.sets(names), st.sets(names), names)
def test_majorities_of_before_and_after_one_change_share_a_board(
    before: set[str], one: set[str], other: set[str], changed: str
) -> None:
    after = before ^ {changed}
    if is_majority(one, before) and is_majority(other, after):
        assert one & other & (before | after)


def test_half_of_the_boards_are_no_majority() -> None:
    assert is_majority("ab", "abc")
    assert not is_majority("a", "ab")
    assert not is_majority("", "")


def test_of_one_fleet_the_later_voters_hold_and_of_two_fleets_those_of_the_greater_one() -> None:
    old, new = Voters("a 1", 3, 1, ("a", "b")), Voters("a 1", 3, 2, ("a",))
    assert new.supersedes(old)
    assert not old.supersedes(new)
    assert not old.supersedes(old)
    assert old.supersedes(Voters("d 1", 9, 9, ("d",)))
    assert old.supersedes(Voters())


def test_voters_are_read_as_they_were_written() -> None:
    voters = Voters("a 1", 3, 1, ("a", "b"))
    assert voters_untrusted(voters.plain()) == voters


@pytest.mark.parametrize(
    "bad", [None, [], ["a", 1, 1], ["a", -1, 1, ["a"]], ["a", 1, 1, "ab"], ["a", 1, 1, [""]], [7, 1, 1, ["a"]]]
)
def test_bad_voters_are_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        voters_untrusted(bad)
