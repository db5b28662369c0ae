"""Aggregates: initialise / add / merge / result."""

from __future__ import annotations

import copy
import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import GREATEST
from edgert.core.results.result_schema import Schema, partial_columns
from edgert.operators.state.aggregate_calls import FUNCTIONS, SKETCHES, parse_aggregate
from edgert.operators.state.aggregates import Accumulator, Aggregates, compile_function, plain_sum

EXACT = [f for f in FUNCTIONS if f not in SKETCHES]
"""Those with sketches: `test_sketch_aggregates.py`."""
ALL = (*(parse_aggregate(f"x_{f}", f"{f}(v)") for f in EXACT), parse_aggregate("rows", "count()"))
HUGE = 10**400
"""An int that no float can hold."""
VALUES = st.lists(st.floats(-1e6, 1e6) | st.integers(-1000, 1000), max_size=20)


def adder(made: Aggregates) -> Any:
    names = {column: f"v{i}" for i, column in enumerate(made.fields)}
    values = [f"{v} = row.get({column!r})" for column, v in names.items()]
    lines = "\n    ".join(["def add(acc, row):", "bad = 0", *values, *made.add_source(names), "return bad"])
    return compile_function("add", lines, **made.constants)


MADE = Aggregates(ALL)
ADD = adder(MADE)


def filled(values: list[float]) -> Accumulator:
    acc = MADE.initial()
    for value in values:
        assert ADD(acc, {"v": value}) == 0
    return acc


def merged(*parts: Accumulator) -> Accumulator:
    into = MADE.initial()
    for part in parts:
        MADE.merge(into, copy.copy(part))
    return into


def near(one: Accumulator, other: Accumulator) -> None:
    for (name, a), b in zip(MADE.result(one).items(), MADE.result(other).values(), strict=True):
        assert a == b if a is None or b is None else a == pytest.approx(b, rel=1e-9, abs=1e-3), name


@given(VALUES, VALUES)
def test_merge_is_commutative(a: list[float], b: list[float]) -> None:
    near(merged(filled(a), filled(b)), merged(filled(b), filled(a)))


@given(VALUES, VALUES, VALUES)
def test_merge_is_associative(a: list[float], b: list[float], c: list[float]) -> None:
    left = merged(merged(filled(a), filled(b)), filled(c))
    near(left, merged(filled(a), merged(filled(b), filled(c))))
    near(left, filled(a + b + c))


@given(VALUES, VALUES)
def test_adding_goes_on_after_a_merge(a: list[float], b: list[float]) -> None:
    acc = merged(filled(a), filled(a[::-1]))
    for value in b:
        ADD(acc, {"v": value})
    near(acc, filled(a + a[::-1] + b))


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30), st.sampled_from([0.0, 1e9, -1e12]))
def test_variance_is_that_of_the_statistics_module_even_far_from_zero(values: list[float], offset: float) -> None:
    moved = [v + offset for v in values]
    wanted = statistics.variance(moved)
    assert MADE.result(filled(moved))["x_variance"] == pytest.approx(wanted, rel=1e-6, abs=1e-6 + abs(offset) * 1e-12)


def test_partial_columns_are_those_of_the_wire_format_in_order_and_type() -> None:
    schema = Schema(60.0, (), tuple((a.name, a.function) for a in ALL))
    partial = MADE.partial(filled([1.5, 2.5]))
    assert tuple(partial) == tuple(name for name, _ in partial_columns(schema))
    for name, kind in partial_columns(schema):
        assert type(partial[name]) is {"long": int, "double": float}[kind], name


def test_nothing_added_gives_nulls_where_there_is_no_answer() -> None:
    empty = MADE.result(MADE.initial())
    assert empty == {
        "x_count": 0, "x_sum": 0.0, "x_mean": None, "x_variance": None, "x_min": None, "x_max": None, "rows": 0,
    }  # fmt: skip
    assert MADE.result(filled([3.0]))["x_variance"] is None


@pytest.mark.parametrize(
    "value", ["7", True, math.nan, math.inf, -math.inf, HUGE, -HUGE, [1], {}], ids="{!r:.6}".format
)
def test_a_bad_value_is_counted_and_costs_itself_only(value: object) -> None:
    acc = filled([1.0])
    assert ADD(acc, {"v": value}) == 1
    assert ADD(acc, {"v": 3.0}) == 0
    result = MADE.result(acc)
    assert (result["x_count"], result["x_mean"], result["rows"]) == (2, 2.0, 3)


@pytest.mark.parametrize("other", [1.5, 2, HUGE, -HUGE, math.nan, "x", None], ids="{!r:.6}".format)
@pytest.mark.parametrize("turned", [False, True])
def test_an_integer_that_no_float_can_hold_is_bad_and_the_other_field_of_its_row_is_not(
    other: object, turned: bool
) -> None:
    made = Aggregates([parse_aggregate(f"{n}_{f}", f"{f}({n})") for n in ("a", "b") for f in ("sum", "count", "max")])
    one, two = ("b", "a") if turned else ("a", "b")
    acc = made.initial()
    bad = adder(made)(acc, {one: HUGE, two: other})
    result = made.result(acc)
    good = is_number(other)
    assert bad == 1 + (not good and other is not None)
    assert [result[f"{one}_{f}"] for f in ("sum", "count", "max")] == [0.0, 0, None]
    assert [result[f"{two}_{f}"] for f in ("sum", "count", "max")] == ([other, 1, other] if good else [0.0, 0, None])


