"""Bytes from a broker, in any splits, to packets. Garbage raises ProtocolError and nothing else.

`framing` goes over the common publishes of a read in one loop; whatever else turns up is left to `_single`.
"""

from __future__ import annotations

from collections.abc import Callable

from edgert.core.errors import ProtocolError, show
from edgert.mqtt.packets.framing import LARGEST_FRAME, Heads, Topics, publishes_v5, publishes_v311
from edgert.mqtt.packets.packets import (
    V5,
    Connack,
    Disconnect,
    Oversized,
    Packet,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Publishes,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
)
from edgert.mqtt.packets.properties import read_properties_untrusted, text_untrusted

DEFAULT_MAX_PACKET_BYTES = 1 << 20

_MAX_CONTROL_BYTES = 1 << 20
"""No broker has a reason to send a control packet of this size; unlike a message it cannot be skipped."""
_COMMON = (0x30, 0x32)
_MAX_TOPICS, _MAX_CACHED_BYTES, _MAX_KEY_BYTES = 16_384, 256, 1 << 20
"""Bounds of each cache of topics: their number, the bytes of one and of all. When full it starts anew, which costs less
than choosing. Measured when full: 4 MB (3.1.1) and 7 MB (both caches of version 5); with a character in each topic that
makes Python store all of it in four bytes per character, 7 and 10 MB."""


