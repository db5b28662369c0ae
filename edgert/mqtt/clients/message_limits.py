"""The messages of ours that a broker takes, by its word and by what it hung up at: for the control plane's connection.

Of one size limit and one window the CONNACK tells (MQTT 5, 3.2.2.3); brokers of 3.1.1 tell nothing and hang up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

from paho.mqtt.properties import Properties

from edgert.core.results.pieces import PACKET_BYTES
from edgert.mqtt.clients.paho_client import PahoClient
from edgert.mqtt.hang_ups.rules import HangUps
from edgert.mqtt.hang_ups.suspicion import Sent
from edgert.mqtt.packets.packets import MAX_PACKET_BYTES, MAX_PACKET_ID
from edgert.mqtt.session.size_limit import SMALL_BYTES, SizeLimit

log = logging.getLogger(__name__)

QUEUED_MESSAGES: Final = 1_000
"""Messages of ours that paho keeps; no more are taken. The outbox keeps what it sends until it landed."""


class MessageLimits:
    """Heeds them for one client after the other: each connection has the limits of its CONNACK, and a size at which
    the broker hung up is remembered (`SizeLimit`)."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.too_large = 0
        """Messages of ours that the broker does not take for their size."""
        self.hung_up = 0
        """Messages of ours that are not sent any more, since the broker hung up at them."""
        self._size, self._monotonic = SizeLimit(), monotonic
        self._receive_maximum = QUEUED_MESSAGES
        self.hang_ups = HangUps(SMALL_BYTES)

    @property
    def max_packet_bytes(self) -> int:
        """The largest packet that the broker takes: as it says, or as it was found to hang up at larger ones."""
        return self._size.most()

    def most(self, topic: str) -> int:
        """The largest packet that the broker takes on a topic."""
        return self._size.most(topic)

    def room(self, topic: str) -> int | None:
        """Bytes of the largest payload that the broker takes on a topic; None: it hangs up at the topic, for now."""
        if not self.hang_ups.topics.admits(topic, self._monotonic()):
            return None
        return self.most(topic) - _packet_bytes(topic, b"")

    def fits(self, topic: str, payload: bytes) -> bool:
        """True if the broker takes a message for its size, as far as is known."""
        return _packet_bytes(topic, payload) <= self.most(topic)

    def check(self, topic: str, payload: bytes) -> None:
        """Raises `ValueError` for a message that the broker does not take for its size or its topic."""
        if not self.hang_ups.topics.admits(topic, self._monotonic()):
            self.hung_up += 1
            raise ValueError("expected a topic that the broker takes, got one at which it hangs up")
        if not self.fits(topic, payload):
            self.too_large += 1
            most, size = self.most(topic), _packet_bytes(topic, payload)
            raise ValueError(f"expected at most {most} bytes, the broker's limit, got {size}")

    def begin(self, client: PahoClient) -> None:
        """A client that has sent nothing yet."""
        client.max_queued_messages_set(QUEUED_MESSAGES)
        self.hang_ups.clear()
        self._set_window(client)

    def connected(self, client: PahoClient, properties: Properties | None) -> None:
        """A connection stands, with the properties of its CONNACK."""
        self._size.connected(getattr(properties, "MaximumPacketSize", MAX_PACKET_BYTES), self._monotonic())
        self._receive_maximum = min(QUEUED_MESSAGES, getattr(properties, "ReceiveMaximum", MAX_PACKET_ID))
        self.hang_ups.connected()
        if too_large := {n for n, sent in client.unacknowledged().items() if self._is_too_large(sent)}:
            self._give_up(client, too_large)
            self.too_large += len(too_large)
            log.error(
                "the broker takes packets of %d bytes now: %d larger messages that waited are not sent again",
                self.max_packet_bytes, len(too_large),
            )  # fmt: skip
        client.begin_window(self._window)

    def answered(self, client: PahoClient, packet_id: int) -> None:
        """The broker has answered to a message, which the client has not forgotten yet."""
        sent = client.sent(packet_id)
        if sent is not None:
            self._size.taken(sent.size + PACKET_BYTES)
        was_alone = self.hang_ups.alone
        self.hang_ups.message_answered(packet_id, sent.topic if sent is not None else "")
        if was_alone and not self.hang_ups.alone:
            self._set_window(client)

    def ended(self, client: PahoClient, *, early: bool) -> bool:
        """A connection that had stood is over; `early`: before it was stable. A message at which the broker hung up
        twice, and all that are above the limit found so, are not sent again, nor are the others of a topic at which it
        hung up twice. Returns True if a message was found."""
        unacknowledged = client.unacknowledged()
        early = early or not self.hang_ups.answers
        found = self.hang_ups.ended(early, unacknowledged, (), self._monotonic())
        if found is not None and isinstance(found.suspect, int):
            sent = unacknowledged[found.suspect]
            self._size.hung_up(sent.topic, sent.size + PACKET_BYTES, self._monotonic())
            gone = {
                n
                for n, m in unacknowledged.items()
                if n == found.suspect or self._is_too_large(m) or (found.refused_s and m.topic == found.name)
            }
            self._give_up(client, gone)
            self.hung_up += len(gone)
            log.error(
                "the broker hung up at a message of %d bytes on %r, twice: it is not sent again, nor are %d others of "
                "that size or topic (%d so far)%s",
                sent.size, sent.topic, len(gone) - 1, self.hung_up, told(found.refused_s),
            )  # fmt: skip
        self._set_window(client)
        return found is not None

    def _give_up(self, client: PahoClient, packet_ids: Collection[int]) -> None:
        client.forget(packet_ids)
        for packet_id in packet_ids:
            self.hang_ups.given_up(packet_id)

    def _is_too_large(self, sent: Sent) -> bool:
        return sent.size + PACKET_BYTES > self.most(sent.topic)

    def _set_window(self, client: PahoClient) -> None:
        client.limit_in_flight(self._window)

    @property
    def _window(self) -> int:
        return 1 if self.hang_ups.alone else self._receive_maximum


def told(refused_s: float) -> str:
    """For how long a topic is refused, for the log."""
    return f"; nothing is sent to that topic for {refused_s:g} s" if refused_s else ""


def _packet_bytes(topic: str, payload: bytes) -> int:
    return len(topic.encode()) + len(payload) + PACKET_BYTES
