"""Numbers as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.text.spelled_number import spelled_number


@pytest.mark.parametrize(
    ("text", "number"),
    [("21.5", 21.5), (" -3 ", -3.0), ("+.5", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("230.1 V", 230.1), ("12kV", 12.0)],
)
def test_a_number_with_or_without_one_of_the_units(text: str, number: float) -> None:
    assert spelled_number(text, ("V", "kV")) == number


@pytest.mark.parametrize(
    ("text", "number"), [("21,5", 21.5), ("-0,25 V", -0.25), ("1.234,5", 1234.5), ("1.234.567", 1234567.0), ("7", 7.0)]
)
def test_a_decimal_comma(text: str, number: float) -> None:
    assert spelled_number(text, ("V",), comma=True) == number


@pytest.mark.parametrize("text", ["", "V", "21,5", "٢١", "1_000", "nan", "inf", "1e999", "0x10", "1 2", "230.1 A", "."])
def test_other_text_is_no_number(text: str) -> None:
    assert spelled_number(text, ("V",)) is None


@pytest.mark.parametrize("text", ["", ",", "-", "1,2,3", "21.5", "1.23,4", "٢,١", "V", "e5"])
def test_other_text_is_no_number_with_a_comma(text: str) -> None:
    assert spelled_number(text, ("V",), comma=True) is None


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_each_number_is_read_back_with_either_sign(number: float) -> None:
    assert spelled_number(f"{number!r} V", ("V",)) == number
    assert spelled_number(repr(number).replace(".", ",") + "V", ("V",), comma=True) == number


@given(st.text(max_size=12), st.booleans())
def test_no_text_raises(text: str, comma: bool) -> None:
    spelled_number(text, ("V",), comma=comma)
