"""JSON objects as rows."""

from __future__ import annotations

import json
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from edgert.codecs import make
from edgert.codecs.base import seconds_or_none
from edgert.codecs.json import JsonCodec
from edgert.codecs.local_times import LocalTimes
from edgert.core.batch import Row
from edgert.core.errors import DocumentError, PayloadError

NOW = 1_700_000_000.0


def rows_of(document: object, bad: int = 0, captures: dict[str, str] | None = None, **options: Any) -> list[Row]:
    out: list[Row] = []
    payload = document if isinstance(document, bytes) else json.dumps(document).encode()
    assert make("json", **options).decode_untrusted(payload, captures or {}, NOW, out, "a/topic") == bad
    return out


def refusal(document: object, **options: Any) -> str:
    with pytest.raises(PayloadError) as caught:
        rows_of(document, **options)
    return str(caught.value)


def test_object_is_a_row_and_keeps_the_types_of_its_values() -> None:
    [row] = rows_of({"time": 1.5e9, "source": "d", "i": 3, "f": 2.5, "s": "x", "b": True, "n": None})
    assert row == {"time": 1.5e9, "source": "d", "i": 3, "f": 2.5, "s": "x", "b": True, "n": None}
    assert (type(row["i"]), type(row["b"])) == (int, bool)


def test_array_holds_a_row_per_object() -> None:
    assert [row["a"] for row in rows_of([{"a": 1}, {"a": 2}])] == [1, 2]
    assert rows_of([]) == []


def test_nested_objects_become_dotted_names_up_to_a_depth() -> None:
    assert rows_of({"a": {"b": {"c": 1}}, "d": {}})[0] == {"time": NOW, "source": "a/topic", "a.b.c": 1}
    deep: dict[str, Any] = {"x": 1}
    for _ in range(9):
        deep = {"d": deep}
    assert rows_of({"a": 1, **deep}, bad=1)[0] == {"time": NOW, "source": "a/topic", "a": 1}


def test_dotted_name_twice_keeps_the_later_and_counts_the_earlier() -> None:
    assert rows_of({"a.b": 1, "a": {"b": 2}}, bad=1)[0]["a.b"] == 2


@pytest.mark.parametrize(
    "value",
    b"nan -nan inf +INF nan(0x8000) -nan(ind) NaNQ qnan 1.#QNAN -1.#IND000000 1.#INF -1.#J 1.#R 1.#QO 1.$ 1.#INFe+000 "
    b'ovf -\xe2\x88\x9e 1e999 "nan" "-Infinity" "NaN\\t" "1.#J" "NaNS" "-1.$" "1.#INF00e+000"'.split(),
)
@pytest.mark.parametrize("fields", [None, frozenset("ab")])
def test_numbers_that_are_none_as_c_and_others_print_them_are_bad_values(
    value: bytes, fields: frozenset[str] | None
) -> None:
    good = [b'{"a":1.5,"b":2,"s":"nano nan, inf, 1.#5"}', b'{"a":"x","b":2,"s":""}']
    payloads = [*good * 4, b'{"a":' + value + b',"b":2,"s":"nan, \\"inf\\": nan"}', *good]
    decoded = make("json", fields).decode_batch_untrusted(["t"] * len(payloads), payloads, lambda topic: {}, NOW)
    assert (decoded.bad_payloads, decoded.bad_values, len(decoded.rows)) == ([], 1, len(payloads))
    assert "a" not in decoded.rows[8]
    assert decoded.rows[8]["b"] == 2
    assert fields or decoded.rows[8]["s"] == 'nan, "inf": nan'


@pytest.mark.parametrize("fields", [None, frozenset("ab")])
def test_a_repeated_key_is_counted_also_when_the_keys_are_known(fields: frozenset[str] | None) -> None:
    codec = make("json", fields)
    for payload, bad in [
        (b'{"a":1,"b":2}', 0), (b'{"a":1,"b":":"}', 0), (b'{"a":1,"b":2,"a":3}', 1), (b'{"a":1, "a" :2,"a":3}', 2),
    ]:  # fmt: skip
        decoded = codec.decode_batch_untrusted(["t"] * 5, [payload] * 5, lambda topic: {}, NOW)
        assert (decoded.bad_values, len(decoded.rows)) == (5 * bad, 5), payload
        assert decoded.rows[-1]["a"] == 3 or not bad
    unused = codec.decode_batch_untrusted(["t"], [b'{"a":1,"b":2,"z":1,"z":2}'], lambda topic: {}, NOW)
    assert unused.bad_values == (fields is None)


