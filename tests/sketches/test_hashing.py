"""Hashes of values: equal where values are, different else, and the same on every machine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.sketches.hashing import hash_of

VALUES = st.text(max_size=5) | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.booleans()


def same(a: Any, b: Any) -> bool:
    return a == b and (isinstance(a, str), isinstance(a, bool)) == (isinstance(b, str), isinstance(b, bool))


@given(VALUES, VALUES)
def test_values_have_one_hash_if_they_are_equal_and_of_one_kind(a: Any, b: Any) -> None:
    assert (hash_of(a) == hash_of(b)) == same(a, b)


@pytest.mark.parametrize(("a", "b"), [(1, 1.0), (0.0, -0.0), (2**60, float(2**60)), (("x", 1), ("x", 1.0))])
def test_equal_numbers_are_one_value(a: Any, b: Any) -> None:
    assert hash_of(a) == hash_of(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        ("1", 1),
        ("a", ("a",)),
        (("ab", "c"), ("a", "bc")),
        ((None, "a"), ("a", None)),
        (10**400, 10**400 + 1),
    ],
)
def test_other_values_are_others(a: Any, b: Any) -> None:
    assert hash_of(a) != hash_of(b)


def test_another_seed_gives_another_hash() -> None:
    for value in ("a", 1, 1.5, True, ("a", 1)):
        assert len({hash_of(value, seed) for seed in range(50)}) == 50


@pytest.mark.parametrize("value", [None, float("nan"), [1], {"a": 1}, b"x", (None, None)])
def test_what_is_no_value_has_none(value: Any) -> None:
    assert hash_of(value) is None


def test_half_a_surrogate_pair_is_a_value() -> None:
    assert hash_of("\ud800") != hash_of("\ud801")


def test_hashes_are_those_of_yesterday() -> None:
    """Sketches of a checkpoint hold them: to change them is to lose those."""
    assert [hash_of(v) for v in ("sensor-1", 21.5, True, ("a", None))] == [
        13476399151350113594, 2889901611781545900, 7258179584389904181, 6793891161480755327,
    ]  # fmt: skip
