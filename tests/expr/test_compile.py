"""What a compiled chain does with rows that are not as they should be, and what its code can be made to do."""

from __future__ import annotations

import time
from typing import Any

import pytest

from edgert.expr import Bad, Filter, Map, Select, Step, call, compile_chain, compile_expression, field, fields, parse
from edgert.expr.build import Term
from edgert.expr.functions import FUNCTIONS, functions_markdown
from edgert.expr.tree import Field


def row(**values: Any) -> dict[str, Any]:
    return {"time": 1.0, "source": "s", **values}


def test_only_the_bad_rows_are_lost_and_each_says_why_and_in_which_step() -> None:
    chain = compile_chain([Filter(parse("t > 0")), Map({"f": parse("10 / (t - 1)"), "g": parse("sqrt(2 - t)")})])
    rows = [row(t=2), row(t="x"), row(t=1), row(t=3), row(), row(t=-1), row(t=1e-320), row(t=1.5)]
    out, bad = chain.apply(rows)
    assert [r["t"] for r in out] == [2, 1e-320, 1.5]
    assert [(b.index, b.reason, b.step) for b in bad] == [
        (1, "wrong type", 0),
        (2, "division by zero", 1),
        (3, "outside the domain", 1),
    ]
    assert isinstance(bad[0], Bad)
    assert bad[0].row is rows[1]
    assert "str" in bad[0].detail


@pytest.mark.parametrize("missing", [row(), row(t=None)])
@pytest.mark.parametrize(
    "text",
    ["t > 1", "t <= 1", "t == 1", "t != 1", "not t > 1", "not (t == 1)", "t in [1]", "t not in [1]", "1 < t < 3"],
)
def test_a_comparison_with_a_missing_field_neither_matches_nor_counts_as_bad(
    text: str, missing: dict[str, Any]
) -> None:
    assert compile_chain([Filter(parse(text))]).apply([missing]) == ([], [])


def test_or_still_matches_by_its_other_side_when_a_field_is_missing() -> None:
    chain = compile_chain([Filter(parse("t > 1 or h > 1"))])
    assert chain.apply([row(h=2), row(t=2), row(h=0), row()])[0] == [row(h=2), row(t=2)]


def test_the_result_of_a_missing_field_is_null_and_the_row_lives_on() -> None:
    assert compile_chain([Map({"f": parse("t * 2")})]).apply([row(), row(t=1)])[0] == [row(f=None), row(t=1, f=2)]


def test_all_settings_of_a_map_see_the_row_as_it_came() -> None:
    chain = compile_chain([Map({"a": parse("b"), "b": parse("a")}), Map({"c": parse("a - b")})])
    assert chain.apply([row(a=1, b=5)])[0] == [row(a=5, b=1, c=4)]


def test_select_keeps_time_and_source_and_does_not_invent_fields() -> None:
    chain = compile_chain([Select(("a", "b")), Map({"c": parse("coalesce(d, 7)")}), Select(("a", "c"))])
    assert chain.apply([row(a=1, b=2, d=3), row(d=3)])[0] == [row(a=1, c=7), row(c=7)]


def test_rows_that_nothing_changes_are_handed_on_and_none_is_ever_changed() -> None:
    rows = [row(t=5, u=1)]
    assert compile_chain([Filter(parse("t > 1"))]).apply(rows)[0][0] is rows[0]
    assert compile_chain([Map({"t": parse("t + 1")})]).apply(rows)[0] == [row(t=6, u=1)]
    assert rows == [row(t=5, u=1)]


def test_fields_at_which_nobody_looks_are_not_built() -> None:
    steps: list[Step] = [Filter(parse("t > 1")), Map({"f": parse("10 / u")}), Select(("t", "f", "x"))]
    rows = [row(t=5, u=1, x=1), row(t=5, u=0)]
    out, bad = compile_chain(steps, frozenset({"t"})).apply(rows)
    assert out[0] is rows[0]
    assert len(bad) == 1, "a row on which a map fails is bad, whoever looks at the result"
    assert compile_chain(steps, frozenset({"f"})).apply(rows[:1])[0] == [row(f=10.0)]
    assert compile_chain(steps).apply(rows[:1])[0] == [row(t=5, f=10.0, x=1)]


