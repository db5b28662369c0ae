"""The messages of ours that a broker takes, by its word and by what it hung up at: for the control plane's connection.

Of one size limit and one window the CONNACK tells (MQTT 5, 3.2.2.3); brokers of 3.1.1 tell nothing and hang up.
"""

from __future__ import annotations

import logging
from typing import Final

from paho.mqtt.properties import Properties

from edgert.core.results.pieces import PACKET_BYTES
from edgert.mqtt.clients.paho_client import PahoClient
from edgert.mqtt.packets.packets import MAX_PACKET_BYTES, MAX_PACKET_ID
from edgert.mqtt.session.suspicion import Suspicion

log = logging.getLogger(__name__)

QUEUED_MESSAGES: Final = 1_000
"""Messages of ours that paho keeps; no more are taken. The outbox keeps what it sends until it landed."""
LEAST_PACKET_BYTES: Final = 1_024
"""A broker that hangs up at less does so for another reason than the size."""


class MessageLimits:
    """Heeds them for one client after the other: each connection has the limits of its CONNACK, and a size at which
    the broker hung up is remembered."""

    def __init__(self) -> None:
        self.too_large = 0
        """Messages of ours that the broker does not take for their size."""
        self.hung_up = 0
        """Messages of ours that are not sent any more, since the broker hung up at them."""
        self._stated = self._learned = MAX_PACKET_BYTES
        self._receive_maximum = QUEUED_MESSAGES
        self._suspicion = Suspicion()

    @property
    def max_packet_bytes(self) -> int:
        """The largest packet that the broker takes: as it says, or as it was found to hang up at larger ones."""
        return min(self._stated, self._learned)

    def check(self, topic: str, payload: bytes) -> None:
        """Raises `ValueError` for a message that the broker does not take for its size."""
        size = len(topic.encode()) + len(payload) + PACKET_BYTES
        if size > self.max_packet_bytes:
            self.too_large += 1
            raise ValueError(f"expected at most {self.max_packet_bytes} bytes, the broker's limit, got {size}")

    def begin(self, client: PahoClient) -> None:
        """A client that has sent nothing yet."""
        client.max_queued_messages_set(QUEUED_MESSAGES)
        self._suspicion.clear()
        self._set_window(client)

    def connected(self, client: PahoClient, properties: Properties | None) -> None:
        """A connection stands, with the properties of its CONNACK."""
        self._stated = getattr(properties, "MaximumPacketSize", MAX_PACKET_BYTES)
        self._receive_maximum = min(QUEUED_MESSAGES, getattr(properties, "ReceiveMaximum", MAX_PACKET_ID))
        self._set_window(client)

    def answered(self, client: PahoClient, packet_id: int) -> None:
        """The broker has answered to a message."""
        was_alone = self._suspicion.alone
        self._suspicion.answered(packet_id)
        if was_alone and not self._suspicion.alone:
            self._set_window(client)

    def ended(self, client: PahoClient, *, early: bool) -> bool:
        """A connection that had stood is over; `early`: before it was stable. A message at which the broker hung up
        twice, and all that are as large, are not sent again. Returns True if a smaller limit was found so."""
        known = self.max_packet_bytes
        unacknowledged = client.unacknowledged()
        found = self._suspicion.ended(early, unacknowledged)
        if found is not None:
            sent = unacknowledged[found]
            if sent.size > LEAST_PACKET_BYTES:
                self._learned = max(LEAST_PACKET_BYTES, sent.size // 4)
            gone = {n for n, m in unacknowledged.items() if n == found or m.size > self.max_packet_bytes}
            client.forget(gone)
            self.hung_up += len(gone)
            for packet_id in gone:
                self._suspicion.answered(packet_id)
            log.error(
                "the broker hung up at a message of %d bytes on %r, twice: it is not sent again, nor are %d others of "
                "that size (%d so far)",
                sent.size, sent.topic, len(gone) - 1, self.hung_up,
            )  # fmt: skip
        self._set_window(client)
        return self.max_packet_bytes < known

    def _set_window(self, client: PahoClient) -> None:
        client.limit_in_flight(1 if self._suspicion.alone else self._receive_maximum)
