"""How much is taken in one turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.scheduling.consumption import CONSUMPTIONS


@pytest.mark.parametrize(
    ("name", "expected"), [("at-most", [1, 50, 50, 50]), ("half", [1, 25, 26, 500]), ("all", [1, 50, 51, 1_000])]
)
def test_consumption_takes_what_its_name_says(name: str, expected: list[int]) -> None:
    assert [CONSUMPTIONS[name](50)(waiting) for waiting in (1, 50, 51, 1_000)] == expected


@given(name=st.sampled_from(sorted(CONSUMPTIONS)), rows=st.integers(1, 1_000), waiting=st.integers(1, 10_000))
def test_something_is_taken_and_never_more_than_waits(name: str, rows: int, waiting: int) -> None:
    assert 1 <= CONSUMPTIONS[name](rows)(waiting) <= waiting
