"""The largest packet that a broker takes: as it says, or as it was found out where it hung up. Pure.

One rule: a hang-up at a packet halves what is sent. A broker of MQTT 3.1.1 states no limit (one of version 5 does, in
its CONNACK), so the limit is found within a factor of two: a broker that takes 8,000 bytes and hangs up at 20,001 gets
packets of 10,000 (once more a hang-up), then of 5,000. It is tried again upwards: at the first CONNACK an hour after
the last hang-up all limits double, as a broker gets other limits by a restart.

A hang-up may have another reason than the size: a topic that the client may not write to, for example. So it says
nothing of other topics if the broker has taken as large a packet, or if the packet is small and the first of its kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from edgert.mqtt.packets.packets import MAX_PACKET_BYTES

SMALL_BYTES: Final = 1_024
"""A limit below this is unusual: it needs hang-ups on two topics before it holds for all of them."""
RAISE_S: Final = 3_600.0
"""From the last hang-up until a CONNACK raises the limits."""
MOST_TOPICS: Final = 1_000
"""Topics of which limits are known. Beyond, the one learned first is forgotten."""


@dataclass(slots=True)
class SizeLimit:
    """Sizes are of whole packets, in bytes; times are of a clock that never goes back, in seconds."""

    _stated: int = MAX_PACKET_BYTES
    _learned: int = MAX_PACKET_BYTES
    """For all topics."""
    _by_topic: dict[str, int] = field(default_factory=dict)
    """The learned limit, for the topics on which the broker hung up."""
    _taken: int = 0
    """The largest packet that the broker took, since it hung up at one that was not larger."""
    _raise_at: float = 0.0

    def most(self, topic: str = "") -> int:
        """The largest packet that may be sent on a topic; without one: on a topic that is not known yet."""
        return min(self._stated, self._learned, self._by_topic.get(topic, MAX_PACKET_BYTES))

    def connected(self, stated: int, now: float) -> None:
        """A CONNACK came that states this limit (`MAX_PACKET_BYTES`: none)."""
        self._stated = stated
        if now >= self._raise_at:
            self._raise_at = now + RAISE_S
            self._learned = min(MAX_PACKET_BYTES, 2 * self._learned)
            doubled = {topic: 2 * size for topic, size in self._by_topic.items()}
            self._by_topic = {topic: size for topic, size in doubled.items() if size < MAX_PACKET_BYTES}

    def taken(self, size: int) -> None:
        """The broker has acknowledged a packet."""
        self._taken = max(self._taken, size)

    def hung_up(self, topic: str, size: int, now: float) -> None:
        """The broker hung up at a packet that was alone on its way."""
        self._raise_at = now + RAISE_S
        others = self._by_topic.keys() - {topic}
        self._by_topic[topic] = min(size // 2, self._by_topic.get(topic, MAX_PACKET_BYTES))
        if len(self._by_topic) > MOST_TOPICS:
            del self._by_topic[next(iter(self._by_topic))]
        if size <= self._taken:
            self._taken = 0  # not for its size, or the broker has another limit than it had
        elif size > SMALL_BYTES or others:
            self._learned = min(self._learned, max(size // 2, self._taken))