@pytest.mark.parametrize(
    ("text", "values", "reason"),
    [
        ("a * b", {"a": "x", "b": 10**9}, "wrong type"),
        ("a * b", {"a": 10**9, "b": "x"}, "wrong type"),
        ("a * 9223372036854775807", {"a": "x"}, "wrong type"),
        ("(a + 1) * b", {"a": 10**9, "b": "x"}, "wrong type"),
        ("(a + 1) * b", {"a": 10**9, "b": [1]}, "wrong type"),
        ("coalesce(a, 1) * if(true, b, 1)", {"a": "x", "b": 10**9}, "wrong type"),
        ("a % b", {"a": "%999999999d", "b": 1}, "wrong type"),
        ("a ** b", {"a": 10, "b": 10**9}, "not finite"),
        ("9 ** 9 ** 9 ** 9", {}, "not finite"),
        ("exp(a)", {"a": 1e6}, "not finite"),
        ("a * 1e300", {"a": 1e300}, "not finite"),
        ("if(true, a * 1e300, 1)", {"a": 1e300}, "not finite"),
        ("a * 1e300 - a * 1e300", {"a": 1e300}, "not finite"),
        ("round(5, a)", {"a": -(10**9)}, "outside the domain"),
        ("a + b", {"a": "x", "b": "y"}, "wrong type"),
        ("concat(a, a, a)", {"a": "x" * 30_000}, "outside the domain"),
        ("number(a)", {"a": "9" * 1000}, "outside the domain"),
        ("number(a)", {"a": "nan"}, "outside the domain"),
        ("log(a)", {"a": 0}, "outside the domain"),
        ("lower(a)", {"a": 3}, "wrong type"),
        ("not a", {"a": 1}, "wrong type"),
    ],
)
def test_no_value_from_outside_can_hang_it_or_fill_the_memory(text: str, values: dict[str, Any], reason: str) -> None:
    start = time.process_time()
    out, bad = compile_chain([Map({"f": parse(text)})]).apply([row(**values)])
    assert time.process_time() - start < 10.0
    assert out == []
    assert [b.reason for b in bad] == [reason]


def test_integers_beyond_64_bits_become_floats() -> None:
    chain = compile_chain([Map({"f": parse("floor(a)"), "g": parse("if(true, a * a, 0)")})])
    (made,), _ = chain.apply([row(a=10**15)])
    assert (made["f"], made["g"]) == (10**15, 1e30)
    assert isinstance(made["g"], float)


@pytest.mark.parametrize(
    "name", ["a'b", 'a"b', "a\\", "{r}", "log(", "__import__('os')", "r", "g", "v0", "out", "größe"]
)
def test_a_field_may_have_any_name_without_becoming_code(name: str) -> None:
    term = Term(Field(name)) + 1
    value = compile_expression(term.expression)
    assert value(row(**{name: 2})) == 3
    text = f"`{name}`"
    chain = compile_chain([Filter(parse(f"{text} > 1")), Map({name: parse(f"{text} + 1")}), Select((name,))])
    assert chain.apply([row(**{name: 2}), row(**{name: 1})])[0] == [row(**{name: 3})]


def test_generated_code_has_no_builtins_at_hand() -> None:
    with pytest.raises(ValueError, match="known function"):
        parse("open('x')")
    chain = compile_chain([Map({"f": parse("'__import__(\"os\")'")})])
    assert chain.apply([row()])[0] == [row(f='__import__("os")')]


def test_python_builds_the_same_tree_as_text() -> None:
    t, h = field("t"), field("two words")
    pairs = [
        ((t * 9 / 5 + 32).expression, "t * 9 / 5 + 32"),
        ((2 - t).expression, "2 - t"),
        ((-(t**2) % 3).expression, "-t ** 2 % 3"),
        (t.between(-12.5, 43.1).expression, "-12.5 <= t <= 43.1"),
        (((t > 1) & ~(h == "x") | t.is_null()).expression, "t > 1 and not `two words` == 'x' or is_null(t)"),
        (call("coalesce", t, h, None).expression, "coalesce(t, `two words`, null)"),
        (t.is_in([1, 2.5]).expression, "t in [1, 2.5]"),
    ]
    for tree, text in pairs:
        assert tree == parse(text), text
    assert (t != 3).to_document() == "t != 3"


def doubled(term: Term, times: int) -> Term:
    for _ in range(times):
        term = term + term
    return term


def test_python_terms_refuse_what_text_would_be_refused_for() -> None:
    with pytest.raises(ValueError, match="expected a number beside"):
        _ = field("a") + (field("b") > 1)
    with pytest.raises(TypeError, match=r"expected & . ~ between"):
        bool(field("a") > 1 and field("b"))
    with pytest.raises(TypeError, match="expected an expression, a number"):
        _ = field("a") + object()  # type: ignore[operator]
    term = field("a")
    with pytest.raises(ValueError, match=r"levels of nesting|parts"):
        doubled(term, 100)  # a tree of 2**100 nodes, were it not for the bound


def test_the_same_field_is_asked_for_once_where_that_is_certain() -> None:
    source = compile_chain([Filter(parse("t >= 1 and t <= 2")), Map({"f": parse("t + t")})]).source
    fast = source[: source.index("def one")]
    assert fast.count("r.get('t')") == 1


def test_every_function_is_documented_and_has_its_name_in_the_table() -> None:
    table = functions_markdown()
    for function in FUNCTIONS.values():
        assert len(function.doc) > 10, function.name
        assert f"`{function.signature}`" in table


def test_fields_of_terms() -> None:
    assert fields((field("a") + field("b")).expression) == {"a", "b"}


