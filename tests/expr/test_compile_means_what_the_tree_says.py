"""The compiled code against a straightforward interpreter of the tree, on random expressions and random rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgert.expr import Filter, Map, Select, compile_chain, compile_expression, parse, to_text
from edgert.expr.functions import FUNCTIONS, Type
from edgert.expr.tree import (
    MAX_DEPTH,
    Arithmetic,
    Call,
    Comparison,
    Expression,
    Field,
    InList,
    Literal,
    LogicalOperation,
    Negation,
    Not,
    join,
    negate,
)
from edgert.expr.types import type_of
from tests.examples import examples

NAMES = ("a", "b", "flag", "text", "and", "two words", "log(")


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
    "**": math.pow,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

# The interpreter ----------------------------------------------------------------------------------------------------


def truth(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise TypeError


def number(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise TypeError


def compare(operator: str, a: Any, b: Any) -> Any:
    if operator in ("==", "!="):
        return (isinstance(a, bool) is isinstance(b, bool) and a == b) is (operator == "==")
    if isinstance(a, bool) or isinstance(b, bool):
        raise TypeError
    return COMPARE[operator](a, b)


class Null(Exception):
    """A strict part of the expression is null, so all of it is."""


def evaluate(e: Expression, row: dict[str, Any]) -> Any:
    """Three-valued evaluation. A strict node first asks for every value, then computes: null wins over an error."""
    match e:
        case Not():
            value = truth(evaluate(e.operand, row))
            return None if value is None else not value
        case LogicalOperation():
            seen = []
            for operand in e.operands:
                seen.append(truth(evaluate(operand, row)))
                if seen[-1] is (e.operator == "or"):
                    return seen[-1]
            return None if None in seen else e.operator == "and"
        case Call(function="is_null"):
            return evaluate(e.arguments[0], row) is None
        case Call(function="coalesce"):
            return next((v for a in e.arguments if (v := evaluate(a, row)) is not None), None)
        case Call(function="if"):
            return evaluate(e.arguments[1 if truth(evaluate(e.arguments[0], row)) is True else 2], row)
    values: dict[int, Any] = {}
    try:
        gather(e, row, values)
    except Null:
        return None
    return compute(e, values)


def strict(e: Expression) -> bool:
    return isinstance(e, Negation | Arithmetic | Comparison | InList) or (
        isinstance(e, Call) and not FUNCTIONS[e.function].special
    )


def gather(e: Expression, row: dict[str, Any], values: dict[int, Any]) -> None:
    if strict(e):
        for child in e.children():
            gather(child, row, values)
        return
    value = e.value if isinstance(e, Literal) else row.get(e.name) if isinstance(e, Field) else evaluate(e, row)
    if value is None:
        raise Null
    values[id(e)] = value


def compute(e: Expression, values: dict[int, Any]) -> Any:
    if not strict(e):
        return values[id(e)]
    parts = [compute(c, values) for c in e.children()]
    match e:
        case Negation():
            return -number(parts[0])
        case Arithmetic():
            a, b = map(number, parts)
            return ARITHMETIC[e.operator](a, b)
        case Comparison():
            return all(compare(op, a, b) for op, a, b in zip(e.operators, parts, parts[1:], strict=False))
        case InList():
            return any(compare("==", parts[0], option) for option in parts[1:]) is not e.negated
        case Call():
            known = FUNCTIONS[e.function]
            types = (*known.parameters, *known.parameters[-1:] * len(parts))
            return known.call(*(number(p) if t is Type.NUMBER else p for p, t in zip(parts, types, strict=False)))
    raise AssertionError(e)


def bounded(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise OverflowError
    return float(value) if isinstance(value, int) and abs(value) >= 9.2e18 else value


# Random expressions and rows ----------------------------------------------------------------------------------------

numbers = st.one_of(
    st.integers(-5, 5), st.floats(-4, 4), st.sampled_from([0, 0.0, -2.5, 1e308, 2**62]), st.floats(-1e6, 1e6)
)
texts = st.text(st.sampled_from("ab'\"\\\n é😀%(g"), max_size=4)
constants = st.one_of(numbers, texts, st.booleans()).map(Literal)
leaves = st.one_of(constants, st.sampled_from(NAMES).map(Field), st.sampled_from(NAMES).map(Field))


def grow(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    names = st.sampled_from(sorted(FUNCTIONS))
    comparison = st.tuples(
        st.lists(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), min_size=1, max_size=2),
        st.lists(inner, min_size=3, max_size=3),
    )
    return st.one_of(
        inner.map(negate),
        inner.map(Not),
        st.tuples(st.sampled_from(["+", "-", "*", "/", "%", "**"]), inner, inner).map(lambda t: Arithmetic(*t)),
        comparison.map(lambda t: Comparison(tuple(t[0]), tuple(t[1][: len(t[0]) + 1]))),
        st.tuples(inner, st.lists(constants, max_size=3), st.booleans()).map(lambda t: InList(t[0], tuple(t[1]), t[2])),
        st.tuples(st.sampled_from(["and", "or"]), several).map(lambda t: join(*t)),
        st.tuples(names, st.lists(inner, min_size=1, max_size=3)).map(lambda t: Call(t[0], tuple(t[1]))),
    )


def typed(expression: Expression) -> bool:
    try:
        type_of(expression)
    except ValueError:
        return False
    return True


expressions = st.recursive(leaves, grow, max_leaves=12).filter(typed)
conditions = expressions.filter(lambda e: type_of(e) in (Type.BOOLEAN, Type.ANY))
values = st.one_of(st.none(), numbers, texts, st.booleans(), st.just([1]))
rows = st.fixed_dictionaries({"time": st.just(1.0), "source": st.just("s")}, optional=dict.fromkeys(NAMES, values))
ERRORS = (TypeError, ValueError, ArithmeticError)
quick = settings(max_examples=examples(100, 300), deadline=None, suppress_health_check=list(HealthCheck))


def outcome(function: Any, *arguments: Any) -> Any:
    try:
        value = function(*arguments)
    except ERRORS:
        return "bad row"
    return type(value), value


@quick
@given(expressions, rows)
def test_the_value_of_an_expression_is_what_the_interpreter_computes(e: Expression, row: dict[str, Any]) -> None:
    assert outcome(compile_expression(e), row) == outcome(lambda: bounded(evaluate(e, row))), to_text(e)


@quick
@given(conditions, st.lists(rows, max_size=4))
def test_a_filter_keeps_exactly_the_rows_for_which_the_condition_is_true(
    e: Expression, given_rows: list[dict[str, Any]]
) -> None:
    kept, bad = compile_chain([Filter(e)]).apply(given_rows)
    lost = {b.index for b in bad}
    for index, row in enumerate(given_rows):
        expected = outcome(lambda r=row: truth(evaluate(e, r)))
        there = any(k is row for k in kept)
        if expected == "bad row":  # `null and 1 / 0`: a filter need not look further than the null
            assert not there, to_text(e)
        else:
            assert index not in lost, (to_text(e), bad)
            assert there is (expected == (bool, True)), to_text(e)


def by_the_book(steps: list[Filter | Map | Select], row: dict[str, Any]) -> dict[str, Any] | None:
    for step in steps:
        match step:
            case Filter():
                if truth(evaluate(step.where, row)) is not True:
                    return None
            case Map():
                row = row | {name: bounded(evaluate(e, row)) for name, e in step.set.items()}
            case Select():
                row = {k: v for k, v in row.items() if k in (*step.fields, "time", "source")}
    return row


steps = st.one_of(
    conditions.map(Filter),
    st.dictionaries(st.sampled_from(NAMES), expressions, min_size=1, max_size=2).map(Map),
    st.sets(st.sampled_from(NAMES), min_size=1, max_size=4).map(lambda s: Select(tuple(s))),
)


@quick
@given(st.lists(steps, max_size=4), st.lists(rows, max_size=3), st.none() | st.sets(st.sampled_from(NAMES)))
def test_a_fused_chain_does_what_its_steps_do_one_after_the_other(
    chain: list[Any], given_rows: list[dict[str, Any]], live: set[str] | None
) -> None:
    before = [dict(r) for r in given_rows]
    out, bad = compile_chain(chain, None if live is None else frozenset(live)).apply(given_rows)
    assert given_rows == before, "a row that was given was changed"
    lost = {b.index for b in bad}
    expected, unsure = [], False
    for index, row in enumerate(given_rows):
        try:
            result = by_the_book(chain, row)
        except ERRORS:
            unsure = unsure or index not in lost  # a filter may have let it go before the error
            continue
        assert index not in lost, bad
        expected += [] if result is None else [result]
    if unsure and len(out) != len(expected):
        raise AssertionError((out, expected))
    if live is not None:
        look = {*live, "time", "source"}
        out = [{k: v for k, v in r.items() if k in look} for r in out]
        expected = [{k: v for k, v in r.items() if k in look} for r in expected]
    assert list(map(repr, map(_sorted, out))) == list(map(repr, map(_sorted, expected)))


def _sorted(row: dict[str, Any]) -> list[Any]:
    return sorted(row.items())


@quick
@given(expressions)
def test_text_and_tree_go_back_and_forth(e: Expression) -> None:
    assert repr(parse(to_text(e))) == repr(e)


def test_the_deepest_of_every_shape_still_compiles() -> None:
    """CPython allows 200 nested parentheses and a bounded parser stack: MAX_DEPTH must stay below both."""
    shapes: list[Callable[[Expression], Expression]] = [
        lambda e: Not(Comparison(("==",), (e, Field("b")))),
        lambda e: Call("coalesce", (Arithmetic("*", e, Field("b")), Literal(1))),
        lambda e: Call("if", (Comparison((">",), (e, Literal(1))), Field("a"), Field("b"))),
        lambda e: Call("if", (Field("a"), Field("b"), e)),
        lambda e: Call("if", (Field("a"), e, Field("b"))),
        lambda e: join("and", (Field("a"), join("or", (Field("b"), e)))),
        lambda e: Comparison(("==",), (join("and", (Field("a"), e)), Field("b"))),
        lambda e: InList(Call("coalesce", (e, Field("a"))), (Literal(1),)),
        lambda e: Arithmetic("*", Call("coalesce", (Field("a"), e)), Field("b")),
        lambda e: Call("concat", (Call("coalesce", (e, Field("a"))), Field("b"))),
        lambda e: Call("is_null", (Call("if", (e, Field("a"), Field("b"))),)),
    ]
    for shape in shapes:
        e: Expression = Field("a")
        while True:
            try:
                e = shape(e)
            except ValueError as error:
                assert str(MAX_DEPTH) in str(error)  # noqa: PT017
                break
        compile_expression(e)
        if type_of(e) in (Type.BOOLEAN, Type.ANY):
            compile_chain([Filter(e), Map({"x": e}), Filter(e)])