def test_an_integer_of_any_size_is_a_value_where_values_are_only_counted() -> None:
    made = Aggregates([parse_aggregate("named", "count(text)")])
    acc = made.initial()
    assert (adder(made)(acc, {"text": HUGE}), made.result(acc)) == (0, {"named": 1})


def test_a_missing_value_is_not_bad() -> None:
    acc = MADE.initial()
    assert ADD(acc, {}) == ADD(acc, {"v": None}) == 0
    assert (MADE.result(acc)["x_count"], MADE.result(acc)["rows"]) == (0, 2)


def test_a_field_that_is_only_counted_may_hold_anything() -> None:
    made = Aggregates([parse_aggregate("named", "count(text)")])
    acc, add = made.initial(), adder(made)
    assert [add(acc, {"text": t}) for t in ("x", True, 1, None)] == [0, 0, 0, 0]
    assert made.result(acc) == {"named": 3}


def test_aggregates_that_need_the_same_share_it() -> None:
    made = Aggregates([parse_aggregate(f, f"{f}(v)") for f in ("mean", "sum", "count")])
    assert len(made.initial()) == 4, "the caller's own, sum, count, and the rows in which all fields had a number"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("median(v)", "expected one of count, sum"),
        ("sum()", "expected sum(field)"),
        ("sum(v", "expected function(field)"),
        ("sum(v) ; import os", "expected function(field)"),
        ("sum('v')", "expected sum(v), got"),
        ("sum(`v)", "expected sum(v), got"),
        ("sum('')", "expected sum(field), got"),
        ("count(``)", "expected a field name of 1 to 255 characters, got 0"),
        ("sum(`a`b`)", "expected a field name of printable characters without backticks"),
        ("mean(a*b)", "expected the name of a field, in backticks as there is '*' in it: mean(`a*b`), got 'mean(a*b)'"),
        ("mean(2nd)", "expected the name of a field, in backticks as there is '2' in it: mean(`2nd`)"),
        ("mean(Straße 1)", "expected the name of a field, in backticks as there is ' ' in it: mean(`Straße 1`)"),
    ],
)
def test_text_that_is_no_aggregate_is_refused_and_told_what_is(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=r"^expected") as error:
        parse_aggregate("x", text)
    assert str(error.value).startswith(told)


@pytest.mark.parametrize("name", ["v", "ENERGY.Power", "a.0.b", "a.", "Außentemperatur", "größe_2.t"])
def test_a_name_of_letters_digits_and_dots_stands_bare_or_in_backticks(name: str) -> None:
    assert parse_aggregate("x", f" sum( {name} )").field == parse_aggregate("x", f"sum(`{name}` )").field == name


def test_a_field_name_can_only_be_a_name_in_generated_source() -> None:
    with pytest.raises(ValueError, match="expected the name of a field"):
        parse_aggregate("x", 'sum(v"] or 1)')
    made = Aggregates([parse_aggregate("x", "count(`v\"] or 1}'`)"), parse_aggregate("y", "sum(`v'`)")])
    acc = made.initial()
    assert adder(made)(acc, {"v\"] or 1}'": "text", "v'": 2}) == 0
    assert made.result(acc) == {"x": 1, "y": 2}


FIELDS = ("a", "b", "c")
EXTREME = st.sampled_from([1.7e308, 1e150, -1e150, 1.1e150, HUGE])
ANYTHING = st.floats() | st.integers(-5, 5) | st.booleans() | st.none() | st.text(max_size=2) | EXTREME
ROWS = st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, ANYTHING)), max_size=12)


def is_number(value: Any) -> bool:
    return type(value) in (float, int) and abs(value) <= GREATEST


@given(ROWS)
def test_a_field_counts_its_own_numbers_whatever_the_other_fields_of_the_row_hold(rows: list[dict[str, Any]]) -> None:
    made = Aggregates([parse_aggregate(f"{n}_{f}", f"{f}({n})") for n in FIELDS for f in ("count", "min", "mean")])
    add, acc = adder(made), made.initial()
    bad = sum(add(acc, row) for row in rows)
    result = made.result(acc)
    assert bad == sum(v is not None and not is_number(v) for row in rows for v in row.values())
    for name in FIELDS:
        numbers = [row[name] for row in rows if is_number(row.get(name))]
        assert result[f"{name}_count"] == len(numbers)
        assert result[f"{name}_min"] == (min(numbers) if numbers else None)
        if numbers:
            assert result[f"{name}_mean"] == pytest.approx(plain_sum(numbers) / len(numbers), rel=1e-9, abs=1e-9)


def test_an_accumulator_stored_before_full_rows_were_counted_together_goes_on() -> None:
    made = Aggregates([parse_aggregate(f"{n}_{f}", f"{f}({n})") for n in ("a", "b") for f in ("count", "sum")])
    acc = made.restored([3, 30.0, 2, 8.0])
    adder(made)(acc, {"a": 1.0, "b": 2.0})
    adder(made)(acc, {"b": 2.0})
    assert made.result(acc) == {"a_count": 4, "a_sum": 31.0, "b_count": 4, "b_sum": 12.0}


def test_a_value_beyond_the_bound_costs_itself_and_not_the_variance_of_the_window() -> None:
    made = Aggregates(ALL)
    add, acc = adder(made), made.initial()
    bad = sum(add(acc, {"v": v}) for v in (1.0, 2.0, 1e160, 3.0, -1.7e308, 10**300))
    assert (bad, made.result(acc)["x_variance"], made.result(acc)["x_sum"]) == (3, 1.0, 6.0)