def test_a_byte_order_mark_in_front_and_nuls_at_the_end_are_skipped() -> None:
    assert rows_of(b'\xef\xbb\xbf{"a":1}')[0]["a"] == 1
    assert rows_of(b'{"a":1}\0')[0]["a"] == 1, "as C sends its strings"


@pytest.mark.parametrize("value", [b"NaN", b"-Infinity", b"1e999", b"1" + b"0" * 400, b"1" + b"0" * 5000])
def test_bad_value_costs_itself_only(value: bytes) -> None:
    assert rows_of(b'{"a":' + value + b',"b":2}', bad=1) == [{"time": NOW, "source": "a/topic", "b": 2}]


def test_integers_beyond_64_bits_become_floats() -> None:
    [row] = rows_of({"a": 2**63, "b": 2**63 - 1})
    assert (type(row["a"]), type(row["b"])) == (float, int)


@pytest.mark.parametrize(
    ("given", "unit", "expected"),
    [
        (1422748800, "auto", 1422748800.0),
        (1422748800123, "auto", 1422748800.123),
        (1422748800123456, "auto", 1422748800.123456),
        (1422748800123456789, "auto", 1422748800.1234567),
        ("1422748800123", "auto", 1422748800.123),
        (1422748800, "s", 1422748800.0),
        (5000, "ms", 5.0),
        (5000, "us", 0.005),
        ("2015-02-01T00:00:00Z", "auto", 1422748800.0),
        ("2015-02-01T01:00:00+01:00", "ms", 1422748800.0),
        ("2015-02-01T00:00:00", "auto", 1422748800.0),
        (None, "auto", NOW),
    ],
)
def test_time_is_read_in_its_unit(given: object, unit: str, expected: float) -> None:
    [row] = rows_of({"ts": given}, time_field="ts", time_unit=unit)
    assert row["time"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("given", ["yesterday", True, [1], {}, -5, 1e15, "NaN", 2**5000 // 3])
def test_row_with_a_time_that_cannot_be_read_is_refused(given: object) -> None:
    payload = json.dumps({"a": 1, "time": 0}).replace("0", "%s").encode()
    text = json.dumps(given) if not isinstance(given, int) or given < 10**9 else "9" * 400
    reason = refusal(payload.replace(b"%s", text.encode()), time_unit="s")
    assert reason.startswith("time: expected a time between 1970 and 9999 as number or ISO 8601, got ")


def test_refused_row_in_an_array_is_counted_and_costs_no_other() -> None:
    assert [row["a"] for row in rows_of([{"a": 1}, {"a": 2, "time": "x"}, 7, {"a": 3}], bad=2)] == [1, 3]
    assert refusal([{"time": "x"}, 7]).startswith("object 0: time: expected")


def test_source_is_captured_or_given_or_the_topic() -> None:
    assert rows_of({"source": "p"}, captures={"source": "c"})[0]["source"] == "c"
    assert rows_of({"source": "p"}, captures={"room": "r"})[0] == {"time": NOW, "source": "p", "room": "r"}
    assert rows_of({"source": 17})[0]["source"] == "17"
    assert rows_of({"source": ""})[0]["source"] == "a/topic"
    with pytest.raises(PayloadError, match="expected a source in the topic or the payload, got neither"):
        make("json").decode_untrusted(b"{}", {}, NOW, [])


def test_only_wanted_fields_are_built() -> None:
    out: list[Row] = []
    payload = b'{"a":1,"b":[],"c":{"d":2,"e":3}}'
    assert make("json", frozenset(["a", "c.d"])).decode_untrusted(payload, {"source": "x"}, NOW, out) == 0
    assert out == [{"time": NOW, "source": "x", "a": 1, "c.d": 2}]


def test_errors_say_what_was_expected_what_came_and_where() -> None:
    assert refusal(b"") == "expected JSON, got an empty payload"
    assert refusal(b'{"a":}') == "expected JSON, got 6 bytes b'{\"a\":}': JSON is malformed: invalid character (byte 5)"
    assert refusal(b"7") == "expected an object, got 7"
    assert refusal([{}] * 11, max_rows=10) == "expected at most 10 objects in a payload, got 11"
    assert "UTF-8" in refusal(b'{"a":"\xe9"}')
    assert "too deep" in refusal(b'{"a":' * 50_000)


def test_half_a_surrogate_pair_is_refused_for_nothing_could_write_it_again() -> None:
    assert "expected JSON" in refusal(b'{"a":"\\ud800","b":NaN}')


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (r"K\u00fcche \ud83d\ude00", "Küche \U0001f600"),
        (r"C:\\udata", "C:\\udata"),
        (r"\\\\ud83d", "\\\\ud83d"),
        (r"\\\ud83d\uDE00", "\\\U0001f600"),
    ],
    ids=["a whole pair", "a backslash and text", "two backslashes and text", "a backslash and a pair"],
)
def test_text_beside_a_number_that_is_none_is_kept(text: str, read: str) -> None:
    out: list[Row] = []
    payload = f'{{"name": "{text}", "t": NaN, "b": 1}}'.encode()
    assert make("json").decode_untrusted(payload, {"source": "x"}, NOW, out) == 1
    assert out == [{"time": NOW, "source": "x", "name": read, "b": 1}]


@pytest.mark.parametrize("text", [r"\ud83d", r"\ude00\ud83d", r"\\\ud83d", r"\uD83D\\ude00"])
def test_half_a_surrogate_pair_in_a_value_or_a_key_is_refused(text: str) -> None:
    assert "expected JSON" in refusal(f'{{"a":"{text}","b":NaN}}'.encode())
    assert "expected JSON" in refusal(f'{{"a":{{"{text}":1}},"b":NaN}}'.encode())


def test_encoding_writes_an_object_per_row_with_null_for_what_json_lacks() -> None:
    rows = [{"time": 1.0, "source": "d", "a": float("nan")}, {"time": 2.0, "source": "e", "a": 1}]
    assert make("json").encode(rows) == [b'{"time":1.0,"source":"d","a":null}', b'{"time":2.0,"source":"e","a":1}']


def test_wrong_option_and_unknown_codec_are_refused_with_what_there_is() -> None:
    with pytest.raises(DocumentError, match="time_unit: expected one of auto, s, ms, us, got 'h'"):
        make("json", time_unit="h")
    with pytest.raises(DocumentError, match=r"expected one of .*json.*senml.*, got 'xml'"):
        make("xml")
    with pytest.raises(DocumentError, match="speed: expected an option of the codec 'senml'"):
        make("senml", speed=9)


@pytest.mark.parametrize("value", [1.5, float("nan"), True, None, '\u00fc"\n', 1 << 70, [1, {"a": 2.0}]])
def test_a_record_is_written_as_its_row(value: object) -> None:
    codec = JsonCodec()
    names = ("time", "source", "a b", "f0", "\u00fc", "type")
    record = codec.record(names)
    assert record is not None
    values = (1.0, "x", value, 2, value, "t")
    assert codec.encode_row(record(*values)) == codec.encode_row(dict(zip(names, values, strict=True)))


@pytest.mark.parametrize("name", ['a"b', "a\\b", "\n", "\ud800"])
def test_there_is_no_record_of_names_that_are_written_otherwise(name: str) -> None:
    assert JsonCodec().record(("time", name)) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-07-01T12:00:00Z", 1_782_907_200.0),
        ("2026-07-01T12:00:00+02:00", 1_782_900_000.0),
        ("2026-07-01T12:00:00", 1_782_900_000.0),
        ("2026-07-01 12:00", 1_782_900_000.0),
        ("20260701T120000,5", 1_782_900_000.5),
        ("2026-07-01", 1_782_856_800.0),
        ("2026-W27-3", 1_782_856_800.0),
        ("2026-10-25T02:30:00", 1_792_888_200.0),
        ("2026-03-29T02:30:00", 1_774_747_800.0),
        ("2026-182", None),
        ("12:00:00", None),
        ("01.07.2026", None),
        ("2026-07-01T12:00:60", None),
    ],
)
def test_the_forms_of_iso_8601_that_the_docs_list(text: str, seconds: float | None) -> None:
    assert seconds_or_none(text, 0.0, LocalTimes(ZoneInfo("Europe/Berlin"))) == seconds
