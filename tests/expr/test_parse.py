"""Text to tree: precedence, messages with their column, and that no text at all can do harm."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgert.expr import fields, parse, to_text
from edgert.expr.tree import MAX_DEPTH
from tests.examples import examples


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a+b*c", "a + b * c"),
        ("(a+b)*c", "(a + b) * c"),
        ("a-b-c", "a - b - c"),
        ("a-(b-c)", "a - (b - c)"),
        ("a**b**c", "a ** b ** c"),
        ("(a**b)**c", "(a ** b) ** c"),
        ("-a**2", "-a ** 2"),
        ("(-a)**2", "(-a) ** 2"),
        ("-2**2", "-2 ** 2"),
        ("(-2)**2", "(-2) ** 2"),
        ("2**-1", "2 ** -1"),
        ("a*-b", "a * -b"),
        ("- - 2", "2"),
        ("not a and b or c", "not a and b or c"),
        ("not (a and (b or c))", "not (a and (b or c))"),
        ("a and (b and c)", "a and b and c"),
        ("not a == b", "not a == b"),
        ("(not a) == b", "(not a) == b"),
        ("-12.5<=t<=43.1", "-12.5 <= t <= 43.1"),
        ("a in ['x',\"y\"]", "a in ['x', 'y']"),
        ("a not in [1, -2.5,]", None),
        ("if(a>1, 'it''s', b)", None),
        ("if(a > 1, 'it\\'s \\\\ \\u00e9', `two words`)", "if(a > 1, 'it\\'s \\\\ é', `two words`)"),
        ("`and` + `+` + größe", "`and` + `+` + größe"),
        ("ENERGY.Power>3.5 and `a b.c`+Außen.t*a.in.not<2", "ENERGY.Power > 3.5 and `a b.c` + Außen.t * a.in.not < 2"),
        ("`a.b` + `a.1` + `a.` + `.a` + `a..b`", "a.b + `a.1` + `a.` + `.a` + `a..b`"),
        ("1e3 + .5 + 1.", "1000.0 + 0.5 + 1.0"),
        ("is_null(a) or coalesce(a,null)>9223372036854775808", "is_null(a) or coalesce(a, null) > 9223372036854775808"),
    ],
)  # fmt: skip
def test_an_expression_has_the_precedence_of_python(text: str, canonical: str | None) -> None:
    if canonical is None:
        with pytest.raises(ValueError, match="expected"):
            parse(text)
        return
    tree = parse(text)
    assert to_text(tree) == canonical
    assert parse(canonical) == tree


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a value, got the end at column 1"),
        ("a +", "expected a value, got the end at column 4"),
        ("a b", "expected an operator or the end, got 'b' at column 3"),
        ("(a", r"expected \), got the end at column 3"),
        ("a = 1", "expected ==, got '=' at column 3"),
        ("a && b", "expected and, got '&&' at column 3"),
        ("True", "expected true, got 'True' at column 1"),
        ("a @ b", "expected an expression, got '@' at column 3"),
        ("a == 'x", "expected a closing ', got the end at column 6"),
        ("a == '\\q'", r"expected one of .* in a string, got .* at column 6"),
        ("a in b", r"expected \[, got 'b' at column 6"),
        ("a in [b]", "expected a number or a string in the list, got 'b' at column 7"),
        ("sqroot(a)", r"expected a known function \(did you mean sqrt\?\), got sqroot at column 1"),
        ("1 + sqrt(a, b)", r"expected 1 argument\(s\) as in sqrt\(x\), got 2 at column 5"),
        ("'a' + 1", r"expected a number beside \+, got a string at column 1"),
        ("1 + 'a'", r"expected a number beside \+, got a string at column 5"),
        ("not 'x'", "expected a boolean after not, got a string at column 5"),
        ("a and 3", "expected a boolean beside and, got a number at column 7"),
        ("(a > 1) + 2", r"expected a number beside \+, got a boolean at column 2"),
        ("a == null", r"expected a value to compare with \(is_null\(x\) asks for null\), got null at column 6"),
        ("lower(a) > 3", "expected a string to compare with a string, got a number at column 12"),
        ("a < true", "expected numbers or strings beside <, got a boolean at column 5"),
        ("1 < x < 'a'", "expected a number to compare with a number, got a string at column 9"),
        ("'a' == x <= y == 2", "expected a string to compare with a string, got a number at column 18"),
        ("true == x < y", "expected numbers or strings beside <, got a boolean at column 13"),
        ("length(3)", "expected a string as argument 1 of length, got a number at column 8"),
        ("(a + 1) in ['x']", "expected a number in the list, got a string at column 13"),
        ("9223372036854775809", r"expected an integer of at most 2\*\*63, got a greater one .* at column 1"),
        ("1e309", "expected a number of at most 1e308, got inf at column 1"),
        ("x.5", "expected an operator or the end, got '.5' at column 2; a field of that name is .*: `x.5`$"),
        ("3.x", "expected an operator or the end, got 'x' at column 3$"),
        ("a .b", r"expected an expression, got '\.' at column 3$"),
        ("a.b(1)", "expected a known function.*, got a.b at column 1"),
        ("3 + switch:0.w > 2", "expected an expression, got ':' at column 11; .* in backticks: `switch:0.w`$"),
        ("D-1.T > 3", "expected an operator or the end, got 'T' at column 5; .* in backticks: `D-1.T`$"),
        ("u < 2 and Total Power > 3", "expected .* got 'Power' at column 17; .* in backticks: `Total Power`$"),
        ("not a and a-1 2 and c", "expected an operator or the end, got '2' at column 15$"),
        ("a[0]", r"expected an operator or the end, got '\[' at column 2"),
        ("lambda: 1", "expected"),
        ("``", "expected a field name of 1 to 255 characters, got 0 at column 1"),
        ("(" * 5000 + "a", "expected an expression of at most 4096 characters, got 5001"),
        ("(" * 4000 + "a", "expected at most 32 levels of nesting, got more at column 33"),
        ("-" * 4000 + "a", "expected at most 32 levels of nesting, got more"),
        ("not " * 1000 + "a", "expected at most 32 levels of nesting, got more"),
        ("a**" * 1000 + "a", "expected at most 32 levels of nesting, got more"),
        ("a+" * 1000 + "a", "expected at most 32 levels of nesting, got more at column 1"),
        ("abs(" * 1000, "expected at most 32 levels of nesting, got more"),
        ("9" * 4000, "expected a number of at most 1e308, got inf"),
    ],
)
def test_what_is_wrong_is_said_with_its_column(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        parse(text)


def test_a_condition_must_be_able_to_be_true() -> None:
    for text in ("flag", "if(a > 1, flag, false)", "coalesce(flag, true)"):
        assert parse(text, condition=True) == parse(text)
    with pytest.raises(ValueError, match="expected a boolean as condition, got a number at column 1"):
        parse("a + 1", condition=True)


def test_the_fields_of_an_expression_are_known() -> None:
    assert fields(parse("a + `b c` > if(is_null(d), e.f, 'f') and g in [1]")) == {"a", "b c", "d", "e.f", "g"}


def test_as_many_operands_as_the_depth_allows_are_no_problem() -> None:
    text = " + ".join(["a"] * MAX_DEPTH)
    assert to_text(parse(text)) == text
    many = " or ".join(f"a == {i}" for i in range(300))
    assert to_text(parse(many)) == many


PIECES = (
    *"()[],a1'\"`\\+-%<.é\x00\ud800😀 ",
    *("**", "==", "9e999", "not ", "in", "if(", "abs(", "coalesce(", "and", "or", "null", "true", "a.", "b-"),
)


@settings(max_examples=examples(150, 500), deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=60).map("".join)))
def test_any_text_is_an_expression_or_a_value_error(text: str) -> None:
    try:
        tree = parse(text)
    except ValueError as error:
        assert str(error).startswith("expected ")  # noqa: PT017 - it need not raise
    else:
        assert parse(to_text(tree)) == tree


@pytest.mark.parametrize("piece", PIECES)
def test_no_repetition_makes_parsing_slow(piece: str) -> None:
    text = (piece * 4096)[:4095] + "'"
    start = time.process_time()
    with pytest.raises(ValueError, match=r"^expected "):
        parse(text)
    assert time.process_time() - start < 10.0, "what goes back over the text takes minutes"
