"""Fencing numbers of coordinators."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.lease.fences import next_fence

KNOWN = st.lists(st.integers(0, 2**62), max_size=5)


@given(KNOWN, st.text(max_size=20))
def test_a_number_is_greater_than_all_known_and_fits_into_the_database(known: list[int], name: str) -> None:
    fence = next_fence(known, name)
    assert max(known, default=0) < fence < 2**63


@given(KNOWN)
def test_two_coordinators_never_have_the_same_number(known: list[int]) -> None:
    assert len({next_fence(known, f"board-{n}") for n in range(100)}) == 100
