"""Numbers that devices write as text, and values that no flow can use."""

from __future__ import annotations

from typing import Any

import pytest

from edgert.codecs.base import Codec, Decoded
from edgert.codecs.json import JsonCodec
from edgert.codecs.value import ValueCodec
from edgert.core.errors import PayloadError
from edgert.expr.functions import FUNCTIONS


def decoded(codec: Codec, payload: str, times: int = 1) -> Decoded:
    return codec.decode_batch_untrusted(["x/a"] * times, [payload.encode()] * times, lambda _: {"source": "a"}, 1.0)


def test_units_and_a_decimal_comma_in_json() -> None:
    codec = JsonCodec(frozenset({"u", "t", "label"}), units=["V", "W"], decimal="comma")
    found = decoded(codec, '{"u": "230,1 V", "t": "21,5", "label": "hall"}', 3)
    assert [(row["u"], row["t"], row["label"]) for row in found.rows] == [(230.1, 21.5, "hall")] * 3


def test_text_stays_text_without_the_options() -> None:
    assert decoded(JsonCodec(frozenset({"u"})), '{"u": "230.1 V"}').rows[0]["u"] == "230.1 V"


@pytest.mark.parametrize("value_type", ["auto", "number"])
def test_units_and_a_decimal_comma_in_a_bare_value(value_type: str) -> None:
    codec = ValueCodec(value_type=value_type, units=["°C"], decimal="comma")
    assert decoded(codec, "-3,25 °C").rows[0]["value"] == -3.25


def test_digits_of_another_script_are_no_number_anywhere() -> None:
    with pytest.raises(PayloadError):
        ValueCodec(value_type="number").decode_untrusted("٢١".encode(), {}, 1.0, [], "x")
    with pytest.raises(ValueError, match="not a finite decimal number"):
        FUNCTIONS["number"].call("٢١")
    assert not decoded(JsonCodec(), '{"time": "١٧٠٠٠٠٠٠٠٠"}').rows


@pytest.mark.parametrize(
    ("arguments", "number"),
    [(("21.5",), 21.5), (("230.1 V", "V"), 230.1), (("21,5", "", ","), 21.5), ((3, "V"), 3.0), ((True,), 1)],
)
def test_the_function_number(arguments: tuple[Any, ...], number: float) -> None:
    assert FUNCTIONS["number"].call(*arguments) == number


@pytest.mark.parametrize("arguments", [("230.1 V",), ("21,5",), ("21.5", "", ";"), ("230.1 A", "V")])
def test_the_function_number_refuses(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"not a finite|decimal sign"):
        FUNCTIONS["number"].call(*arguments)


def test_an_array_that_no_operator_names_is_no_bad_value() -> None:
    payload = '{"t": 1, "color": {"xy": [1, 2]}, "options": ["a"]}'
    for fields in (None, frozenset({"t"})):
        found = decoded(JsonCodec(fields), payload, 3)
        assert found.bad_values == 0
        assert [row["t"] for row in found.rows] == [1, 1, 1]


def test_an_array_in_a_field_that_an_operator_names_is_a_bad_value() -> None:
    assert decoded(JsonCodec(frozenset({"t", "color.xy"})), '{"t": 1, "color": {"xy": [1]}}').bad_values == 1


def test_depth_counts_where_an_operator_names_a_field_below() -> None:
    name = ".".join("abcdefghijkl")
    payload = '{"t": 1, ' + '"a": {' + ": {".join(f'"{c}"' for c in "bcdefghijk") + ': {"l": 1' + "}" * 12
    assert decoded(JsonCodec(frozenset({"t"})), payload).bad_values == 0
    assert decoded(JsonCodec(frozenset({"t", name})), payload).bad_values == 1
