"""How much is taken in one turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.settings.gateway import GatewaySettings
from edgert.scheduling.consumption import CONSUMPTIONS, DEFAULT_ROWS, after_turn, most_rows


@pytest.mark.parametrize(
    ("name", "expected"), [("at-most", [1, 50, 50, 50]), ("half", [1, 25, 26, 500]), ("all", [1, 50, 51, 1_000])]
)
def test_consumption_takes_what_its_name_says(name: str, expected: list[int]) -> None:
    assert [CONSUMPTIONS[name](50)(waiting) for waiting in (1, 50, 51, 1_000)] == expected


@given(name=st.sampled_from(sorted(CONSUMPTIONS)), rows=st.integers(1, 1_000), waiting=st.integers(1, 10_000))
def test_something_is_taken_and_never_more_than_waits(name: str, rows: int, waiting: int) -> None:
    assert 1 <= CONSUMPTIONS[name](rows)(waiting) <= waiting


@pytest.mark.parametrize(
    ("cost_s", "rows"), [(3e-5, 333), (0.001, 10), (0.005, 10), (0.02, 10), (0.05, 4), (0.5, 1), (9.0, 1)]
)
def test_a_turn_is_short_as_far_as_rows_can_be_divided(cost_s: float, rows: int) -> None:
    assert most_rows(cost_s) == rows


def test_a_turn_says_how_many_rows_the_next_one_may_take() -> None:
    assert after_turn(200, 200, 0.001) == after_turn(200, 101, 0.001) == 400
    assert after_turn(200, 99, 0.001) == 200, "it is not known what more would take"
    assert after_turn(200, 200, 0.007) == 285
    assert after_turn(200, 200, 0.015) == 200
    assert after_turn(200, 200, 1.0) == 10
    assert after_turn(200, 200, 0.04) == 50
    assert after_turn(1, 1, 0.5) == 1
    assert after_turn(1, 1, 0.05) == 2, "it may pay as much for two"
    assert after_turn(50, 0, 0.3) == 1, "all of it is to be tried again"


def test_a_pool_takes_as_many_rows_as_the_settings_say_at_first() -> None:
    assert GatewaySettings().pool.consumption_rows == DEFAULT_ROWS
