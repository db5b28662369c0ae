"""The wire format of results and acknowledgements."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.errors import PayloadError
from edgert.core.results.result_schema import MOST_COUNT, Schema, partial_columns, row_columns
from edgert.core.results.results import (
    MOST_DROPS,
    MOST_NAME,
    MOST_STREAMS,
    Acknowledgement,
    DropsBatch,
    EpochHello,
    GapBatch,
    OpenBatch,
    RefusedBatch,
    RowsBatch,
    pack_acknowledgement,
    pack_result,
    unpack_acknowledgement_untrusted,
    unpack_result_untrusted,
)

SCHEMA = Schema(60.0, (("source", "string"),), (("n", "count"), ("t", "mean"), ("v", "variance"), ("lo", "min")))
NUMBER: dict[str, Any] = {
    "gateway": "g1",
    "flow": "city-air",
    "epoch": (3 << 32) | 77,
    "stream": 0,
    "sequence": 1,
    "flow_version": 2,
}
CELLS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(), st.booleans())


def plain(**changes: Any) -> bytes:
    """An open batch as a map, with some fields set otherwise, or left out (`...`)."""
    body = {"v": 1, **NUMBER, "kind": "open", "schema": SCHEMA.plain(), "parent": None, "cut": {}}
    body.update(changes)
    packed: bytes = msgpack.packb({k: v for k, v in body.items() if v is not ...})
    return packed


def test_columns_follow_from_the_schema() -> None:
    assert partial_columns(SCHEMA) == (
        ("n", "long"),
        ("t__count", "long"),
        ("t__sum", "double"),
        ("v__count", "long"),
        ("v__mean", "double"),
        ("v__m2", "double"),
        ("lo", "double"),
    )
    assert row_columns(SCHEMA)[:4] == ("window_start", "window_end", "source", "n")


@given(st.integers(0, MOST_STREAMS - 1), st.integers(1, 2**63 - 1), st.lists(st.lists(CELLS, max_size=4), max_size=5))
def test_rows_come_back_as_they_went(stream: int, sequence: int, rows: list[list[Any]]) -> None:
    number = {**NUMBER, "stream": stream, "sequence": sequence}
    batch = RowsBatch(**number, columns=("a", "b"), rows=rows)
    assert unpack_result_untrusted(pack_result(batch)) == batch


@given(st.none() | st.integers(0, 3 << 32), st.dictionaries(st.integers(0, 9), st.integers(0, 2**62)))
def test_open_comes_back_as_it_went(parent: int | None, cut: dict[int, int]) -> None:
    batch = OpenBatch(**NUMBER, schema=SCHEMA, parent=parent, cut=cut)
    assert unpack_result_untrusted(pack_result(batch)) == batch


NAMES = st.text(max_size=MOST_NAME)


@given(st.lists(st.tuples(NAMES, NAMES, st.integers(1, MOST_COUNT)), min_size=1, max_size=5))
def test_drops_come_back_as_they_went(drops: list[tuple[str, str, int]]) -> None:
    batch = DropsBatch(**NUMBER, drops=tuple(drops))
    assert unpack_result_untrusted(pack_result(batch)) == batch


def test_gap_and_hello_come_back_as_they_went() -> None:
    gap = GapBatch(**NUMBER, reason="quota", rows=None, text="outbox full")
    hello = EpochHello(gateway="g1", flow="city-air", epochs=(7, 3))
    with_token = dataclasses.replace(hello, token=b"12345678")
    assert unpack_result_untrusted(pack_result(gap)) == gap
    assert unpack_result_untrusted(pack_result(hello)) == hello
    assert unpack_result_untrusted(pack_result(with_token)) == with_token


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"v": 2}, "v: expected 1"),
        ({"gateway": "../etc"}, "gateway: expected a name"),
        ({"gateway": "a/b"}, "gateway: expected a name"),
        ({"flow": "Über"}, "flow: expected a name"),
        ({"flow": ".."}, "flow: expected a name"),
        ({"epoch": ...}, "epoch: expected an integer"),
        ({"epoch": True}, "epoch: expected an integer"),
        ({"epoch": 2**63}, "epoch: expected an integer"),
        ({"sequence": 0}, "sequence: expected an integer from 1"),
        ({"stream": -1}, "stream: expected an integer"),
        ({"stream": MOST_STREAMS}, "stream: expected an integer from 0 and below 16"),
        ({"kind": "hello", "epochs": 3}, "epochs: expected at most 8 integers"),
        ({"kind": "hello", "token": bytes(17)}, "token: expected at most 16 bytes"),
        ({"kind": "hello", "token": "text"}, "token: expected at most 16 bytes"),
        ({"kind": "hello", "epochs": [True]}, "epochs: expected at most 8 integers"),
        ({"kind": "hello", "epochs": [2**63]}, "epochs: expected at most 8 integers"),
        ({"kind": "hello", "epochs": [*range(9)]}, "epochs: expected at most 8 integers"),
    ],
)
def test_result_without_a_number_is_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        unpack_result_untrusted(plain(**changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "sketch"}, "kind: expected open, rows, gap, drops or hello, got 'sketch'"),
        ({"schema": 5}, "schema: expected a map"),
        ({"schema": {**SCHEMA.plain(), "window_s": 0}}, "window_s: expected seconds"),
        ({"schema": {**SCHEMA.plain(), "window_s": float("nan")}}, "window_s: expected seconds"),
        ({"schema": {**SCHEMA.plain(), "keys": [["source", "date"]]}}, "schema.keys: expected"),
        ({"schema": {**SCHEMA.plain(), "keys": [["a b", "string"]]}}, "name of a column"),
        ({"schema": {**SCHEMA.plain(), "keys": [["Gateway", "string"]]}}, "not taken yet"),
        ({"schema": {**SCHEMA.plain(), "keys": [["N", "string"]]}}, "not taken yet"),
        ({"schema": {**SCHEMA.plain(), "aggregates": [["x", "mean"], ["x", "sum"]]}}, "different names"),
        ({"schema": {**SCHEMA.plain(), "aggregates": [["x", "mean"], ["x__sum", "sum"]]}}, "different names"),
        ({"schema": {**SCHEMA.plain(), "aggregates": [["x", "median"]]}}, "schema.aggregates: expected"),
        ({"parent": NUMBER["epoch"]}, "parent: expected an epoch older"),
        ({"cut": {"0": 1}}, "cut: expected a map from stream"),
        ({"kind": "rows"}, "rows: expected columns"),
        ({"kind": "gap", "reason": 3}, "gap: expected reason"),
        ({"kind": "drops"}, "drops: expected a list of 1 to 256 entries"),
        ({"kind": "drops", "drops": []}, "drops: expected a list of 1 to 256 entries"),
        ({"kind": "drops", "drops": [["a", "b", 1]] * (MOST_DROPS + 1)}, "drops: expected a list of 1 to 256 entries"),
        ({"kind": "drops", "drops": [["a", "b", 1], ["a", "b"]]}, "drops: expected [operator, reason, count]"),
        ({"kind": "drops", "drops": [["a", b"b", 1]]}, "drops: expected [operator, reason, count]"),
        ({"kind": "drops", "drops": [["a" * (MOST_NAME + 1), "b", 1]]}, "drops: expected [operator, reason, count]"),
        ({"kind": "drops", "drops": [["a", "b" * (MOST_NAME + 1), 1]]}, "drops: expected [operator, reason, count]"),
        ({"kind": "drops", "drops": [["a", "b", 0]]}, "drops: expected [operator, reason, count]"),
        ({"kind": "drops", "drops": [["a", "b", True]]}, "drops: expected [operator, reason, count]"),
        ({"kind": "drops", "drops": [["a", "b", 1.0]]}, "drops: expected [operator, reason, count]"),
        ({"kind": "drops", "drops": [["a", "b", MOST_COUNT + 1]]}, "drops: expected [operator, reason, count]"),
    ],
)
def test_wrong_body_keeps_its_number_and_says_why(changes: dict[str, Any], reason: str) -> None:
    payload = plain(**changes)
    result = unpack_result_untrusted(payload)
    assert isinstance(result, RefusedBatch)
    assert (result.application, result.sequence) == ("g1/city-air/12884901965/0", 1)
    assert reason in result.reason
    assert result.payload == payload


@given(st.binary(max_size=200))
def test_garbage_raises_one_error_type(payload: bytes) -> None:
    for read in (unpack_result_untrusted, unpack_acknowledgement_untrusted):
        with pytest.raises(PayloadError):
            read(payload)


@given(st.data())
def test_damaged_result_is_read_refused_or_an_error(data: st.DataObject) -> None:
    payload = bytearray(pack_result(OpenBatch(**NUMBER, schema=SCHEMA, parent=5, cut={0: 7})))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        result = unpack_result_untrusted(bytes(payload))
    except PayloadError:
        return
    assert isinstance(result, OpenBatch | RowsBatch | GapBatch | DropsBatch | RefusedBatch | EpochHello)


@given(
    st.dictionaries(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 9), st.integers(0, 3)), st.integers(0, 99))
)
def test_acknowledgement_comes_back_as_it_went(acks: dict[tuple[str, int, int], int]) -> None:
    sent = Acknowledgement(gateway="g1", collector="c", acks=acks, answers=("a",), tokens={"a": b"12345678"})
    got = unpack_acknowledgement_untrusted(pack_acknowledgement(sent))
    assert got == sent
    assert got.greatest_epoch("a") == max((e for f, e, _ in acks if f == "a"), default=None)


@pytest.mark.parametrize("entry", [["a", 1, 2], ["a", 1, 0, -1], [1, 1, 0, 1], ["a", 1, 0, True], "abcd"])
def test_acknowledgement_with_one_wrong_entry_is_not_used(entry: Any) -> None:
    payload = msgpack.packb({"v": 1, "gateway": "g", "collector": "c", "acks": [["a", 1, 0, 5], entry]})
    with pytest.raises(PayloadError, match="acks: expected"):
        unpack_acknowledgement_untrusted(payload)


@pytest.mark.parametrize("tokens", [None, ["a"], {"a": bytes(17)}, {1: b"x"}, {"a": "x"}])
def test_acknowledgement_with_wrong_tokens_is_not_used(tokens: Any) -> None:
    payload = msgpack.packb({"v": 1, "gateway": "g", "collector": "c", "acks": [], "tokens": tokens})
    with pytest.raises(PayloadError, match="tokens: expected"):
        unpack_acknowledgement_untrusted(payload)


def test_a_gap_says_for_how_many_numbers_it_stands() -> None:
    head: dict[str, Any] = {"gateway": "g1", "flow": "f", "epoch": 1, "stream": 0, "flow_version": 1}
    gap = GapBatch(**head, sequence=9, reason="outbox full", rows=70, numbers=7)
    assert gap.first == 3
    assert unpack_result_untrusted(pack_result(gap)) == gap
    plain = {**head, "v": 1, "kind": "gap", "sequence": 9, "reason": "quota", "rows": 1}
    one = unpack_result_untrusted(msgpack.packb(plain))
    assert isinstance(one, GapBatch)
    assert (one.first, one.numbers) == (9, 1), "one of an older gateway stands for itself"
    for numbers in (0, 10, -1, 1.0, True, "7", None):
        refused = unpack_result_untrusted(msgpack.packb({**plain, "numbers": numbers}))
        assert isinstance(refused, RefusedBatch)
        assert "expected numbers from 1 to 9" in refused.reason
