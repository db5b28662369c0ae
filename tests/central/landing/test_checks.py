"""What a result must be before it may land."""

from __future__ import annotations

import math
from typing import Any

import pytest

from edgert.central.landing.checks import check_rows, unite
from edgert.core.errors import PayloadError
from edgert.core.results.result_schema import Schema, row_columns
from edgert.core.results.results import RowsBatch

SCHEMA = Schema(60.0, (("source", "string"), ("floor", "long")), (("n", "count"), ("t", "mean"), ("v", "variance")))
GOOD = [1e9, 1e9 + 60, "a", 3, 5, 5, 12.5, 5, 2.5, 0.5]


def batch(*rows: Any, columns: tuple[str, ...] = row_columns(SCHEMA)) -> RowsBatch:
    return RowsBatch(
        gateway="g", flow="f", epoch=1, stream=0, sequence=2, flow_version=1, columns=columns, rows=list(rows)
    )


def test_good_row_lands_with_its_bounds_in_microseconds() -> None:
    checked = check_rows(batch(GOOD), SCHEMA)
    assert checked.refused == []
    assert checked.columns["window_start"] == [10**15]
    assert checked.columns["v__m2"] == [0.5]


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (0, math.nan, "window_start: expected a time"),
        (0, -1.0, "window_start: expected a time"),
        (1, 1e300, "window_end: expected a time"),
        (1, 1e9, "window_end: expected more than window_start"),
        (2, 5, "source: expected string or null, got 5"),
        (3, 1.5, "floor: expected long or null"),
        (3, True, "floor: expected long or null"),
        (3, 2**63, "floor: expected long or null"),
        (4, -1, "n: expected a count from 0 to 1099511627776, got -1"),
        (4, None, "n: expected a count"),
        (6, math.inf, "t__sum: expected a finite number or null, got inf"),
        (6, "12", "t__sum: expected a finite number"),
        (9, -0.5, "v__m2: expected a sum of squares"),
    ],
)
def test_wrong_value_is_refused_alone_and_says_why(at: int, value: Any, expected: str) -> None:
    wrong = [*GOOD]
    wrong[at] = value
    checked = check_rows(batch(GOOD, wrong, GOOD), SCHEMA)
    assert checked.count == 2
    ((row, reason),) = checked.refused
    assert row is wrong
    assert reason.startswith(expected)


@pytest.mark.parametrize("row", [GOOD[:-1], [*GOOD, 1], "row", None, {"n": 1}])
def test_row_of_another_shape_is_refused(row: Any) -> None:
    checked = check_rows(batch(row, GOOD), SCHEMA)
    assert checked.count == 1
    assert "expected 10 values" in checked.refused[0][1]


def test_null_keys_and_null_partials_are_good() -> None:
    assert check_rows(batch([1e9, 1e9 + 60, None, None, 0, 0, None, 0, None, None]), SCHEMA).refused == []


def test_batch_with_other_columns_is_refused_whole() -> None:
    with pytest.raises(PayloadError, match="columns: expected window_start"):
        check_rows(batch(GOOD, columns=("a", "b")), SCHEMA)


def test_new_aggregates_come_after_the_table_s() -> None:
    wider = Schema(60.0, (("floor", "long"), ("source", "string")), (("hi", "max"), ("n", "count")))
    assert unite(SCHEMA, wider).aggregates == (("n", "count"), ("t", "mean"), ("v", "variance"), ("hi", "max"))
    assert unite(SCHEMA, wider).keys == SCHEMA.keys


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (Schema(30.0, SCHEMA.keys, SCHEMA.aggregates), "window: expected 60 s"),
        (Schema(60.0, SCHEMA.keys[:1], SCHEMA.aggregates), "keys: expected floor"),
        (Schema(60.0, (("source", "string"), ("floor", "double")), ()), "keys: expected floor"),
        (Schema(60.0, SCHEMA.keys, (("n", "sum"),)), "aggregate n: expected count"),
        (Schema(60.0, SCHEMA.keys, (("t__sum", "sum"),)), "different names"),
    ],
)
def test_schema_that_does_not_fit_the_table_says_why(new: Schema, expected: str) -> None:
    with pytest.raises(PayloadError, match=expected):
        unite(SCHEMA, new)
