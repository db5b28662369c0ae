"""The rules for a broker that hangs up at what it is sent: one set for both connections of a gateway. Pure.

A broker may hang up at a message (malformed, too large), at a topic or at a filter (the access rules of EMQX, HiveMQ
and AWS IoT), and need not say which it was. `PacketSuspicion` finds it. A message is given up. A topic is refused after
two of its messages were, and a filter once it was found twice, for a time that grows (`Forbidden`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from edgert.mqtt.hang_ups.forbidden import Forbidden
from edgert.mqtt.hang_ups.suspicion import PacketSuspicion, Sent, Suspect

TOPIC_BLAMES: Final = 2
"""Messages of a topic at which the broker hung up: with one it may have been that message."""
FILTER_BLAMES: Final = 2
"""Times that a filter was found, each by three ends of connections: what a flow misses while its filter is left out is
lost, and a link that flaps looks much the same."""
MOST_FILTER_S: Final = 600.0
"""A filter is tried again within ten minutes: input waits for it, and a bad link may have been to blame."""
HUNG_UP: Final = 0x100
"""In place of the broker's reason code, none of which has more than a byte: it hung up at the message or the filter."""
TOPIC_REFUSED: Final = 0x101
"""In place of the broker's reason code: the message waited when its topic was refused."""

NOT_OF_A_PACKET: Final = frozenset({0x89, 0x8B, 0x8D, 0x8E, 0x93, 0x98, 0x9C, 0x9D, 0x9F})
"""Reasons of a DISCONNECT that no single packet is to blame for: busy, shutting down, time-out, taken over, too many in
flight, an administrator's will, another server, too many connections."""


@dataclass(frozen=True, slots=True)
class Found:
    """The packet at which the broker hung up."""

    suspect: Suspect
    """Packet id of a message, or a filter."""
    name: str
    """Its topic, or the filter."""
    refused_s: float
    """Seconds for which nothing is sent with that name; 0: only the one message is given up."""


class HangUps:
    """Finds packets at which the broker hangs up, over many connections. Times are monotonic seconds."""

    def __init__(self, most_bytes: int | None = None) -> None:
        """`most_bytes`: a larger message may be one at whose size the broker hangs up, which the caller sees to: its
        topic is not blamed."""
        self._most_bytes = most_bytes
        self.topics: Forbidden[str] = Forbidden(TOPIC_BLAMES)
        self.filters: Forbidden[str] = Forbidden(FILTER_BLAMES, MOST_FILTER_S)
        self.found = 0
        """Packets at which the broker hung up."""
        self.answers = False
        """The broker has answered to a message or a subscription on this connection. One that answers to nothing may
        hang up late at what it does not take, however long the connection stood."""
        self._suspicion = PacketSuspicion()

    def connected(self) -> None:
        """A connection stands."""
        self.answers = False

    @property
    def alone(self) -> bool:
        """Packets have to go out one at a time."""
        return self._suspicion.alone

    def message_answered(self, packet_id: int, topic: str) -> None:
        """The broker has answered to a message."""
        self.answers = True
        self._suspicion.answered(packet_id)
        self.topics.taken(topic)

    def filter_answered(self, topic_filter: str) -> None:
        """The broker has answered to a subscription."""
        self.answers = True
        self._suspicion.answered(topic_filter)
        self.filters.taken(topic_filter)

    def given_up(self, packet_id: int) -> None:
        """A message is not sent any more."""
        self._suspicion.answered(packet_id)

    def stable(self) -> None:
        """The connection has stood for so long that nothing in flight is suspected any more."""
        self._suspicion.clear()

    def ended(self, early: bool, messages: Mapping[int, Sent], filters: Collection[str], now: float) -> Found | None:
        """A connection is over; `early`: it was not stable before. `messages`, `filters`: what the broker has not
        answered, in the order of sending."""
        names: dict[Suspect, str] = {n: sent.topic for n, sent in messages.items()} | {f: f for f in filters}
        for suspect, name in names.items():
            if self._known(suspect).on_probation(name, now):
                self._suspicion.clear()
                return self._blame(suspect, name, now)
        found = self._suspicion.ended(early, list(names))
        if found is None:
            return None
        if isinstance(found, int) and self._most_bytes is not None and messages[found].size > self._most_bytes:
            self.found += 1
            return Found(found, names[found], 0.0)
        return self._blame(found, names[found], now)

    def blame_topic(self, topic: str, now: float) -> None:
        """The broker hung up at a message of QoS 0, which is not sent again in any case."""
        self.found += self.topics.blamed(topic, now) > 0

    def clear(self) -> None:
        """A client that has sent nothing yet takes the place of the last one."""
        self._suspicion.clear()

    def _blame(self, suspect: Suspect, name: str, now: float) -> Found:
        self.found += 1
        return Found(suspect, name, self._known(suspect).blamed(name, now))

    def _known(self, suspect: Suspect) -> Forbidden[str]:
        return self.filters if isinstance(suspect, str) else self.topics
