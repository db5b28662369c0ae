"""The bytes between gateways: every message survives, however it is cut, and rubbish raises one error type."""

from __future__ import annotations

import random
import struct
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgert.core.errors import ProtocolError
from edgert.core.packing import pack
from edgert.links.messages import (
    MAX_BODY,
    MAX_HELLO,
    NOTHING,
    Ack,
    Close,
    Credit,
    Data,
    Hello,
    LinkDecoder,
    LinkMessage,
    Number,
    Ping,
    Pong,
    Refuse,
    Resume,
    Skip,
    encode,
)
from edgert.links.session import LinkSession
from tests.examples import examples
from tests.links.worlds import FLOW, is_protocol_error_or_nothing

N = Number(2**62, 2**40)
EXAMPLES: list[LinkMessage] = [
    Hello(1, "fleet", "gw-1"), Refuse("no"), Resume(1, FLOW, NOTHING, N, 2**20), Skip(1, N), Data(2, N, b"body"),
    Data(2**32 - 1, Number(1, 1), b""), Ack(1, N), Credit(1, 2**50), Close(7), Ping(3), Pong(3),
]  # fmt: skip
STREAM = b"".join(map(encode, EXAMPLES))


def test_whole_byte_by_byte_and_with_a_trailer() -> None:
    assert LinkDecoder().feed_untrusted(STREAM) == EXAMPLES
    decoder = LinkDecoder()
    assert [m for n in range(len(STREAM)) for m in decoder.feed_untrusted(STREAM[n : n + 1])] == EXAMPLES
    decoder = LinkDecoder()
    assert decoder.feed_untrusted(STREAM + b"\x07\0") == EXAMPLES
    assert decoder.rest() == b"\x07\0"


@given(st.lists(st.integers(0, len(STREAM)), max_size=9))
def test_cut_at_random(cuts: list[int]) -> None:
    decoder = LinkDecoder()
    at = [0, *sorted(cuts), len(STREAM)]
    got = [m for a, b in pairwise(at) for m in decoder.feed_untrusted(STREAM[a:b])]
    assert got == EXAMPLES


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "a list with a kind"), ([], "a list with a kind"), ([10, 1], "the kind"), ([True, 1], "the kind"),
        (["x"], "the kind"), ([8], "1 fields in a Ping"), ([8, -1], "an integer"), ([8, 2**63], "an integer"),
        ([0, 1, "a b", "c"], "a name"), ([2, 1, "Flow!", 0, 0, 0, 0, 9], "the name of a flow"),
        ([4, 0, 1, 1, b""], "an integer"), ([4, 1, 1, 1, "text"], "bytes"), ([4, 1, True, 1, b""], "an integer"),
        ([1, "x" * 501], "text of at most"), (list(range(99)), "a link message"),
    ],
)  # fmt: skip
def test_an_error_says_what_was_expected(fields: object, expected: str) -> None:
    packed = pack(fields)
    with pytest.raises(ProtocolError, match=f"expected.*{expected}"):
        LinkDecoder().feed_untrusted(struct.pack("<I", len(packed)) + packed)


def test_a_frame_that_claims_too_much_is_refused_before_it_comes() -> None:
    with pytest.raises(ProtocolError, match=f"at most {MAX_HELLO} bytes"):
        LinkDecoder(MAX_HELLO).feed_untrusted(struct.pack("<I", MAX_HELLO + 1))
    with pytest.raises(ValueError, match="at most"):
        encode(Data(1, N, bytes(MAX_BODY + 2000)))


@settings(max_examples=examples(100, 300))
@given(st.binary(max_size=200))
def test_random_bytes_raise_protocol_errors_only(data: bytes) -> None:
    session = LinkSession()
    session.connected(0.0)
    session.receive(FLOW, NOTHING)
    session.send("g", Number(1, 5))
    is_protocol_error_or_nothing(session, data)
    session.connected(0.0)
    is_protocol_error_or_nothing(session, struct.pack("<I", len(data)) + data)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_streams_raise_protocol_errors_only_and_memory_stays_bounded(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(200):
        session = LinkSession()
        session.connected(0.0)
        session.receive(FLOW, NOTHING)
        session.send("g", Number(1, 5))
        good = draw.choices(EXAMPLES[2:], k=6)
        data = bytearray(b"".join(map(encode, good)))
        for _ in range(draw.randrange(4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        is_protocol_error_or_nothing(session, bytes(data[: draw.randrange(len(data) + 1)]))
        assert len(session.take_output()) < 4_000
