"""Bytes to packets: whole, byte by byte and split at random give the same; garbage raises ProtocolError only."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence, Sized
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.errors import ProtocolError
from edgert.core.text.mqtt_text import fits
from edgert.mqtt.packets import encode
from edgert.mqtt.packets.decode import Decoder
from edgert.mqtt.packets.packets import (
    V5,
    V311,
    Connack,
    Disconnect,
    Oversized,
    Packet,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    PublishRun,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
    count,
)
from edgert.mqtt.packets.properties import TABLE, Form, encode_properties, encode_varint
from tests.publishes import singly


def whole(data: bytes, level: int = V5, **options: Any) -> list[Packet]:
    out: list[Packet] = []
    Decoder(level, **options).feed_untrusted(data, out)
    return out


def pieces(data: bytes, cuts: list[int], level: int = V5, **options: Any) -> list[Packet]:
    """Fed cut at `cuts`; runs of publishes are joined, as they would be in one feed."""
    decoder, out = Decoder(level, **options), list[Packet]()
    places = [0, *sorted(cuts), len(data)]
    for start, stop in pairwise(places):
        decoder.feed_untrusted(data[start:stop], out)
    assert decoder.held_bytes == 0
    return out


def flat(packets: list[Packet]) -> list[object]:
    return [one for packet in packets for one in (singly(packet) if isinstance(packet, list) else [packet])]


topics = st.text(st.characters(codec="utf-8", exclude_characters="+#").filter(fits), min_size=1, max_size=300)
texts = st.text(st.characters(codec="utf-8").filter(fits), max_size=20)
VALUES: dict[Form, st.SearchStrategy[Any]] = {
    Form.BYTE: st.integers(0, 255),
    Form.SHORT: st.integers(1, 65_535),
    Form.LONG: st.integers(0, 2**32 - 1),
    Form.VARINT: st.integers(1, 268_435_455),
    Form.TEXT: texts,
    Form.BINARY: st.binary(max_size=20),
    Form.PAIR: st.lists(st.tuples(texts, texts), min_size=1, max_size=3),
}


def properties(place: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            entry.name: VALUES[entry.type]
            for entry in TABLE.values()
            if place in entry.packets and entry.name not in ("topic_alias", "subscription_identifier")
        },
    )


@st.composite
def publishes(draw: st.DrawFn, level: int) -> tuple[bytes, Publish]:
    qos = draw(st.integers(0, 2))
    topic, payload = draw(topics), draw(st.binary(max_size=40) | st.binary(min_size=100, max_size=400))
    packet_id = draw(st.integers(1, 65_535)) if qos else 0
    dup, retain = bool(qos) and draw(st.booleans()), draw(st.booleans())
    found = draw(st.just({}) | properties("publish")) if level == V5 else {}
    ids = draw(st.just([]) | st.lists(st.integers(1, 300), max_size=3)) if level == V5 else []
    packet = encode.publish(
        level, topic, payload, qos=qos, retain=retain, dup=dup, packet_id=packet_id,
        properties=found | ({"subscription_identifier": ids} if ids else {}),
    )  # fmt: skip
    return packet, Publish(topic, payload, qos, retain, dup, packet_id, tuple(ids), found or None)


@pytest.mark.parametrize("level", [V5, V311])
@given(data=st.data())
def test_publishes_come_back_as_they_were_however_they_are_split(level: int, data: st.DataObject) -> None:
    sent = data.draw(st.lists(publishes(level), min_size=1, max_size=12))
    sent += data.draw(st.lists(st.sampled_from(sent), max_size=12))  # topics seen before take the fast way
    stream = b"".join(packet for packet, _ in sent)
    expected = [publish for _, publish in sent]
    assert flat(whole(stream, level)) == expected
    assert len(whole(stream, level)) == 1
    assert flat(pieces(stream, list(range(len(stream))), level)) == expected
    assert flat(pieces(stream, data.draw(st.lists(st.integers(0, len(stream)), max_size=6)), level)) == expected


CONTROL: list[tuple[int, bytes, Packet]] = [
    (V311, b"\x20\x02\x01\x00", Connack(True, 0)),
    (V311, b"\x20\x02\x00\x05", Connack(False, 5)),
    (V5, b"\x20\x06\x00\x00\x03\x21\x00\x14", Connack(False, 0, {"receive_maximum": 20})),
    (V5, b"\x20\x02\x00\x01", Connack(False, 1)),
    (V311, b"\x40\x02\x12\x34", Puback(0x1234)),
    (V5, b"\x40\x02\x12\x34", Puback(0x1234)),
    (V5, b"\x40\x03\x12\x34\x10", Puback(0x1234, 0x10)),
    (V5, b"\x40\x09\x12\x34\x97\x05\x1f\x00\x02no", Puback(0x1234, 0x97, {"reason_string": "no"})),
    (V5, b"\x50\x02\x00\x01", Pubrec(1)),
    (V311, b"\x62\x02\x00\x01", Pubrel(1)),
    (V5, b"\x62\x04\x00\x01\x92\x00", Pubrel(1, 0x92)),
    (V5, b"\x70\x02\x00\x01", Pubcomp(1)),
    (V311, b"\x90\x04\x00\x07\x01\x80", Suback(7, (1, 0x80))),
    (V5, b"\x90\x05\x00\x07\x00\x02\x87", Suback(7, (2, 0x87))),
    (V311, b"\xb0\x02\x00\x07", Unsuback(7)),
    (V5, b"\xb0\x05\x00\x07\x00\x00\x11", Unsuback(7, (0, 0x11))),
    (V311, b"\xd0\x00", Pingresp()),
    (V5, b"\xe0\x00", Disconnect()),
    (V5, b"\xe0\x01\x8e", Disconnect(0x8E)),
    (V5, b"\xe0\x02\x8b\x00", Disconnect(0x8B)),
]


@pytest.mark.parametrize(("level", "data", "expected"), CONTROL)
def test_control_packets_are_read_whole_byte_by_byte_and_with_a_trailer(
    level: int, data: bytes, expected: Packet
) -> None:
    assert whole(data, level) == [expected]
    assert pieces(data, list(range(len(data))), level) == [expected]
    assert whole(data + b"\xd0\x00" + data[:1], level) == [expected, Pingresp()]


PUBLISH = b"\x30\x06\x00\x01t\x00ab"
GARBAGE: list[tuple[int, str, bytes, str]] = [
    (V5, "QoS 3", b"\x36\x06\x00\x01t\x00\x01\x00", "QoS 0, 1 or 2, got 3"),
    (V5, "DUP at QoS 0", b"\x38\x04\x00\x01t\x00", "no DUP flag at QoS 0"),
    (V5, "reserved flags", b"\x41\x02\x00\x01", "got 0x41"),
    (V5, "PUBREL flags", b"\x60\x02\x00\x01", "got 0x60"),
    (V5, "packet type 0", b"\x00\x00", "got 0x00"),
    (V5, "a client's packet", b"\xc0\x00", "got 0xC0"),
    (V5, "AUTH", b"\xf0\x00", "got 0xF0"),
    (V311, "DISCONNECT from a 3.1.1 broker", b"\xe0\x00", "got 0xE0"),
    (V5, "five length bytes", b"\x30\xff\xff\xff\xff\x01", "remaining length of at most 4 bytes"),
    (V5, "huge control packet", b"\x40\xff\xff\xff\x7f", "control packet of at most"),
    (V5, "topic behind the end", b"\x30\x04\x00\x05ab", "a topic inside the packet"),
    (V311, "no topic length", b"\x30\x01\x00", "a topic inside the packet"),
    (V311, "empty topic", b"\x30\x02\x00\x00", "without wildcards"),
    (V311, "wildcard", b"\x30\x04\x00\x02a+", "without wildcards"),
    (V311, "NUL", b"\x30\x03\x00\x01\x00", "without NUL"),
    (V311, "not UTF-8", b"\x30\x04\x00\x02\xc3\x28", "expected UTF-8"),
    (V311, "surrogate", b"\x30\x05\x00\x03\xed\xa0\x80", "expected UTF-8"),
    (V311, "no packet id", b"\x32\x04\x00\x01t\x01", "a packet identifier, got the end"),
    (V311, "packet id 0", b"\x32\x05\x00\x01t\x00\x00", "identifier above 0"),
    (V5, "no properties", b"\x30\x03\x00\x01t", "variable byte integer, got the end"),
    (V5, "properties behind the end", b"\x30\x05\x00\x01t\x05\x0b", "expected 5 bytes of properties, got 1"),
    (V5, "unknown property", b"\x30\x06\x00\x01t\x02\x7f\x00", "got identifier 0x7F"),
    (V5, "foreign property", b"\x30\x07\x00\x01t\x03\x21\x00\x14", "got identifier 0x21"),
    (V5, "topic alias", b"\x30\x07\x00\x01t\x03\x23\x00\x01", "no topic alias"),
    (V5, "subscription identifier 0", b"\x30\x06\x00\x01t\x02\x0b\x00", "identifier above 0"),
    (V5, "property twice", b"\x30\x08\x00\x01t\x04\x01\x00\x01\x00", "payload_format_indicator once"),
    (V5, "property cut off", b"\x30\x06\x00\x01t\x02\x02\x00", "four-byte integer"),
    (V5, "CONNACK flags", b"\x20\x03\x02\x00\x00", "CONNACK flags"),
    (V5, "CONNACK without properties", b"\x20\x02\x00\x00", "variable byte integer"),
    (V5, "session with refusal", b"\x20\x03\x01\x87\x00", "no session in a refusal"),
    (V5, "receive maximum 0", b"\x20\x06\x00\x00\x03\x21\x00\x00", "receive maximum above 0"),
    (V311, "long PUBACK", b"\x40\x03\x00\x01\x00", "1 bytes more"),
    (V311, "PUBACK of 0", b"\x40\x02\x00\x00", "identifier above 0"),
    (V311, "empty SUBACK", b"\x90\x02\x00\x01", "granted QoS"),
    (V311, "SUBACK of QoS 3", b"\x90\x03\x00\x01\x03", "granted QoS"),
    (V311, "PINGRESP with a body", b"\xd0\x01\x00", "1 bytes more"),
    (V5, "trailer", b"\xe0\x03\x00\x00\x00", "1 bytes more"),
]


@pytest.mark.parametrize(("level", "name", "data", "message"), GARBAGE, ids=[g[1] for g in GARBAGE])
def test_garbage_is_named_and_what_came_before_is_kept(level: int, name: str, data: bytes, message: str) -> None:
    before = encode.publish(level, "t", b"ab")
    for warm in (0, 1, 2):  # with no, one and two good packets before, so that the fast loop meets it too
        out: list[Packet] = []
        with pytest.raises(ProtocolError, match=message):
            Decoder(level).feed_untrusted(before * warm + data + b"\xd0\x00" * 40, out)
        assert flat(out) == [Publish("t", b"ab")] * warm
    stream = data + b"\xd0\x00" * 40
    with pytest.raises(ProtocolError, match=message):
        pieces(stream, list(range(len(stream))), level)


KNOWN_TOPIC: list[tuple[int, bytes, str]] = [
    (V311, b"\x32\x03\x00\x01t", "a packet identifier"),
    (V311, b"\x32\x04\x00\x01t\x00", "a packet identifier"),
    (V311, b"\x32\x05\x00\x01t\x00\x00", "identifier above 0"),
    (V5, b"\x32\x07\x00\x01t\x00\x00\x00ab", "identifier above 0"),
    (V5, b"\x32\x05\x00\x01t\x00\x01", "variable byte integer"),
    (V5, b"\x32\x06\x00\x01t\x00\x01\x02", "expected 2 bytes of properties"),
    (V5, b"\x30\x0a\x00\x01t\x02\x0b\x00abcd", "subscription identifier above 0"),
    (V5, b"\x30\x0a\x00\x01t\x02\x0b\x80abcd", "variable byte integer"),
    (V5, b"\x30\x0a\x00\x01t\x02\x0c\x01abcd", "got identifier 0x0C"),
]


@pytest.mark.parametrize("trailer", [b"", b"\x01\x00" * 8, bytes(16)])
@pytest.mark.parametrize(("level", "bad", "message"), KNOWN_TOPIC)
def test_a_known_topic_does_not_let_a_broken_packet_through(
    level: int, bad: bytes, message: str, trailer: bytes
) -> None:
    good = encode.publish(level, "t", b"abcdef", qos=1, packet_id=9)
    out: list[Packet] = []
    with pytest.raises(ProtocolError, match=message):
        Decoder(level).feed_untrusted(good + bad + trailer, out)
    assert out == [[Publish("t", b"abcdef", 1, packet_id=9)]]


def test_a_known_topic_that_reaches_behind_its_packet_is_garbage_even_if_the_rest_looks_like_a_packet() -> None:
    good = encode.publish(V311, "0", b"")
    with pytest.raises(ProtocolError, match="a topic inside the packet"):
        whole(good + b"\x30\x02\x00\x01" + good, V311)


def test_known_properties_that_reach_behind_their_packet_are_garbage_even_if_the_rest_looks_like_a_packet() -> None:
    good = encode.publish(V5, "t", b"abcd", properties={"subscription_identifier": [1, 0x30]})
    cut = b"\x30\x07\x00\x01t\x04\x0b\x01\x0b"  # what it lacks, 0x30, is the first byte of the next one
    out: list[Packet] = []
    with pytest.raises(ProtocolError, match="expected 4 bytes of properties, got 3"):
        Decoder(V5).feed_untrusted(good + cut + good, out)
    assert out == [[Publish("t", b"abcd", subscription_ids=(1, 0x30))]]


@pytest.mark.parametrize("level", [V5, V311])
def test_common_packets_cut_at_any_place_arrive_whole(level: int) -> None:
    expected, stream = list[Publish](), b""
    for i in range(12):
        ids = (i,) if level == V5 and i % 3 else ()
        expected.append(Publish("t/é", bytes(i * 30), i % 2, False, False, i % 2 * (i + 1), ids))
        stream += encode.publish(
            level, "t/é", bytes(i * 30), qos=i % 2, packet_id=i + 1,
            properties={"subscription_identifier": ids} if ids else None,
        )  # fmt: skip
    for cut in range(len(stream) + 1):
        assert flat(pieces(stream, [cut], level)) == expected


@pytest.mark.parametrize("level", [V5, V311])
def test_neighbours_that_differ_in_nothing_but_topic_and_payload_come_as_one_run(level: int) -> None:
    def sent(number: int, qos: int = 0, ids: Sequence[int] = ()) -> bytes:
        properties = {"subscription_identifier": ids} if ids and level == V5 else None
        return encode.publish(level, "t", b"message %d" % number, qos=qos, packet_id=number, properties=properties)

    packets = [sent(1), sent(2), sent(3), sent(4, 1), sent(5), sent(6, ids=[7]), sent(7, ids=[7]), sent(8, ids=[8])]
    (messages,) = whole(b"".join(packets), level)
    assert isinstance(messages, list)
    lengths = [len(m.payloads) if isinstance(m, PublishRun) else 0 for m in messages]
    assert lengths == ([0, 2, 0, 1, 0, 1, 0] if level == V5 else [0, 2, 0, 4])  # 0: alone, as what is new is
    assert [m.payload for m in singly(messages)] == [b"message %d" % n for n in range(1, 9)]
    assert count(messages) == 8


@given(
    level=st.sampled_from([V5, V311]),
    seed=st.integers(0, 2**32),
    flips=st.integers(0, 8),
    head=st.binary(max_size=30),
)
def test_fuzzed_streams_raise_protocol_error_only_and_split_alike(
    level: int, seed: int, flips: int, head: bytes
) -> None:
    draw = random.Random(seed)
    parts = [data for at, data, _ in CONTROL if at == level]
    parts += [encode.publish(level, f"t/{i}", bytes(i), qos=i % 3, packet_id=i + 1) for i in range(6)]
    stream = bytearray(head + b"".join(draw.choices(parts, k=10)))
    for _ in range(flips):
        stream[draw.randrange(len(stream))] ^= 1 << draw.randrange(8)

    def outcome(cuts: list[int]) -> tuple[list[object], str]:
        decoder, out = Decoder(level, max_packet_bytes=1000), list[Packet]()
        places = [0, *sorted(cuts), len(stream)]
        try:
            for start, stop in pairwise(places):
                decoder.feed_untrusted(bytes(stream[start:stop]), out)
        except ProtocolError as error:
            return flat(out), str(error)
        return flat(out), ""

    first = outcome([])
    assert outcome(list(range(len(stream)))) == first
    assert outcome([draw.randrange(len(stream) + 1) for _ in range(5)]) == first


@pytest.mark.parametrize("level", [V5, V311])
@pytest.mark.parametrize("qos", [0, 1, 2])
@given(size=st.integers(990, 5_000), cuts=st.lists(st.integers(0, 7_000), max_size=8))
def test_oversized_packet_is_skipped_and_reported_and_its_neighbours_arrive(
    level: int, qos: int, size: int, cuts: list[int]
) -> None:
    small = encode.publish(level, "a", b"x", qos=qos, packet_id=7)
    large = encode.publish(level, "big/é", bytes(size), qos=qos, packet_id=8)
    assert len(large) > 1000
    packets = flat(pieces(small + large + small, [c for c in cuts if c < len(large)], level, max_packet_bytes=1000))
    neighbour = Publish("a", b"x", qos, packet_id=7 if qos else 0)
    assert packets == [neighbour, Oversized("big/é", qos, 8 if qos else 0, len(large)), neighbour]


def test_oversized_packet_is_not_buffered() -> None:
    decoder, out = Decoder(V5, max_packet_bytes=1 << 16), list[Packet]()
    packet = encode.publish(V5, "t", bytes(10_000_000), qos=1, packet_id=3)
    for start in range(0, len(packet), 4096):
        decoder.feed_untrusted(packet[start : start + 4096], out)
        assert decoder.held_bytes == 0
    assert out == [Oversized("t", 1, 3, len(packet))]


def test_limit_counts_the_whole_packet_and_is_itself_allowed() -> None:
    packet = encode.publish(V5, "t", bytes(94))
    assert len(packet) == 100
    assert isinstance(whole(packet, max_packet_bytes=100)[0], list)
    assert isinstance(whole(packet, max_packet_bytes=99)[0], Oversized)


def test_large_packet_fed_in_small_pieces_is_looked_at_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    single = Decoder._single

    def counted(self: Decoder, data: bytes, at: int, end: int, out: list[Packet]) -> int:
        looks.append(at)
        return single(self, data, at, end, out)

    monkeypatch.setattr(Decoder, "_single", counted)
    packet = encode.publish(V5, "t", bytes(1_000_000))
    assert pieces(packet, list(range(0, len(packet), 7))) == [[Publish("t", bytes(1_000_000))]]
    assert len(looks) <= 3


@pytest.mark.parametrize("level", [V5, V311])
def test_topic_caches_stay_within_their_bound(level: int) -> None:
    decoder = Decoder(level)
    for i in range(40_000):
        decoder.feed_untrusted(encode.publish(level, f"t/{i}", b""), [])
    caches = (decoder.topics, decoder.heads) if level == V5 else (decoder.topics,)
    assert all(0 < len(cache) <= 16_384 for cache in caches)
    out: list[Packet] = []
    decoder.feed_untrusted(encode.publish(level, "long/" * 100, b""), out)
    assert out == [[Publish("long/" * 100, b"")]]
    assert all(len(key) <= 300 for cache in caches for key in cache)


@pytest.mark.parametrize("level", [V5, V311])
def test_topic_caches_stay_within_their_bytes_however_long_the_topics_are(level: int) -> None:
    decoder = Decoder(level)
    caches: Sequence[Collection[Sized]] = (decoder.topics, decoder.heads) if level == V5 else (decoder.topics,)
    largest = [0] * len(caches)
    for i in range(10_000):
        decoder.feed_untrusted(encode.publish(level, f"{i:0240}", b""), [])
        if i % 100 == 0:
            largest = [max(most, sum(map(len, cache))) for most, cache in zip(largest, caches, strict=True)]
    assert all(900_000 < most <= 1 << 20 for most in largest)


def test_a_topic_that_is_learnt_again_and_again_is_counted_once() -> None:
    decoder = Decoder(V5)
    decoder.feed_untrusted(encode.publish(V5, "other", b""), [])
    for _ in range(10_000):  # without payload they never go the fast way
        decoder.feed_untrusted(encode.publish(V5, f"{1:0240}", b""), [])
    assert len(decoder.heads) == len(decoder.topics) == 2, "nothing was cleared"


@given(place=st.sampled_from(["connack", "disconnect", "puback", "suback"]), data=st.data())
def test_properties_come_back_as_they_were(place: str, data: st.DataObject) -> None:
    found = data.draw(properties(place))
    section = encode_properties(found, place)
    bodies = {
        "connack": (b"\x20", b"\x00\x00"),
        "disconnect": (b"\xe0", b"\x8b"),
        "puback": (b"\x40", b"\x00\x01\x10"),
        "suback": (b"\x90", b"\x00\x01"),
    }
    first, body = bodies[place]
    tail = b"\x01" if place == "suback" else b""
    content = body + section + tail
    (packet,) = whole(first + encode_varint(len(content)) + content)
    assert packet.properties == found  # type: ignore[union-attr]


@pytest.mark.parametrize("level", [V5, V311])
def test_characters_that_we_never_send_are_taken_from_a_broker_that_lets_them_through(level: int) -> None:
    stream = encode.publish(level, "out/a?b/c", b"{}").replace(b"?", b"\t")
    (publish,) = flat(whole(stream, level))
    assert isinstance(publish, Publish)
    assert publish.topic == "out/a\tb/c"
