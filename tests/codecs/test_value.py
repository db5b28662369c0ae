"""A bare value as payload."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.codecs import make
from edgert.core.batch import Row
from edgert.core.errors import DocumentError, PayloadError

NOW = 1_700_000_000.0


def row_of(payload: bytes, value_type: str = "auto", captures: dict[str, str] | None = None) -> Row:
    out: list[Row] = []
    codec = make("value", value_type=value_type)
    assert codec.decode_untrusted(payload, captures or {"source": "plug"}, NOW, out, "home/plug") == 0
    [row] = out
    return row


@pytest.mark.parametrize(
    ("payload", "value_type", "expected"),
    [
        (b"231.5", "auto", 231.5),
        (b" -7\r\n", "auto", -7.0),
        (b"\xef\xbb\xbf21", "auto", 21.0),
        (b"21.5\0", "number", 21.5),
        (b"ON\0\0", "auto", "ON"),
        (b"1e3", "number", 1000.0),
        (b"ON", "auto", "ON"),
        (b"true", "auto", "true"),
        (b"1_000", "auto", "1_000"),
        ("zu k\u00fchl".encode(), "auto", "zu k\u00fchl"),
        (b"007", "text", "007"),
        (b"ON", "boolean", True),
        (b"0", "boolean", False),
        (b"Offline", "boolean", False),
    ],
)
def test_a_value_is_a_number_if_it_is_one_else_text_or_as_declared(
    payload: bytes, value_type: str, expected: Any
) -> None:
    row = row_of(payload, value_type)
    assert row == {"time": NOW, "source": "plug", "value": expected}
    assert type(row["value"]) is type(expected)


@pytest.mark.parametrize(
    ("payload", "value_type", "reason"),
    [
        (b"", "auto", "expected a value, got an empty payload"),
        (b"nan", "auto", "which is no finite number"),
        (b"-1.#J", "auto", "which is no finite number"),
        (b"NaNQ", "auto", "which is no finite number"),
        (b"1e999", "auto", "which is no finite number"),
        (b"-1.#IND", "auto", "which is no finite number"),
        (b"inf", "number", "expected a finite number, got 'inf'"),
        (b"ON", "number", "expected a finite number, got 'ON'"),
        (b"maybe", "boolean", "expected one of 0, 1, closed"),
        (b"\xff\xfe2", "auto", "expected text in UTF-8"),
    ],
)
def test_what_is_none_is_refused_with_the_reason(payload: bytes, value_type: str, reason: str) -> None:
    with pytest.raises(PayloadError, match=reason):
        row_of(payload, value_type)


def test_levels_of_the_topic_are_fields_and_the_topic_is_the_source_of_what_names_none() -> None:
    assert row_of(b"1", captures={"room": "hall"}) == {"time": NOW, "source": "home/plug", "value": 1.0, "room": "hall"}


def test_a_wrong_type_is_refused_with_what_there_is() -> None:
    with pytest.raises(DocumentError, match="value_type: expected one of auto, number, text, boolean, got 'int'"):
        make("value", value_type="int")


@given(st.binary(max_size=40))
def test_no_payload_raises_anything_else_and_each_is_a_row_or_refused(payload: bytes) -> None:
    decoded = make("value").decode_batch_untrusted(["a/b"], [payload], lambda topic: {}, NOW)
    assert len(decoded.rows) + len(decoded.bad_payloads) == 1
    for row in decoded.rows:
        assert isinstance(row["value"], str) or math.isfinite(row["value"])


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53))
def test_a_written_number_is_read_again(number: float) -> None:
    [payload] = make("value").encode([{"time": 0.0, "source": "x", "value": number}])
    assert row_of(payload, "number")["value"] == number
