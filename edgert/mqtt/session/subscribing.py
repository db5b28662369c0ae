"""SUBSCRIBE packets that wait or are in flight: one after the other where the broker may have hung up at one.

A flow that changes its filter just then misses what comes between its UNSUBSCRIBE and its SUBSCRIBE that waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from edgert.mqtt.packets import encode
from edgert.mqtt.packets.packets import Subscription


def groups(subscriptions: Sequence[Subscription], *, by_id: bool, alone: bool) -> list[list[int]]:
    """Indexes in `subscriptions`, a list per packet: a SUBSCRIBE has one subscription identifier (`by_id`: the version
    has them), and one filter where packets go `alone`."""
    found: dict[object, list[int]] = {}
    for index, one in enumerate(subscriptions):
        key = index if alone else one.subscription_id if by_id else None
        found.setdefault(key, []).append(index)
    return list(found.values())


class Subscribing:
    """Subscriptions of one connection."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, list[Subscription]]] = deque()
        self._in_flight: dict[int, list[str]] = {}

    @property
    def filters(self) -> list[str]:
        """Filters that the broker has not answered, in the order of sending."""
        return [one for filters in self._in_flight.values() for one in filters]

    def clear(self) -> None:
        """The connection is over."""
        self._waiting.clear()
        self._in_flight.clear()

    def add(self, packet_id: int, subscriptions: list[Subscription]) -> None:
        self._waiting.append((packet_id, subscriptions))

    def answered(self, packet_id: int) -> list[str]:
        """SUBACK has come. Returns the packet's filters."""
        return self._in_flight.pop(packet_id, [])

    def due(self, level: int, room: int) -> list[bytes]:
        """Packets to be written now, where so many may be in flight."""
        packets = []
        while self._waiting and len(self._in_flight) < room:
            packet_id, subscriptions = self._waiting.popleft()
            self._in_flight[packet_id] = [one.filter for one in subscriptions]
            packets.append(encode.subscribe(level, packet_id, subscriptions))
        return packets