TAKES_NUMBERS = [
    "b + 1", "1 - b", "b * x", "x * b", "b / 2", "b % 2", "2 % b", "b ** 2", "-b", "x * b + b", "coalesce(b, 1) + 1",
    "b < 2", "2 >= b", "0 <= b <= 1", "x > b", "b > b", "0 < x <= b", "x == 0.5 and b > 0", "x == 0.5 < b",
    "abs(b)", "round(x, b)", "floor(b)", "sqrt(b)", "min(x, b)", "max(b, 2)",
]  # fmt: skip


@pytest.mark.parametrize("text", TAKES_NUMBERS)
@pytest.mark.parametrize("boolean", [True, False])
def test_a_boolean_is_no_number(text: str, boolean: bool) -> None:
    chain = compile_chain([Map({"f": parse(text)})])
    rows = [row(b=boolean, x=0.5), row(b=1, x=0.5), row(b=None, x=0.5)]
    out, bad = chain.apply(rows)
    assert [(b.index, b.reason) for b in bad] == [(0, "wrong type")]
    assert len(out) == 2
    assert out[1]["f"] in (None, 2), "null, and not an error, where the value is missing"


@pytest.mark.parametrize(
    ("text", "true", "one"),
    [
        ("b == 1", False, True),
        ("1.0 != b", True, False),
        ("b == true", True, False),
        ("false != b", True, True),
        ("b == x", False, True),
        ("b != x", True, False),
        ("b == c", True, False),
        ("b == (x > 0)", True, False),
        ("b == x + 0", False, True),
        ("x == b == x", False, True),
        ("b in [1, 2]", False, True),
        ("b not in [0, 1]", True, False),
        ("b in [true, 2]", True, False),
        ("b not in [false, 2]", True, True),
        ("b in [false, 1]", False, True),
        ("b in ['1', 7]", False, False),
    ],
)
def test_true_is_not_equal_to_1(text: str, true: bool, one: bool) -> None:
    value = compile_expression(parse(text))
    assert (value(row(b=True, c=True, x=1)), value(row(b=1, c=True, x=1))) == (true, one)
    assert value(row(c=True, x=1)) is None


def test_a_value_is_looked_at_once_for_being_a_number() -> None:
    steps: list[Step] = [Filter(parse("0 < x < 9 and x != 1")), Map({"f": parse("x * 9 / 5"), "g": parse("x % 7")})]
    chain = compile_chain([*steps, Map({"h": parse("f * g - x")})])
    fast = chain.source[: chain.source.index("def one")]
    assert fast.count("wrong(") == 1
    assert "(+" not in fast, "what was put in order with a number is no text either"
    assert chain.apply([row(x=2)])[0] == [row(x=2, f=3.6, g=2, h=3.6 * 2 - 2)]


def test_text_that_is_no_decimal_number_is_outside_the_domain() -> None:
    chain = compile_chain([Map({"n": parse("number(s)")})])
    texts = ["12", " -2.5e3 ", "1_000", "0x10", "inf", "nan", "", "9" * 65]
    out, bad = chain.apply([row(s=text) for text in texts])
    assert [r["n"] for r in out] == [12, -2500]
    assert {b.reason for b in bad} == {"outside the domain"}


def test_on_the_way_a_value_may_be_infinite() -> None:
    values = row(a=1e308, b=10)
    assert compile_expression(parse("a * b > 5"))(values) is True
    assert compile_expression(parse("a * b - a * b == 0"))(values) is False
    with pytest.raises(OverflowError):
        compile_expression(parse("a * b"))(values)


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("if(a > b, a, b + 1)", {"b": 1}, 2),
        ("if(a > 1 and b > 1, true, b > 5)", {"b": 9}, True),
        ("if(a > 1 and b > 1, true, b > 5)", {"a": 0}, None),
        ("(a > 1 or b > 1) and b > 2", {"b": 3}, True),
        ("(a > 1 or b > 1) and b > 2", {"a": 3}, None),
        ("(a > 1 and b > 2) or b < 0", {"b": -1}, True),
        ("(a > 1 and b > 2) or b < 0", {"a": 3}, None),
        ("not (a > 1 and b > 1)", {"b": 0}, True),
        ("not (a > 1 or b > 1)", {"b": 0}, None),
        ("(is_null(a) or a > 1) and b > 0", {"b": 1}, True),
        ("not is_null(a) and a > 1", {}, False),
        ("coalesce(a, b) + b", {"b": 2}, 4),
        ("coalesce(a + b, b, 1)", {}, 1),
    ],
)
def test_a_field_counts_as_there_only_where_that_was_seen(text: str, values: dict[str, Any], expected: Any) -> None:
    assert compile_expression(parse(text))(row(**values)) == expected
    if isinstance(expected, bool | None):
        out, bad = compile_chain([Filter(parse(text))]).apply([row(**values)])
        assert (len(out), bad) == (int(expected is True), [])