class Decoder:
    """Incremental decoder of one connection's incoming packets.

    A PUBLISH larger than `max_packet_bytes` is skipped as it streams in (at most its topic is buffered) and reported
    as `Oversized`, so that it can be acknowledged and counted. Version 5's Maximum Packet Size is deliberately not
    announced to the broker: it would then drop such messages silently, and they could not be counted.
    """

    def __init__(self, level: int = V5, max_packet_bytes: int = DEFAULT_MAX_PACKET_BYTES) -> None:
        self._v5 = level == V5
        self._limit = max_packet_bytes
        self.topics: Topics = {}
        self.heads: Heads = {}
        self._topic_bytes = self._head_bytes = 0
        """Sizes of all keys of the two."""
        self._ids: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._fast = max_packet_bytes >= LARGEST_FRAME
        self._held: bytes | bytearray = b""
        self._need = 0
        """Bytes that must be held before looking again is worth while: what makes byte-wise feeding linear."""
        self._skip = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of an incomplete packet that wait for more."""
        return len(self._held)

    def feed_untrusted(self, data: bytes, out: list[Packet]) -> None:
        """Append the packets that `data` completes to `out`.

        Raises ProtocolError at the first byte that breaks the rules; what was appended before is valid. After an
        error the decoder must not be fed again.
        """
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
            if not data:
                return
        if self._held:
            if len(self._held) + len(data) < self._need:
                self._held = bytearray(self._held) if isinstance(self._held, bytes) else self._held
                self._held += data
                return
            data = bytes(self._held) + data
            self._held = b""
        at, end = 0, len(data)
        while at < end:
            if self._fast and data[at] in _COMMON:
                messages = _messages(out)
                if self._v5:
                    at = publishes_v5(data, at, end, self.heads, messages)
                else:
                    at = publishes_v311(data, at, end, self.topics, messages)
                if not messages:
                    out.pop()
            behind = self._single(data, at, end, out) if at < end else end
            if behind < 0:
                self._held = data[at:]
                return
            at = behind

    def _single(self, data: bytes, at: int, end: int, out: list[Packet]) -> int:
        """Decode the packet at `at`; returns the offset behind it, or -1 if it is not complete yet."""
        first = data[at]
        _check_first(first, self._v5)
        remaining, body = _remaining_length(data, at + 1, end)
        if remaining < 0:
            self._need = end - at + 1
            return -1
        stop = body + remaining
        if first >> 4 == 3 and stop - at > self._limit:
            return self._oversized(data, at, body, stop, end, out)
        if stop - at > max(self._limit, _MAX_CONTROL_BYTES):
            raise ProtocolError(f"expected a control packet of at most {_MAX_CONTROL_BYTES} bytes, got {stop - at}")
        if stop > end:
            self._need = stop - at
            return -1
        if first >> 4 == 3:
            _messages(out).append(self._publish(first, data, body, stop))
        else:
            out.append(_CONTROL[first](data[body:stop], self._v5))
        return stop

    def _publish(self, first: int, data: bytes, at: int, stop: int) -> Publish:
        start = at
        topic, at = self._topic(data, at, stop)
        behind_topic = at
        qos = first >> 1 & 3
        packet_id = 0
        if qos:
            packet_id, at = _packet_id(data, at, stop)
        ids: tuple[int, ...] = ()
        properties: Properties | None = None
        if self._v5:
            section = at
            found, at = read_properties_untrusted(data, at, stop, "publish")
            ids = tuple(found.pop("subscription_identifier", ()))
            if 0 in ids:
                raise ProtocolError("expected a subscription identifier above 0, got 0")
            if "topic_alias" in found:
                raise ProtocolError("expected no topic alias (none was offered), got one")
            properties = found or None
            if not found:
                self._learn(data[start:behind_topic] + data[section:at], topic, ids)
        return Publish(topic, data[at:stop], qos, bool(first & 1), bool(first & 8), packet_id, ids, properties)

    def _learn(self, head: bytes, topic: str, ids: tuple[int, ...]) -> None:
        """So that the next with this topic and these identifiers goes the fast way."""
        size = len(head)
        if size <= _MAX_CACHED_BYTES and head not in self.heads:  # it is, if only its payload is too short
            if len(self.heads) >= _MAX_TOPICS or self._head_bytes + size > _MAX_KEY_BYTES:
                self.heads.clear()
                self._ids.clear()
                self._head_bytes = 0
            self.heads[head] = topic, self._ids.setdefault(ids, ids)
            self._head_bytes += size

    def _topic(self, data: bytes, at: int, stop: int) -> tuple[str, int]:
        behind = _behind_topic(data, at, stop)
        raw = data[at:behind]
        topic = self.topics.get(raw)
        if topic is None:
            topic = _topic_name(raw[2:])
            size = len(raw)
            if size <= _MAX_CACHED_BYTES:
                if len(self.topics) >= _MAX_TOPICS or self._topic_bytes + size > _MAX_KEY_BYTES:
                    self.topics.clear()
                    self._topic_bytes = 0
                self.topics[raw] = topic
                self._topic_bytes += size
        return topic, behind

    def _oversized(self, data: bytes, at: int, body: int, stop: int, end: int, out: list[Packet]) -> int:
        """Report the too large PUBLISH at `at` once its topic and packet id are here, and skip the rest of it."""
        qos = data[at] >> 1 & 3
        if body + 2 > end:
            self._need = body + 2 - at
            return -1
        topic_end = _behind_topic(data, body, stop)
        behind = topic_end + (2 if qos else 0)
        if behind > min(end, stop):
            if behind > stop:
                raise ProtocolError("expected a packet identifier, got the end of the packet")
            self._need = behind - at
            return -1
        topic = _topic_name(data[body + 2 : topic_end])
        packet_id = _packet_id(data, topic_end, stop)[0] if qos else 0
        out.append(Oversized(topic, qos, packet_id, stop - at, bool(data[at] & 8)))
        self._skip = max(0, stop - end)
        return min(stop, end)


def _messages(out: list[Packet]) -> Publishes:
    """The list of messages at the end of `out`, made if there is none."""
    if out and isinstance(out[-1], list):
        return out[-1]
    messages: Publishes = []
    out.append(messages)
    return messages


def _check_first(first: int, v5: bool) -> None:
    if first >> 4 == 3:
        if first & 6 == 6:
            raise ProtocolError("expected QoS 0, 1 or 2, got 3")
        if first & 14 == 8:
            raise ProtocolError("expected no DUP flag at QoS 0, got one")
    elif first not in _CONTROL or (first == 0xE0 and not v5):
        raise ProtocolError(f"expected the first byte of a packet that a broker sends, got 0x{first:02X}")


def _remaining_length(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Remaining length at `at` and the offset behind it; -1 if not complete yet."""
    value = 0
    for shift in (0, 7, 14, 21):
        if at >= end:
            return -1, at
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ProtocolError("expected a remaining length of at most 4 bytes, got a longer one")


