"""Requests and answers as bytes: whole, byte by byte, split at random, damaged."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.control.messages import (
    Answer,
    ControlError,
    Request,
    Splitter,
    answer_untrusted,
    pack_error,
    pack_request,
    pack_result,
    request_untrusted,
)
from edgert.core.errors import PayloadError
from edgert.core.packing import pack

LIMIT = 10_000
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
REQUESTS = st.builds(
    Request,
    st.integers(0, 2**63 - 1),
    st.from_regex(r"[a-z][a-z0-9_.-]{0,20}", fullmatch=True),
    st.dictionaries(st.text(max_size=5), PLAIN, max_size=4),
)


def bodies(chunks: list[bytes], limit: int = LIMIT) -> list[bytes]:
    splitter = Splitter(limit)
    return [body for chunk in chunks for body in splitter.feed_untrusted(chunk)]


def packed(request: Request) -> bytes:
    return pack_request(request.id, request.verb, request.args)


@given(st.lists(REQUESTS, max_size=5), st.data())
def test_requests_come_out_as_they_went_in_however_they_are_split(requests: list[Request], data: st.DataObject) -> None:
    stream = b"".join(map(packed, requests))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    ways = [
        [stream],
        [stream[at : at + 1] for at in range(len(stream))],
        [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)],
    ]
    for chunks in ways:
        assert [request_untrusted(body) for body in bodies(chunks, 2**20)] == requests


@given(st.integers(0, 2**63 - 1), PLAIN)
def test_a_result_comes_out_as_it_went_in(number: int, result: Any) -> None:
    (body,) = bodies([pack_result(number, result)], 2**20)
    assert answer_untrusted(body) == Answer(number, True, result)


def test_an_error_comes_out_as_it_went_in_and_is_never_empty() -> None:
    assert [answer_untrusted(body) for body in bodies([pack_error(3, "no such flow") + pack_error(4, "")])] == [
        Answer(3, False, None, "no such flow"),
        Answer(4, False, None, "no reason was given"),
    ]


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_one_kind_of_error(stream: bytes) -> None:
    splitter = Splitter(LIMIT)
    for reads in (request_untrusted, answer_untrusted):
        try:
            for body in splitter.feed_untrusted(stream):
                reads(body)
        except PayloadError:
            pass
        try:
            reads(stream)
        except PayloadError:
            pass


@given(PLAIN)
def test_any_value_in_place_of_a_message_is_a_message_or_one_kind_of_error(value: Any) -> None:
    for reads in (request_untrusted, answer_untrusted):
        try:
            reads(pack(value))
        except PayloadError:
            pass


@given(REQUESTS, st.data())
def test_damaged_requests_are_a_message_or_one_kind_of_error(request: Request, data: st.DataObject) -> None:
    damaged = bytearray(packed(request))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        for body in bodies([bytes(damaged)]):
            request_untrusted(body)
    except PayloadError:
        pass


@pytest.mark.parametrize("length", [0, LIMIT + 1, 2**32 - 1])
def test_a_length_beyond_the_limit_is_refused_before_any_of_the_body_has_come(length: int) -> None:
    with pytest.raises(PayloadError, match=f"expected a frame of 1 to {LIMIT} bytes, got one of {length}$"):
        bodies([struct.pack("<I", length)])


def test_a_frame_of_the_greatest_length_passes() -> None:
    assert bodies([struct.pack("<I", LIMIT), b"x" * LIMIT]) == [b"x" * LIMIT]


def test_the_splitter_knows_whether_the_stream_stopped_within_a_frame() -> None:
    splitter, frame = Splitter(LIMIT), packed(Request(1, "status", {}))
    within = [splitter.within]
    for part in (frame[:5], frame[5:]):
        list(splitter.feed_untrusted(part))
        within.append(splitter.within)
    assert within == [False, True, False]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], "expected a request, a map, got \\[\\]"),
        ({"id": 1, "verb": "status", "arg": {}}, "expected a request with args, id, verb, got"),
        ({"verb": "status"}, "id: expected an integer from 0"),
        ({"id": True, "verb": "status"}, "id: expected an integer from 0"),
        ({"id": -1, "verb": "status"}, "id: expected an integer from 0"),
        ({"id": 2**63, "verb": "status"}, "id: expected an integer from 0"),
        ({"id": 1}, "verb: expected a name"),
        ({"id": 1, "verb": "Status"}, "verb: expected a name"),
        ({"id": 1, "verb": "x" * 64}, "verb: expected a name"),
        ({"id": 1, "verb": "status", "args": [1]}, "args: expected a map"),
        ({"id": 1, "verb": "status", "args": {1: 2}}, "args: expected a map with strings as keys"),
    ],
)
def test_a_request_that_is_none_is_told_what_was_expected(document: Any, expected: str) -> None:
    with pytest.raises(PayloadError, match=expected):
        request_untrusted(pack(document))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"id": 1}, "ok: expected true or false"),
        ({"id": 1, "ok": 1}, "ok: expected true or false"),
        ({"id": 1, "ok": False}, "error: expected a text"),
        ({"id": 1, "ok": True, "error": "but"}, "error: expected a text where ok is false, and none where it is true"),
        ({"id": 1, "ok": False, "error": 5}, "error: expected a text"),
    ],
)
def test_an_answer_that_is_none_is_told_what_was_expected(document: Any, expected: str) -> None:
    with pytest.raises(PayloadError, match=expected):
        answer_untrusted(pack(document))


def test_a_request_without_arguments_has_none() -> None:
    assert request_untrusted(pack({"id": 5, "verb": "part.begin"})) == Request(5, "part.begin", {})


def test_what_the_other_end_would_refuse_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ControlError, match=r"the request place has \d+ bytes, expected at most 100"):
        pack_request(1, "place", {"blob": b"x" * 101}, 100)
    with pytest.raises(ControlError, match="the answer is not made of plain values"):
        pack_result(1, object())
