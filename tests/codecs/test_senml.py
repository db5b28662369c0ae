"""SenML as RFC 8428 has it, and as sensors send it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgert.codecs import make
from edgert.core.batch import Row
from edgert.core.errors import PayloadError

NOW = 1_700_000_000.0


def rows_of(pack: object, captures: dict[str, str] | None = None, **options: Any) -> list[Row]:
    out: list[Row] = []
    codec = make("senml", None, **options)
    assert codec.decode_untrusted(json.dumps(pack).encode(), captures or {}, NOW, out, "a/topic") == 0
    return out


def bad_and_rows(pack: object) -> tuple[int, list[Row]]:
    out: list[Row] = []
    payload = pack if isinstance(pack, bytes) else json.dumps(pack).encode()
    return make("senml").decode_untrusted(payload, {"source": "x"}, NOW, out), out


def refusal(pack: object) -> str:
    payload = pack if isinstance(pack, bytes) else json.dumps(pack).encode()
    out: list[Row] = []
    with pytest.raises(PayloadError) as caught:
        make("senml", max_rows=1000).decode_untrusted(payload, {"source": "x"}, NOW, out)
    assert out == []
    return str(caught.value)


def test_rfc_5_1_1_single_datapoint_is_now_and_its_full_name_is_the_field() -> None:
    pack = [{"n": "urn:dev:ow:10e2073a01080063", "u": "Cel", "v": 23.1}]
    assert rows_of(pack) == [{"time": NOW, "source": "a/topic", "urn:dev:ow:10e2073a01080063": 23.1}]


def test_rfc_5_1_2_multiple_datapoints_at_an_unspecified_time_are_one_row() -> None:
    pack = [
        {"bn": "urn:dev:ow:10e2073a01080063:", "n": "voltage", "u": "V", "v": 120.1},
        {"n": "current", "u": "A", "v": 1.2},
    ]
    assert rows_of(pack) == [{"time": NOW, "source": "urn:dev:ow:10e2073a01080063", "voltage": 120.1, "current": 1.2}]


def test_rfc_5_1_2_earlier_seconds_are_rows_of_their_own() -> None:
    pack = [
        {"bn": "urn:dev:ow:10e2073a0108006:", "bt": 1.276020076001e09, "bu": "A", "bver": 5, "n": "voltage", "u": "V"}
        | {"v": 120.1},
        {"n": "current", "t": -5, "v": 1.2},
        {"n": "current", "t": -4, "v": 1.3},
        {"n": "current", "v": 1.7},
    ]
    source = "urn:dev:ow:10e2073a0108006"
    assert rows_of(pack) == [
        {"time": 1276020076.001, "source": source, "voltage": 120.1, "current": 1.7},
        {"time": 1276020071.001, "source": source, "current": 1.2},
        {"time": 1276020072.001, "source": source, "current": 1.3},
    ]


def test_rfc_5_1_3_measurements_of_one_time_belong_together() -> None:
    pack = [
        {"bn": "urn:dev:ow:10e2073a01080063", "bt": 1.320067464e09, "bu": "%RH", "v": 20},
        {"u": "lon", "v": 24.30621},
        {"u": "lat", "v": 60.07965},
        {"t": 60, "v": 20.3},
    ]
    out: list[Row] = []
    bad = make("senml").decode_untrusted(json.dumps(pack).encode(), {}, NOW, out)
    # Three values of one name and time: the RFC tells them apart by unit, a row cannot, and it says so.
    assert bad == 2
    assert out[0] == {"time": 1320067464.0, "source": "urn:dev:ow:10e2073a01080063", "value": 60.07965}
    assert out[1] == {"time": 1320067524.0, "source": "urn:dev:ow:10e2073a01080063", "value": 20.3}


def test_rfc_5_1_5_multiple_data_types() -> None:
    pack = [
        {"bn": "urn:dev:ow:10e2073a01080063:", "n": "temp", "u": "Cel", "v": 23.1},
        {"n": "label", "vs": "Machine Room"},
        {"n": "open", "vb": False},
        {"n": "nfc-reader", "vd": "aGkgCg"},
    ]
    [row] = rows_of(pack)
    assert (row["temp"], row["label"], row["open"], row["nfc-reader"]) == (23.1, "Machine Room", False, "aGkgCg")


def test_rfc_5_1_6_collection_keeps_the_base_time_when_the_base_name_changes() -> None:
    pack = [
        {"bn": "2001:db8::2/", "bt": 1.320078429e09, "n": "temperature", "u": "Cel", "v": 25.2},
        {"n": "humidity", "u": "%RH", "v": 30},
        {"bn": "2001:db8::1/", "n": "temperature", "u": "Cel", "v": 12.3},
        {"n": "humidity", "u": "%RH", "v": 67},
    ]
    assert rows_of(pack) == [
        {"time": 1320078429.0, "source": "2001:db8::2", "temperature": 25.2, "humidity": 30.0},
        {"time": 1320078429.0, "source": "2001:db8::1", "temperature": 12.3, "humidity": 67.0},
    ]


def test_rfc_5_1_7_actuator_time_in_the_near_future_is_relative_to_arrival() -> None:
    pack = [{"bt": 0.02, "bn": "urn:dev:ow:light:", "n": "on", "vb": True}]
    [row] = rows_of(pack)
    assert row["time"] == pytest.approx(NOW + 0.02)
    assert row["on"] is True


def test_relative_times_end_at_two_to_the_28() -> None:
    assert rows_of([{"bn": "x:", "n": "a", "t": 2**28, "v": 1}])[0]["time"] == 2**28
    assert rows_of([{"bn": "x:", "n": "a", "t": 2**28 - 1, "v": 1}])[0]["time"] == NOW + 2**28 - 1


def test_base_value_and_base_sum_are_added_and_missing_ones_are_zero() -> None:
    pack = [
        {"bn": "x:", "bv": 20, "bs": 100},
        {"n": "a", "v": 1.5, "s": 5},
        {"n": "b", "v": 2},
        {"n": "c", "vs": "on", "s": 1},
    ]
    [row] = rows_of(pack)
    del row["time"], row["source"]
    assert row == {"a": 21.5, "a_sum": 105.0, "b": 22.0, "b_sum": 100.0, "c": "on", "c_sum": 101.0}


def test_named_record_without_value_takes_the_base_value() -> None:
    [row] = rows_of([{"bn": "x:", "bv": 20, "n": "a"}])
    assert row["a"] == 20.0


def test_sum_alone_is_no_value() -> None:
    [row] = rows_of([{"bn": "x:", "n": "energy", "s": 12}])
    assert row == {"time": NOW, "source": "x", "energy_sum": 12.0}


def test_label_that_must_be_understood_refuses_the_pack_and_others_are_ignored() -> None:
    assert "'crypt_'" in refusal([{"n": "a", "v": 1}, {"n": "b", "v": 1, "crypt_": 1}])
    assert rows_of([{"n": "a", "v": 1, "ct": "60"}], {"source": "x"})[0]["a"] == 1.0


def test_newer_version_is_refused_and_older_ones_are_not() -> None:
    assert refusal([{"bver": 11, "n": "a", "v": 1}]) == "record 0: bver: expected at most 10, got 11"
    assert rows_of([{"bver": 5, "n": "a", "v": 1}])


@pytest.mark.parametrize("field", ["bt", "bv", "bs", "bn", "bver"])
def test_wrong_base_field_refuses_the_pack_for_it_would_shift_what_follows(field: str) -> None:
    assert f"record 1: {field}: expected" in refusal([{"n": "a", "v": 1}, {field: [1], "n": "b", "v": 1}])


def test_names_with_characters_that_senml_forbids_are_bad_values() -> None:
    bad, [row] = bad_and_rows([{"n": "a b", "v": 1}, {"n": "_a", "v": 1}, {"n": "ü", "v": 1}, {"n": "b", "v": 2}])
    assert (bad, row) == (3, {"time": NOW, "source": "x", "b": 2.0})


@pytest.mark.parametrize(
    "value",
    [b"NaN", b"Infinity", b"-Infinity", b"1e999", b'"NaN"', b'"inf"', b'"abc"', b'""', b"null", b"true", b"[1]", b"{}",
     b'"1_000"', b"1" + b"0" * 400, b"1" + b"0" * 5000, b"[" * 200 + b"]" * 200],
)  # fmt: skip
def test_bad_value_costs_itself_only(value: bytes) -> None:
    bad, rows = bad_and_rows(b'[{"n":"a","v":' + value + b'},{"n":"b","v":2}]')
    assert (bad, rows) == (1, [{"time": NOW, "source": "x", "b": 2.0}])


def test_two_values_or_none_in_a_record_and_a_record_that_is_no_object_are_bad() -> None:
    bad, [row] = bad_and_rows([{"n": "a", "v": 1, "vs": "x"}, {"n": "b"}, 7, {"n": "c", "v": 3}])
    assert (bad, row) == (3, {"time": NOW, "source": "x", "c": 3.0})


def test_record_with_a_bad_time_is_lost_alone() -> None:
    bad, [row] = bad_and_rows([{"n": "a", "v": 1, "t": "soon"}, {"n": "b", "v": 2, "t": 1e12}, {"n": "c", "v": 3}])
    assert (bad, row) == (2, {"time": NOW, "source": "x", "c": 3.0})


TWICE = (
    b'[{"n":"a","v":1,"v":2},{"n":"b","v":3}]',
    b'[{"n":"a","v":1},{"n":"c","n":"b","v":3}]',
    b'[{"bn":"x:","bn":"y:","n":"a","v":1},{"n":"b","v":3}]',
    b'{"e":[{"n":"a","v":1},{"n":"b","v":3}],"bn":"x","bn":"y"}',
)


@pytest.mark.parametrize("twice", TWICE)
def test_a_repeated_label_is_counted_also_when_the_shape_of_the_pack_is_known(twice: bytes) -> None:
    flat, old = b'[{"bn":"y:","n":"a","v":1},{"n":"b","v":3}]', b'{"e":[{"n":"a","v":1},{"n":"b","v":3}],"bn":"y"}'
    payloads = [*[flat, flat.replace(b'"bn":"y:",', b""), old, old.replace(b',"bn":"y"', b"")] * 4, twice, twice]
    decoded = make("senml").decode_batch_untrusted(["t"] * len(payloads), payloads, lambda topic: {}, NOW)
    assert (decoded.bad_payloads, decoded.bad_values, len(decoded.rows)) == ([], 2, len(payloads))


@pytest.mark.parametrize(
    "value", [b'"v":-1.#J', b'"v":NaNQ', b'"v":1e999', b'"v":"1.#IO"', b'"vs":"nan"', b'"vs":"1.#R"']
)
def test_numbers_that_are_none_are_bad_values_also_when_the_shape_of_the_pack_is_known(value: bytes) -> None:
    good = [b'[{"n":"a","v":1},{"n":"b","v":3}]', b'[{"n":"a","vs":"nano"},{"n":"b","v":3}]']
    payloads = [*good * 4, b'[{"n":"a",' + value + b'},{"n":"b","v":3}]']
    decoded = make("senml").decode_batch_untrusted(["t"] * len(payloads), payloads, lambda topic: {}, NOW)
    assert (decoded.bad_payloads, decoded.bad_values) == ([], 1)
    assert decoded.rows[-1] == {"time": NOW, "source": "t", "b": 3.0}


def test_data_may_spell_what_is_no_number() -> None:
    assert rows_of([{"n": "a", "vd": "nan"}])[0]["a"] == "nan"


def test_name_twice_in_a_row_keeps_the_later_and_counts_the_earlier() -> None:
    assert bad_and_rows([{"n": "a", "v": 1}, {"n": "a", "v": 2}]) == (1, [{"time": NOW, "source": "x", "a": 2.0}])


def test_old_layout_takes_quoted_values_and_milliseconds() -> None:
    pack = {
        "e": [{"n": "source", "sv": "dev1"}, {"n": "t1", "v": "8.5"}, {"n": "on", "bv": "true"}],
        "bt": "1422748800500",
    }
    assert rows_of(pack) == [{"time": 1422748800.5, "source": "dev1", "t1": 8.5, "on": True}]


def test_old_layout_in_seconds_with_base_name_and_offsets() -> None:
    pack = {"bn": "dev2/", "bt": 1422748800, "e": [{"n": "a", "v": 1}, {"n": "a", "v": 2, "t": 10}]}
    assert rows_of(pack) == [
        {"time": 1422748800.0, "source": "dev2", "a": 1.0},
        {"time": 1422748810.0, "source": "dev2", "a": 2.0},
    ]


def test_captures_go_before_what_the_payload_says() -> None:
    [row] = rows_of([{"bn": "dev:", "n": "room", "vs": "r1"}, {"n": "a", "v": 1}], {"source": "s", "room": "r2"})
    assert row == {"time": NOW, "source": "s", "room": "r2", "a": 1.0}


def test_only_wanted_fields_are_built_but_every_row_stays() -> None:
    out: list[Row] = []
    payload = b'[{"n":"a","v":1},{"n":"b","v":"bad"},{"n":"b","v":2,"t":-5}]'
    assert make("senml", frozenset(["a"])).decode_untrusted(payload, {"source": "x"}, NOW, out) == 0
    assert out == [{"time": NOW, "source": "x", "a": 1.0}, {"time": NOW - 5, "source": "x"}]


def test_errors_say_what_was_expected_what_came_and_where() -> None:
    assert refusal(b"") == "expected JSON, got an empty payload"
    assert refusal(b'[{"n":"a","v":1}') == 'expected JSON, got 16 bytes b\'[{"n":"a","v":1}\': Input data was truncated'
    assert "(byte 1)" in refusal(b"[x]")
    assert "UTF-8" in refusal(b'[{"n":"\xff"}]')
    assert "too deep" in refusal(b"[" * 100_000)
    assert refusal(b"7") == 'expected a SenML array, or an object with an array "e", got 7'
    assert refusal([3]) == "record 0: expected an object, got 3"
    assert refusal([{"n": "a", "v": 1}] * 1001) == "expected at most 1000 records in a pack, got 1001"
    assert len(refusal(b"x" * 1_000_000)) < 300


def test_pack_without_records_has_no_rows() -> None:
    assert bad_and_rows([]) == (0, [])
    assert bad_and_rows([{"bn": "x:", "bt": 1}]) == (0, [])
