"""Packets that a client sends, as bytes. What the caller gives is trusted; what cannot be said raises ValueError."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from edgert.core.errors import show
from edgert.core.text.mqtt_text import UNFIT, fits
from edgert.core.text.topic_template import check_levels
from edgert.mqtt.packets.packets import V5, Subscription, Will
from edgert.mqtt.packets.properties import encode_binary, encode_properties, encode_text, encode_varint

PINGREQ = b"\xc0\x00"
KNOWN_TOPICS = 1_000
SHORT_TOPIC = 200
"""Topics of so many letters at most are checked and encoded once for many messages, the last `KNOWN_TOPICS` of them."""


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + encode_varint(len(body)) + body


def check_topic(topic: str) -> None:
    """ValueError unless `topic` is a name that may be published to (section 4.7), whatever the broker."""
    if not topic or "+" in topic or "#" in topic:
        raise ValueError(f"expected a topic without wildcards, got {show(topic)}")
    if not fits(topic):
        raise ValueError(f"expected a topic without {UNFIT}, got {show(topic)}")
    check_levels(topic)


def _checked_topic(topic: str) -> bytes:
    check_topic(topic)
    return encode_text(topic)


_known_topic = lru_cache(KNOWN_TOPICS)(_checked_topic)


def _topic_head(topic: str) -> bytes:
    return _known_topic(topic) if len(topic) <= SHORT_TOPIC else _checked_topic(topic)


def connect(
    level: int,
    client_id: str,
    *,
    clean: bool,
    keep_alive_s: int,
    username: str | None = None,
    password: bytes | None = None,
    will: Will | None = None,
    properties: Mapping[str, Any] | None = None,
) -> bytes:
    """CONNECT (section 3.1). `clean` is Clean Start in version 5 and Clean Session in 3.1.1."""
    flags = (0x02 if clean else 0) | (0x80 if username is not None else 0) | (0x40 if password is not None else 0)
    if will is not None:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
    body = b"\x00\x04MQTT" + bytes((level, flags)) + keep_alive_s.to_bytes(2, "big")
    if level == V5:
        body += encode_properties(properties or {}, "connect")
    body += encode_text(client_id)
    if will is not None:
        check_topic(will.topic)
        if level == V5:
            body += encode_properties(will.properties, "will")
        body += encode_text(will.topic) + encode_binary(will.payload)
    if username is not None:
        body += encode_text(username)
    if password is not None:
        body += encode_binary(password)
    return _packet(0x10, body)


def publish(
    level: int,
    topic: str,
    payload: bytes,
    *,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
    properties: Mapping[str, Any] | None = None,
) -> bytes:
    """PUBLISH (section 3.3). `packet_id` is needed from QoS 1 on; properties are left out in 3.1.1."""
    head = _topic_head(topic)
    if qos:
        head += packet_id.to_bytes(2, "big")
    if level == V5:
        head += encode_properties(properties, "publish") if properties else b"\0"
    first = 0x30 | (8 if dup else 0) | qos << 1 | (1 if retain else 0)
    return b"".join((bytes((first,)), encode_varint(len(head) + len(payload)), head, payload))


def publishes(level: int, messages: Iterable[tuple[str, bytes, bool]]) -> list[bytes]:
    """PUBLISH packets of QoS 0 without properties, one for each (topic, payload, retain)."""
    properties = b"\0" if level == V5 else b""
    packets = []
    for topic, payload, retain in messages:
        head = _topic_head(topic)
        size = encode_varint(len(head) + len(properties) + len(payload))
        packets.append(b"".join((b"\x31" if retain else b"\x30", size, head, properties, payload)))
    return packets


def subscribe(level: int, packet_id: int, subscriptions: Sequence[Subscription]) -> bytes:
    """SUBSCRIBE (section 3.8); all `subscriptions` share the first one's subscription identifier."""
    body = packet_id.to_bytes(2, "big")
    if level == V5:
        identifier = subscriptions[0].subscription_id
        body += encode_properties({} if identifier is None else {"subscription_identifier": identifier}, "subscribe")
    for one in subscriptions:
        options = one.qos
        if level == V5:
            options |= one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4
        body += encode_text(one.filter) + bytes((options,))
    return _packet(0x82, body)


def unsubscribe(level: int, packet_id: int, filters: Iterable[str]) -> bytes:
    """UNSUBSCRIBE (section 3.10)."""
    body = packet_id.to_bytes(2, "big") + (b"\0" if level == V5 else b"")
    return _packet(0xA2, body + b"".join(map(encode_text, filters)))


def disconnect(level: int, reason: int = 0, properties: Mapping[str, Any] | None = None) -> bytes:
    """DISCONNECT (section 3.14); 3.1.1 has neither reason nor properties."""
    if level != V5 or (reason == 0 and not properties):
        return b"\xe0\x00"
    return _packet(0xE0, bytes((reason,)) + encode_properties(properties or {}, "disconnect"))


PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70


def acknowledgement(first: int, packet_id: int, reason: int = 0) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP; a reason other than 0 is said in version 5 only (the caller knows)."""
    if reason:
        return bytes((first, 3)) + packet_id.to_bytes(2, "big") + bytes((reason,))
    return bytes((first, 2)) + packet_id.to_bytes(2, "big")


def pubacks(packet_ids: Sequence[int]) -> bytes:
    """Many PUBACKs in one piece, 0.03 µs each: every one is two 16-bit words, 0x4002 and the id."""
    words = array("H", (0x4002,)) * (2 * len(packet_ids))
    words[1::2] = array("H", packet_ids)
    if sys.byteorder == "little":
        words.byteswap()
    return words.tobytes()
