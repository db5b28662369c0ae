"""Messages of ours at QoS 1: the window, what waits for it, and what is sent again after a reconnect."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from edgert.core.errors import EdgertError
from edgert.core.text.long_text import beyond_short
from edgert.mqtt.hang_ups.suspicion import Sent
from edgert.mqtt.packets import encode
from edgert.mqtt.packets.packets import MAX_PACKET_BYTES, MAX_PACKET_ID, Properties, reason_text


class PublishRefused(EdgertError):
    """A message of ours was not taken: no connection (QoS 0), too many waiting, or against the broker's limits."""


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """Limits that the broker stated in CONNACK; the defaults are those of the standard."""

    receive_maximum: int = MAX_PACKET_ID
    maximum_qos: int = 2
    retain_available: bool = True
    maximum_packet_size: int = MAX_PACKET_BYTES

    @classmethod
    def of(cls, properties: Properties) -> BrokerLimits:
        return cls(
            properties.get("receive_maximum", MAX_PACKET_ID),
            properties.get("maximum_qos", 2),
            bool(properties.get("retain_available", 1)),
            properties.get("maximum_packet_size", MAX_PACKET_BYTES),
        )

    def problem(self, qos: int, retain: bool, size: int) -> int:
        """Reason code why such a message must not be sent (section 3.2.2.3), or 0."""
        if qos > self.maximum_qos:
            return 0x9B
        if retain and not self.retain_available:
            return 0x9A
        return 0x95 if size > self.maximum_packet_size else 0


@dataclass(slots=True)
class OutgoingMessage:
    topic: str
    payload: bytes
    retain: bool
    properties: Properties | None
    sent: bool = False

    @property
    def held_bytes(self) -> int:
        """Bytes that count for the bound of `Outgoing`."""
        return len(self.payload) + beyond_short(self.topic)

    def encode(self, level: int, packet_id: int = 0) -> bytes:
        """At QoS 1 with a packet id, else at QoS 0. With DUP if it was sent before in this broker session."""
        return encode.publish(
            level,
            self.topic,
            self.payload,
            qos=1 if packet_id else 0,
            retain=self.retain,
            dup=self.sent,
            packet_id=packet_id,
            properties=self.properties,
        )


class Outgoing:
    """At most `max_bytes` of payloads and long topics and `max_messages` messages are held, acknowledged or not."""

    def __init__(self, max_messages: int, max_bytes: int, max_in_flight: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._max_in_flight = max_in_flight
        self._messages: dict[int, OutgoingMessage] = {}
        self._waiting: deque[int] = deque()
        self.size = 0
        """Bytes of payloads and long topics that are held."""

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, packet_id: object) -> bool:
        return packet_id in self._messages

    def add(self, packet_id: int, message: OutgoingMessage) -> None:
        """Raises PublishRefused when the bounds are reached."""
        size = self.size + message.held_bytes
        if len(self._messages) >= self._max_messages or size > self._max_bytes:
            raise PublishRefused(
                f"expected at most {self._max_messages} messages and {self._max_bytes} bytes to wait for the broker,"
                f" got {len(self._messages) + 1} and {size}"
            )
        self._messages[packet_id] = message
        self._waiting.append(packet_id)
        self.size = size

    def acknowledged(self, packet_id: int) -> str | None:
        """Forget a message; returns its topic, None if there is none in flight under this id."""
        message = self._messages.get(packet_id)
        if message is None or not message.sent:
            return None
        self._forget(packet_id)
        return message.topic

    def of_topic(self, topic: str) -> list[int]:
        """Packet ids of all messages of a topic."""
        return [packet_id for packet_id, message in self._messages.items() if message.topic == topic]

    @property
    def count_in_flight(self) -> int:
        """Messages that were sent on this connection and are not acknowledged."""
        return len(self._messages) - len(self._waiting)

    def in_flight(self) -> dict[int, Sent]:
        """Messages that were sent on this connection and not acknowledged, by packet id, in the order of sending."""
        waiting = set(self._waiting)
        return {n: Sent(m.topic, len(m.topic) + len(m.payload)) for n, m in self._messages.items() if n not in waiting}

    def give_up(self, packet_ids: Collection[int]) -> None:
        """Messages are not sent again. Between two connections, or such as are not in flight."""
        for packet_id in packet_ids:
            self._forget(packet_id)
        self._waiting = deque(n for n in self._waiting if n in self._messages)

    def _forget(self, packet_id: int) -> None:
        self.size -= self._messages.pop(packet_id).held_bytes

    def reconnected(self, session_present: bool) -> None:
        """All that is unacknowledged waits again, in order; a broker without session has never seen any of it."""
        self._waiting = deque(self._messages)
        if not session_present:
            for message in self._messages.values():
                message.sent = False

    def send(
        self, level: int, limits: BrokerLimits, write: Callable[[bytes], None], alone: bool = False
    ) -> list[tuple[int, int]]:
        """Write what the window allows, `alone`: one message; returns (packet id, reason) of what the broker would not
        take."""
        window = 1 if alone else min(limits.receive_maximum, self._max_in_flight)
        refused: list[tuple[int, int]] = []
        while self._waiting and self.count_in_flight < window:
            packet_id = self._waiting.popleft()
            message = self._messages[packet_id]
            packet = message.encode(level, packet_id)
            reason = limits.problem(1, message.retain, len(packet))
            if reason:
                refused.append((packet_id, reason))
                self._forget(packet_id)
                continue
            write(packet)
            message.sent = True
        return refused


def refusal(reason: int) -> PublishRefused:
    return PublishRefused(f"expected a message that the broker takes, got one with {reason_text(reason)}")
