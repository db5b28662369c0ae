"""The tree that is grown: the one that trying all splits of all fields gives."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.operators.models.cart import between, grow
from tests.operators.cart_by_definition import Row, tried

NAMES = ("x0", "x1", "x2")
CLASSES = ("GOOD", "AVERAGE", "BAD")


def told(tree: Mapping[str, Any], row: Mapping[str, float]) -> Any:
    while "value" not in tree:
        tree = tree["at_most"] if row[tree["field"]] <= tree["threshold"] else tree["above"]
    return tree["value"]


def columns(rows: Sequence[Row]) -> dict[str, Sequence[float]]:
    return {NAMES[at]: array("d", [fields[at] for fields, _ in rows]) for at in range(len(rows[0][0]))}


ROWS = st.integers(1, 3).flatmap(
    lambda size: st.lists(
        st.tuples(st.tuples(*[st.integers(-4, 4).map(float)] * size), st.integers(0, 2)), min_size=1, max_size=30
    )
)


@given(ROWS, st.integers(1, 4), st.integers(1, 4))
def test_it_is_what_trying_all_splits_gives(rows: list[Row], depth: int, least: int) -> None:
    tree, right = grow(columns(rows), [label for _, label in rows], CLASSES, depth, least)
    assert tree == tried(rows, NAMES, CLASSES, depth, least)
    as_rows = [dict(zip(NAMES, fields, strict=False)) for fields, _ in rows]
    assert right == sum(told(tree, row) == CLASSES[label] for row, (_, label) in zip(as_rows, rows, strict=True))


def test_of_equal_splits_it_is_the_first_fields_and_of_these_the_lowest() -> None:
    x, labels = array("d", [1, 2, 3]), [0, 1, 0]
    tree, _ = grow({"b": x, "a": x}, labels, CLASSES, 1, 1)
    assert tree == {"value": "GOOD"}, "either split would have GOOD on both sides"
    tree, _ = grow({"b": x, "a": x}, labels, CLASSES, 2, 1)
    assert (tree["field"], tree["threshold"]) == ("b", 1.5)


def test_rows_of_one_class_and_rows_that_no_field_tells_apart_are_a_leaf() -> None:
    assert grow({"x": array("d", range(9))}, [1] * 9, CLASSES, 3, 1) == ({"value": "AVERAGE"}, 9)
    assert grow({"x": array("d", [7.0] * 9)}, [2, 0, 2] * 3, CLASSES, 3, 1) == ({"value": "BAD"}, 6)


NUMBERS = st.floats(-1e150, 1e150)


@given(NUMBERS, NUMBERS | st.none())
def test_a_threshold_parts_the_values_it_is_between(low: float, high: float | None) -> None:
    """None: the very next there is."""
    low, high = sorted((low, math.nextafter(low, math.inf) if high is None else high))
    if low < high:
        assert low <= between(low, high) < high


@pytest.mark.parametrize("low", [1.0, math.nextafter(1.0, 2.0)])
def test_neighbours_are_told_apart_though_there_is_nothing_between_them(low: float) -> None:
    """Half of their sum is rounded to the one or the other."""
    high = math.nextafter(low, 2.0)
    tree, right = grow({"x": array("d", [low, high])}, [0, 1], CLASSES, 1, 1)
    assert [told(tree, {"x": x}) for x in (low, high)] == ["GOOD", "AVERAGE"]
    assert right == 2
