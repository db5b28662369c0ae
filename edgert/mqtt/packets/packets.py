"""The packets of MQTT 3.1.1 and 5 as values; `encode` and `decode` turn them into bytes and back.

Section numbers in this package are those of the OASIS standards, the same in both versions unless said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

Properties = dict[str, Any]
"""MQTT 5 properties by name (see `properties.TABLE`); user properties as a list of (name, value) pairs."""

V311 = 4
V5 = 5
"""Protocol levels as they stand in CONNECT."""

MAX_PACKET_ID = 65_535
MAX_PACKET_BYTES = 268_435_460
"""The largest packet that MQTT allows, and the limit of a broker that states none."""


class Publish(msgspec.Struct, frozen=True, gc=False):
    """One application message. A msgspec struct, since it is built once per message: 0.07 µs, where a named tuple
    costs 0.14 and the garbage collector would track it."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    """0 at QoS 0."""
    subscription_ids: tuple[int, ...] = ()
    properties: Properties | None = None
    """None unless there are properties other than subscription identifiers."""


class PublishRun(msgspec.Struct, gc=False):
    """Messages that followed each other at QoS 0 without RETAIN and with the same subscription identifiers, by columns:
    an object for each would cost more than all that is done with it before it is decoded."""

    topics: list[str]
    payloads: list[bytes]
    """One per topic."""
    subscription_ids: tuple[int, ...] = ()


def count(messages: Sequence[Publish | PublishRun]) -> int:
    """Returns how many messages those are."""
    return sum(len(m.topics) if isinstance(m, PublishRun) else 1 for m in messages)


@dataclass(frozen=True, slots=True)
class Oversized:
    """A PUBLISH larger than the limit, skipped while it streamed in. It must still be acknowledged."""

    topic: str
    """Empty if the broker's topic was not decodable."""
    qos: int
    packet_id: int
    size: int
    """Whole packet, bytes."""
    dup: bool = False


@dataclass(frozen=True, slots=True)
class Connack:
    session_present: bool
    reason: int
    """0 = accepted. Version 3.1.1 return codes (1..5) or version 5 reason codes (>= 0x80)."""
    properties: Properties = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Puback:
    packet_id: int
    reason: int = 0
    properties: Properties = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pubrec:
    packet_id: int
    reason: int = 0
    properties: Properties = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pubrel:
    packet_id: int
    reason: int = 0
    properties: Properties = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pubcomp:
    packet_id: int
    reason: int = 0
    properties: Properties = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suback:
    packet_id: int
    reasons: tuple[int, ...]
    """One per filter, in order: granted QoS, or >= 0x80 = refused."""
    properties: Properties = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unsuback:
    packet_id: int
    reasons: tuple[int, ...] = ()
    """Empty in 3.1.1."""
    properties: Properties = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pingresp:
    pass


@dataclass(frozen=True, slots=True)
class Disconnect:
    reason: int = 0
    properties: Properties = field(default_factory=dict)


Publishes = list[Publish | PublishRun]
"""Messages in the order in which they came."""
Packet = (
    Publishes | Oversized | Connack | Puback | Pubrec | Pubrel | Pubcomp | Suback | Unsuback | Pingresp | Disconnect
)
"""Packets that a decoder yields; messages that follow each other come as one plain list."""


@dataclass(frozen=True, slots=True)
class Will:
    """The message that the broker publishes for us when the connection breaks."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = True
    properties: Properties = field(default_factory=dict)
    """Version 5 only (for example `will_delay_interval`)."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One filter of a SUBSCRIBE. The version 5 options are left out when 3.1.1 is spoken."""

    filter: str
    qos: int = 1
    subscription_id: int | None = None
    """Filters with different identifiers go into SUBSCRIBE packets of their own (section 3.8.2.1.2)."""
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 1
    """0 send retained messages at each subscribe, 1 only if the subscription is new, 2 never."""


REASONS = {
    0x01: "unsupported protocol version",
    0x02: "client identifier rejected",
    0x03: "server unavailable",
    0x04: "bad user name or password",
    0x05: "not authorized",
    0x80: "unspecified error",
    0x81: "malformed packet",
    0x82: "protocol error",
    0x83: "implementation specific error",
    0x84: "unsupported protocol version",
    0x85: "client identifier not valid",
    0x86: "bad user name or password",
    0x87: "not authorized",
    0x88: "server unavailable",
    0x89: "server busy",
    0x8A: "banned",
    0x8B: "server shutting down",
    0x8C: "bad authentication method",
    0x8D: "keep alive time-out",
    0x8E: "session taken over",
    0x8F: "topic filter invalid",
    0x90: "topic name invalid",
    0x91: "packet identifier in use",
    0x92: "packet identifier not found",
    0x93: "receive maximum exceeded",
    0x94: "topic alias invalid",
    0x95: "packet too large",
    0x96: "message rate too high",
    0x97: "quota exceeded",
    0x98: "administrative action",
    0x99: "payload format invalid",
    0x9A: "retain not supported",
    0x9B: "QoS not supported",
    0x9C: "use another server",
    0x9D: "server moved",
    0x9E: "shared subscriptions not supported",
    0x9F: "connection rate exceeded",
    0xA0: "maximum connect time",
    0xA1: "subscription identifiers not supported",
    0xA2: "wildcard subscriptions not supported",
}
"""Return codes of 3.1.1 CONNACK (1..5) and reason codes of version 5 (section 2.4)."""


def reason_text(code: int) -> str:
    """The standard's words for a reason code, with the code; 'reason 0x..' if it has none."""
    text = REASONS.get(code)
    return f"{text} (0x{code:02X})" if text else f"reason 0x{code:02X}"