def _behind_topic(data: bytes, at: int, stop: int) -> int:
    """The offset behind the topic whose length stands at `at`; both length bytes, if in the packet, are here."""
    behind = at + 2 + (data[at] << 8 | data[at + 1]) if at + 2 <= stop else stop + 1
    if behind > stop:
        raise ProtocolError("expected a topic inside the packet, got the end of the packet")
    return behind


def _topic_name(raw: bytes) -> str:
    topic = text_untrusted(raw)
    if not topic or "+" in topic or "#" in topic:
        raise ProtocolError(f"expected a topic without wildcards, got {show(topic)}")
    return topic


def _packet_id(data: bytes, at: int, stop: int) -> tuple[int, int]:
    if at + 2 > stop:
        raise ProtocolError("expected a packet identifier, got the end of the packet")
    packet_id = data[at] << 8 | data[at + 1]
    if not packet_id:
        raise ProtocolError("expected a packet identifier above 0, got 0")
    return packet_id, at + 2


def _all_read(body: bytes, at: int) -> None:
    if at != len(body):
        raise ProtocolError(f"expected the end of the packet, got {len(body) - at} bytes more")


def _connack(body: bytes, v5: bool) -> Connack:
    if len(body) < 2 or body[0] & 0xFE:
        raise ProtocolError(f"expected CONNACK flags and a reason, got {show(body)}")
    present, reason = bool(body[0]), body[1]
    if present and reason:
        raise ProtocolError(f"expected no session in a refusal, got reason 0x{reason:02X} with one")
    # A broker that only knows 3.1.1 refuses version 5 in its own, shorter, form.
    if not v5 or (len(body) == 2 and reason):
        _all_read(body, 2)
        return Connack(present, reason)
    properties, at = read_properties_untrusted(body, 2, len(body), "connack")
    _all_read(body, at)
    if properties.get("receive_maximum") == 0:
        raise ProtocolError("expected a receive maximum above 0, got 0")
    return Connack(present, reason, properties)


def _reason_and_properties(body: bytes, at: int, packet: str) -> tuple[int, Properties]:
    """The optional tail of version 5 packets: a reason, then properties; either may be missing."""
    if at == len(body):
        return 0, {}
    reason = body[at]
    if at + 1 == len(body):
        return reason, {}
    properties, at = read_properties_untrusted(body, at + 1, len(body), packet)
    _all_read(body, at)
    return reason, properties


def _acknowledgement(make: Callable[[int, int, Properties], Packet], packet: str) -> Callable[[bytes, bool], Packet]:
    def read(body: bytes, v5: bool) -> Packet:
        packet_id, at = _packet_id(body, 0, len(body))
        if not v5:
            _all_read(body, at)
            return make(packet_id, 0, {})
        return make(packet_id, *_reason_and_properties(body, at, packet))

    return read


def _suback(body: bytes, v5: bool) -> Suback:
    packet_id, at = _packet_id(body, 0, len(body))
    properties: Properties = {}
    if v5:
        properties, at = read_properties_untrusted(body, at, len(body), "suback")
    reasons = tuple(body[at:])
    if not reasons or any(2 < reason < 0x80 for reason in reasons):
        raise ProtocolError(f"expected granted QoS or refusals in SUBACK, got {show(reasons)}")
    return Suback(packet_id, reasons, properties)


def _unsuback(body: bytes, v5: bool) -> Unsuback:
    packet_id, at = _packet_id(body, 0, len(body))
    if not v5:
        _all_read(body, at)
        return Unsuback(packet_id)
    properties, at = read_properties_untrusted(body, at, len(body), "unsuback")
    return Unsuback(packet_id, tuple(body[at:]), properties)


def _pingresp(body: bytes, _v5: bool) -> Pingresp:
    _all_read(body, 0)
    return Pingresp()


def _disconnect(body: bytes, _v5: bool) -> Disconnect:
    return Disconnect(*_reason_and_properties(body, 0, "disconnect"))


_CONTROL: dict[int, Callable[[bytes, bool], Packet]] = {
    0x20: _connack,
    0x40: _acknowledgement(Puback, "puback"),
    0x50: _acknowledgement(Pubrec, "pubrec"),
    0x62: _acknowledgement(Pubrel, "pubrel"),
    0x70: _acknowledgement(Pubcomp, "pubcomp"),
    0x90: _suback,
    0xB0: _unsuback,
    0xD0: _pingresp,
    0xE0: _disconnect,
}
