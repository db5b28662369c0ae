"""Bloom filters: nothing is missed, false positives stay near the rate."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.sketches.bloom import Bloom, DoubleFilter
from edgert.sketches.hashing import hash_of


def hashes(first: int, last: int) -> list[int]:
    found = [hash_of(f"device-{n}") for n in range(first, last)]
    return [h for h in found if h is not None]


@pytest.mark.parametrize(("expected", "rate", "bits", "count"), [(1000, 0.01, 9592, 7), (10_000, 0.001, 143776, 10)])
def test_the_size_is_that_of_the_formulas(expected: int, rate: float, bits: int, count: int) -> None:
    made = Bloom(expected, rate)
    assert (made.bits, made.hashes) == (bits, count)
    assert made.bits >= -expected * math.log(rate) / math.log(2) ** 2


@pytest.mark.parametrize(("expected", "rate"), [(100, 0.1), (2_000, 0.01), (2_000, 0.001)])
def test_what_was_added_is_in_it_and_few_others_seem_to_be(expected: int, rate: float) -> None:
    made = Bloom(expected, rate)
    for h in hashes(0, expected):
        made.add(h)
    assert all(h in made for h in hashes(0, expected))
    asked = 50_000
    wrong = sum(h in made for h in hashes(10**6, 10**6 + asked)) / asked
    assert wrong <= 1.5 * rate + 4 * math.sqrt(rate / asked)
    assert wrong >= 0.3 * rate, "a filter that is much better than asked for is too large"


def is_new(seen: DoubleFilter, hashed: int) -> bool:
    """As `first_seen` asks and tells it."""
    if hashed in seen.current:
        return False
    known = hashed in seen.previous
    seen.insert(hashed)
    return not known


@given(st.lists(st.integers(0, 40), max_size=200))
def test_of_the_newest_different_values_none_is_forgotten(values: list[int]) -> None:
    seen, newest = DoubleFilter(10, 1e-6), list[int]()
    known = hashes(0, 41)
    for value in values:
        new = is_new(seen, known[value])
        assert not (new and value in newest[-10:])
        assert new or value in newest, "at this rate nothing is taken for another"
        newest = [n for n in newest if n != value] + [value]


def test_old_values_are_forgotten_and_counted() -> None:
    seen = DoubleFilter(10, 1e-4)
    assert all(is_new(seen, h) for h in hashes(0, 30))
    assert (seen.count, seen.previous_count, seen.forgotten) == (10, 10, 10)
    assert is_new(seen, hashes(0, 1)[0]), "the first is new again"
    assert not is_new(seen, hashes(29, 30)[0])


def test_the_rate_holds_for_both_filters_together() -> None:
    seen = DoubleFilter(1_000, 0.02)
    for h in hashes(0, 2_000):
        is_new(seen, h)
    others = hashes(10**6, 10**6 + 20_000)
    wrong = sum(h in seen.current or h in seen.previous for h in others) / len(others)
    assert 0.008 < wrong < 0.03


@pytest.mark.parametrize(("expected", "rate"), [(0, 0.01), (10, 0.0), (10, 1.0), (10**9, 1e-6)])
def test_what_cannot_be_is_refused(expected: int, rate: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        Bloom(expected, rate)


def test_what_comes_again_and_again_is_never_new() -> None:
    seen = DoubleFilter(10, 1e-6)
    often, *others = hashes(0, 200)
    is_new(seen, often)
    for at in range(0, len(others), 8):
        assert all(is_new(seen, h) for h in others[at : at + 8])
        assert not is_new(seen, often)
