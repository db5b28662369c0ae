"""The gateway's end of the connection to its sensors' broker: the product's own client and session, over bytes that go
nowhere. What the broker says becomes bytes, and what the client writes becomes what the broker hears."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from edgert.mqtt.clients.transport import MqttClient
from edgert.mqtt.packets import encode
from edgert.mqtt.packets.packets import V5, Subscription
from edgert.mqtt.packets.properties import encode_varint
from tests.protocol.ledger import Copy

Packet = tuple[str, Any]
"""What it is, and what it says."""
ANSWERS: Final = {4: "ack", 5: "ack", 7: "complete"}


class Wire:
    """Stands for the socket of `client`; `hears` gets what the client says."""

    writable = True

    def __init__(self, client: MqttClient, qos: int, hears: Callable[[Packet], None]) -> None:
        self._client, self._qos, self._hears = client, qos, hears
        self._cut = False
        # Time stands still here, so that a network that cuts often looks like a broker that hangs up at a filter.
        hang_ups = client.session.hang_ups
        ended = hang_ups.ended
        hang_ups.ended = lambda early, messages, filters, now: ended(early, messages, (), now)  # type: ignore[method-assign]
        client.schedule_flush = client._flush  # type: ignore[method-assign]
        client._call = _call  # type: ignore[method-assign]

    @property
    def connected(self) -> bool:
        return self._client.status.connected

    @property
    def paused(self) -> bool:
        return self._client._paused

    def connect(self, present: bool) -> None:
        self._cut = False
        self._client.made(self)  # type: ignore[arg-type]
        self._client.received_untrusted(bytes((0x20, 3, present, 0, 0)), 0.0)

    def lose(self) -> None:
        self._cut = True
        self._client.lost(self, None)  # type: ignore[arg-type]

    def bring(self, packets: list[Packet]) -> None:
        """In one read."""
        self._client.received_untrusted(b"".join(map(self._as_bytes, packets)), 0.0)

    def _as_bytes(self, packet: Packet) -> bytes:
        kind, what = packet
        if kind == "publish":
            copy, packet_id, dup = what
            assert isinstance(copy, Copy)
            properties = {"subscription_identifier": copy.ids}
            return encode.publish(
                V5, copy.topic, copy.payload, qos=self._qos, dup=dup, packet_id=packet_id, properties=properties
            )
        if kind == "release":
            return encode.acknowledgement(encode.PUBREL, what)
        packet_id, reasons = what
        body: bytes = packet_id.to_bytes(2, "big") + b"\0" + bytes(reasons)
        return bytes((0x90 if kind == "subscribed" else 0xB0,)) + encode_varint(len(body)) + body

    # -- what the client asks of a socket

    def write(self, data: bytes) -> None:
        for first, body in _packets(data):
            kind, packet_id = first >> 4, int.from_bytes(body[:2], "big")
            if kind in ANSWERS:
                self._hears((ANSWERS[kind], packet_id))
            elif kind == 8:
                self._hears(("subscribe", (packet_id, _subscriptions(body))))
            elif kind == 10:
                self._hears(("unsubscribe", (packet_id, [text for text, _ in _texts(body[3:], 0)])))
            else:
                assert kind == 1, f"expected no packet of kind {kind}"

    def update_reading(self, _paused: bool) -> None:
        """`paused` says it."""

    def close(self) -> None:
        assert self._cut, f"the client finds a fault: {self._client.status.error}"


def _call(handler: Callable[..., None] | None, *given: object) -> None:
    """What goes wrong in a callback is a finding."""
    if handler is not None:
        handler(*given)


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        first, size, shift, at = data[at], 0, 0, at + 1
        while True:
            size |= (data[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 0x80:
                break
        yield first, data[at : at + size]
        at += size


def _subscriptions(body: bytes) -> tuple[Subscription, ...]:
    """Of a SUBSCRIBE, which has no property but its identifier."""
    size, identifier = body[2], None
    if size:
        assert body[3] == 0x0B
        identifier = sum((byte & 0x7F) << 7 * n for n, byte in enumerate(body[4 : 3 + size]))
    return tuple(Subscription(text, options & 3, identifier) for text, options in _texts(body[3 + size :], 1))


def _texts(data: bytes, options: int) -> Iterator[tuple[str, int]]:
    at = 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        yield data[at + 2 : end].decode(), data[end] if options else 0
        at = end + options
