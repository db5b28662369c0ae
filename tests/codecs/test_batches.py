"""The quick ways must mean what the tolerant ones mean, on real traces, on mutated packs and among broken messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgert.codecs import make
from edgert.codecs.base import Codec, Decoded, one_by_one
from edgert.codecs.not_numbers import is_no_number
from edgert.codecs.shapes import SIGHTINGS
from edgert.core.batch import Row
from edgert.core.errors import PayloadError
from tests.examples import examples

TRACES = Path(__file__).parents[2] / ".." / "shared" / "data" / "riotbench"
WANTED = frozenset(["temperature", "humidity", "light", "dust", "airquality_raw"])
NOW = 1_700_000_000.0
TOPIC = "city/dev1/sense"


def trace(name: str) -> list[bytes]:
    file = TRACES / f"{name}_sample_data_senml.csv"
    if not file.exists():
        pytest.skip(f"{file.resolve()} is missing: the real traces are not on this machine")
    return [line.split(",", 1)[1].encode() for line in file.read_text().splitlines() if line.strip()]


def types(row: Row) -> dict[str, type]:
    """True == 1 == 1.0 for Python, not for a table."""
    return {name: type(value) for name, value in row.items()}


def source_of(topic: str) -> dict[str, str]:
    return {"source": topic.split("/")[1]}


def batch(codec: Codec, payloads: list[bytes], captures: Callable[[str], dict[str, str]] = source_of) -> Decoded:
    return codec.decode_batch_untrusted([TOPIC] * len(payloads), payloads, captures, NOW)


def reference(payload: bytes, fields: frozenset[str] | None) -> Row:
    pack = json.loads(payload)
    row: Row = {"time": int(pack["bt"]) / 1000, "source": "dev1"}
    for record in pack["e"]:
        if record["n"] != "source" and (fields is None or record["n"] in fields):
            row[record["n"]] = float(record["v"]) if "v" in record else record["sv"]
    return row


def as_rfc(payload: bytes) -> bytes:
    pack = json.loads(payload)
    records: list[dict[str, Any]] = [{"n": r["n"], "u": r["u"], "v": float(r["v"])} for r in pack["e"] if "v" in r]
    return json.dumps([{"bn": "dev1:", "bt": int(pack["bt"]) / 1000, **records[0]}, *records[1:]]).encode()


@pytest.mark.parametrize("fields", [None, WANTED])
@pytest.mark.parametrize("name", ["SYS", "FIT"])
def test_every_record_of_the_real_traces_equals_a_plain_reading(name: str, fields: frozenset[str] | None) -> None:
    payloads = trace(name)
    decoded = batch(make("senml", fields), payloads)
    assert decoded.rows == [reference(payload, fields) for payload in payloads]
    assert (decoded.bad_payloads, decoded.bad_values) == ([], 0)


@pytest.mark.parametrize("captures", [source_of, lambda topic: {}])
def test_the_real_trace_as_rfc_8428_gives_the_same_rows(captures: Callable[[str], dict[str, str]]) -> None:
    payloads = trace("SYS")
    decoded = batch(make("senml", WANTED), [as_rfc(payload) for payload in payloads], captures)
    assert decoded.rows == [reference(payload, WANTED) for payload in payloads]


def test_a_shape_is_learned_and_then_used(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = make("senml")
    payload = b'[{"bn":"d:","bt":1500000000,"n":"a","u":"V","v":"1.5"},{"n":"b","vs":"x"}]'
    batch(codec, [payload] * SIGHTINGS)
    monkeypatch.setattr(codec, "decode_untrusted", lambda *arguments: pytest.fail("took the tolerant way"))
    expected = {"time": 1.5e9, "source": "dev1", "a": 1.5, "b": "x"}
    assert batch(codec, [payload] * 3).rows == [expected] * 3


def test_broken_messages_among_good_ones_cost_themselves_only() -> None:
    good = b'{"e":[{"n":"a","v":"%d"},{"n":"b","v":2}],"bt":1500000000000}'
    broken = [b"", b"\xff\xfe", b"{", b"[" * 5000, b'{"e":3}', b'{"e":[],"bt":"x"}', b"null", b'[{"n":"a","x_":1}]']
    payloads: list[bytes] = []
    for index in range(40):
        payloads.append(good % index)
        payloads.append(broken[index % len(broken)])
    payloads.append(b'{"e":[{"n":"a","v":"nan"},{"n":"b","v":7}],"bt":1500000000000}')
    decoded = batch(make("senml"), payloads)
    assert [row["a"] for row in decoded.rows[:-1]] == list(range(40))
    assert decoded.rows[-1] == {"time": 1.5e9, "source": "dev1", "b": 7.0}
    assert decoded.bad_values == 1
    assert [index for index, _ in decoded.bad_payloads] == list(range(1, 80, 2))
    assert all(reason.strip() for _, reason in decoded.bad_payloads)


def test_a_hundred_shapes_by_turns_decode_right_and_do_not_pile_up() -> None:
    codec = make("senml")
    payloads = [b'[{"n":"f%d","v":%d}]' % (i % 100, i) for i in range(3000)]
    rows = batch(codec, payloads).rows
    assert rows == [{"time": NOW, "source": "dev1", f"f{i % 100}": float(i)} for i in range(3000)]
    assert len(codec._shapes._compiled) <= 32  # type: ignore[attr-defined]


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.sampled_from(["8.5", "nan", "true", "1e999", "source", "t", "a", "b", 10, 1.5e9, 1.5e12, "dev:", "\0", "é"]),
)  # fmt: skip
KEYS = ["n", "u", "v", "sv", "bv", "vs", "vb", "vd", "s", "t", "bn", "bt", "bs", "bver", "x_", "x", "ut", "e"]
START = [
    {"e": [{"u": "x", "n": "source", "sv": "d"}, {"v": "1", "n": "t"}, {"n": "a", "v": 2}], "bt": 1422748800000},
    {"e": [{"n": "a", "v": "1", "u": "é"}, {"n": "flag", "bv": True}], "bt": 1422748800, "bn": "dev:"},
    [
        {"bn": "dev:", "bt": 1422748800.5, "bver": 10, "n": "t", "u": "V", "v": 1},
        {"n": "a", "v": 2.5},
        {"n": "b", "vs": ""},
    ],
    [{"bn": "dev/", "bt": 1422748800}, {"n": "t", "v": 1}, {"n": "source", "vs": "q"}, {"v": 4}],
]


@st.composite
def mutated_packs(draw: st.DrawFn) -> tuple[object, list[bytes]]:
    start = draw(st.sampled_from(START))
    mutants = []
    for _ in range(draw(st.integers(1, 4))):
        pack = json.loads(json.dumps(start))
        for _ in range(draw(st.integers(0, 2))):
            records = pack["e"] if isinstance(pack, dict) else pack
            target = draw(st.sampled_from([r for r in [*records, pack] if isinstance(r, dict)] or [{}]))
            key = draw(st.sampled_from(KEYS[:-1] if target is pack else KEYS))
            if draw(st.booleans()):
                target[key] = draw(scalars)
            else:
                target.pop(key, None)
        text = json.dumps(pack, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
        if draw(st.integers(0, 9)) == 0:
            cut = draw(st.integers(0, len(text) - 1))
            text = text[:cut] + draw(st.binary(max_size=2)) + text[cut + 1 :]
        mutants.append(text)
    return start, mutants


@settings(max_examples=examples(120, 400), deadline=None)
@given(mutated_packs(), st.sampled_from([None, frozenset(["t", "a"])]), st.sampled_from([source_of, lambda topic: {}]))
def test_shapes_never_change_what_a_pack_means(
    packs: tuple[object, list[bytes]], fields: frozenset[str] | None, captures: Callable[[str], dict[str, str]]
) -> None:
    start, mutants = packs
    codec, plain = make("senml", fields), make("senml", fields)
    payloads = [json.dumps(start).encode()] * SIGHTINGS + mutants
    expected = one_by_one(plain, [TOPIC] * len(payloads), payloads, captures, NOW)
    assert batch(codec, payloads, captures) == expected


keys = st.sampled_from(["time", "source", "a", "b", "c", "c.d", "room", "é"])
values = scalars | st.dictionaries(st.sampled_from(["d", "e"]), scalars, max_size=2) | st.lists(scalars, max_size=1)


@settings(max_examples=examples(120, 400), deadline=None)
@given(
    st.dictionaries(keys, values),
    st.lists(st.tuples(keys, values | st.just("absent")), max_size=4),
    st.sampled_from([None, frozenset(["a", "c"]), frozenset(["a", "c.d"])]),
    st.sampled_from([source_of, lambda topic: {}, lambda topic: {"source": "s", "room": "r"}]),
    st.sampled_from(["time", "b"]),
    st.sampled_from(["auto", "s", "ms"]),
)
@example({"source": None}, [("source", {"d": None})], None, source_of, "time", "auto")
def test_shapes_never_change_what_an_object_means(
    start: dict[str, object],
    changes: list[tuple[str, object]],
    fields: frozenset[str] | None,
    captures: Callable[[str], dict[str, str]],
    time_field: str,
    time_unit: str,
) -> None:
    changed = {**start, **dict(changes)}
    changed = {key: value for key, value in changed.items() if value != "absent"}
    payloads = [json.dumps(start).encode()] * (SIGHTINGS + 1)
    payloads += [json.dumps(changed, ensure_ascii=False).encode("utf-8", "surrogatepass")] * 2
    codec = make("json", fields, time_field=time_field, time_unit=time_unit)
    plain = make("json", fields, time_field=time_field, time_unit=time_unit)
    expected = one_by_one(plain, [TOPIC] * len(payloads), payloads, captures, NOW)
    got = batch(codec, payloads, captures)
    assert got == expected
    assert [types(row) for row in got.rows] == [types(row) for row in expected.rows]


documents = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS), inner))


@settings(max_examples=examples(100, 300), deadline=None)
@given(
    st.binary(max_size=60) | documents.map(lambda value: json.dumps(value).encode()), st.sampled_from(["senml", "json"])
)
def test_arbitrary_bytes_raise_nothing_but_payload_error_and_leave_no_rows_behind(payload: bytes, name: str) -> None:
    codec = make(name)
    rows: list[Row] = []
    try:
        codec.decode_untrusted(payload, {}, NOW, rows, TOPIC)
    except PayloadError:
        assert rows == []
    assert all(type(row["time"]) is float and row["source"] for row in rows)
    assert batch(codec, [payload] * 5, lambda topic: {}).rows == rows * 5
    codec.encode(rows)


texts = st.text(st.characters(codec="utf-8")).filter(lambda text: not is_no_number(text))
names = st.from_regex(r"[A-Za-z0-9][-A-Za-z0-9:./_]{0,12}", fullmatch=True)
fields_of_rows = st.dictionaries(
    names.filter(lambda name: name not in ("time", "source")),
    st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | texts,
    min_size=1,
)


@settings(deadline=None)
@given(st.floats(2**28, 2e11), names, fields_of_rows, st.sampled_from(["senml", "json"]))
def test_decoding_what_was_encoded_gives_the_row_again(time: float, source: str, fields: Row, name: str) -> None:
    row = {"time": time, "source": source, **fields}
    [payload] = make(name).encode([row])
    rows: list[Row] = []
    options: dict[str, Any] = {"time_unit": "s"} if name == "json" else {}
    assert make(name, **options).decode_untrusted(payload, {}, NOW, rows, "t") == 0
    assert rows == [row]
