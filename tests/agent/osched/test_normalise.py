"""Normalisers: the paper's formula by hand, and what holds for all priorities."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.osched.normalise import PrioritySmoothing, log_min_max, min_max, nice_values, shifted

PRIORITIES = st.lists(st.floats(-1e9, 1e9, allow_nan=False), max_size=40)


def test_weights_of_nice_values_are_to_each_other_as_the_priorities() -> None:
    """w(n) = 1024 / 1.25^n: 10 times the priority is 10.3 steps, so nice 0 and 10 (Lachesis §5.3)."""
    assert nice_values([100.0, 10.0], best=0) == [0, 10]
    assert nice_values([1.25**3, 1.25, 1.0], best=-20) == [-20, -18, -17]


def test_the_greatest_priority_gets_the_best_nice_value() -> None:
    assert nice_values([7.0], best=-5) == [-5]


def test_priorities_too_far_apart_are_pressed_into_the_range() -> None:
    assert nice_values([1e6, 1e3, 1.0], best=0, worst=10) == [0, 5, 10]


def test_priorities_that_are_not_positive_are_shifted_first() -> None:
    assert shifted([0.0, 9.0]) == [1.0, 10.0]
    assert nice_values([0.0, 9.0], best=0) == [10, 0]


def test_a_range_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="best first, got 5 to 1"):
        nice_values([1.0], best=5, worst=1)


@given(PRIORITIES, st.integers(-20, 19), st.integers(0, 39))
def test_nice_values_keep_order_and_range(priorities: list[float], best: int, room: int) -> None:
    worst = min(19, best + room)
    values = nice_values(priorities, best, worst)
    assert len(values) == len(priorities)
    assert all(best <= value <= worst for value in values)
    assert not priorities or min(values) == best
    pairs = sorted(zip(priorities, values, strict=True))
    for (p, n), (q, m) in pairwise(pairs):
        assert n >= m, "more priority, no worse nice value"
        assert p != q or n == m


@given(PRIORITIES)
def test_min_max_keeps_order_and_range(priorities: list[float]) -> None:
    for scale in (min_max, log_min_max):
        values = scale(priorities, 2.0, 5.0)
        assert all(2.0 <= value <= 5.0 for value in values)
        pairs = sorted(zip(priorities, values, strict=True))
        assert all(a[1] <= b[1] for a, b in pairwise(pairs))


def test_min_max_of_equal_priorities_is_the_high_end() -> None:
    assert min_max([3.0, 3.0], 0.0, 1.0) == [1.0, 1.0]
    assert log_min_max([1.0, 10.0, 100.0], 0.0, 1.0) == pytest.approx([0.0, 0.5, 1.0])


def test_smoothing_moves_a_part_of_the_way_and_forgets_what_is_gone() -> None:
    smoothing = PrioritySmoothing(0.5)
    assert smoothing.smooth({"a": 4.0}) == {"a": 4.0}
    assert smoothing.smooth({"a": 8.0, "b": 1.0}) == {"a": 6.0, "b": 1.0}
    assert smoothing.smooth({"b": 1.0}) == {"b": 1.0}
    assert smoothing.smooth({"a": 8.0}) == {"a": 8.0}
    with pytest.raises(ValueError, match="a part above 0"):
        PrioritySmoothing(0.0)
