"""Turns of gateways at the collector: the gateway that has cost the least time is next. Pure.

Each gateway has a queue. Time is charged to the gateway that caused it, as measured, so whatever makes a message
expensive (many flows, epochs, tables or refusals), its own gateway waits for it and the others go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from edgert.central.collector.inbox import ResultMessage
from edgert.central.collector.messages import gateway_of_topic

MOST_BYTES: Final = 64 << 20
"""Limit of all messages that wait. Beyond, the newest one of the longest queue goes: its gateway sends it again."""
FIRST_QUOTA: Final = 64
LEAST_QUOTA: Final = 32
"""Where a commit itself takes long, as in an object store, fewer messages in it would only make more commits."""
MOST_QUOTA: Final = 4_096
_SHORT_S: Final = 0.25
_LONG_S: Final = 0.5
"""Between these a landing should take of one gateway's turn: its next turn has twice or half as many messages."""
_FORGET: Final = 20_000
"""Gateways whose cost is remembered."""


@dataclass(slots=True)
class _Queue:
    messages: deque[ResultMessage] = field(default_factory=deque)
    bytes: int = 0


class Turns:
    """Messages by gateway. `spent` is in seconds; a gateway that was silent has no credit for it."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._queues: dict[str, _Queue] = {}
        self._spent: dict[str, float] = {}
        self._quotas: dict[str, int] = {}
        self._floor = 0.0
        """Time that a new gateway is taken to have spent: that of the gateway that was served last."""
        self._bytes = 0
        self.dropped = 0

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, message: ResultMessage) -> None:
        """A message at the end of its gateway's queue."""
        name = gateway_of_topic(message.topic)
        self._enter(name)
        self._put(name, message, at_front=False)
        while self._bytes > self._most_bytes and not self._only(message):
            longest = max(self._queues, key=lambda gateway: self._queues[gateway].bytes)
            self._remove(longest, self._queues[longest].messages.pop())
            self.dropped += 1

    def put_back(self, message: ResultMessage) -> None:
        """A message that could not be taken yet comes first of its gateway's."""
        self._put(gateway_of_topic(message.topic), message, at_front=True)

    def take(self, gateway: str) -> ResultMessage | None:
        """The gateway's first message."""
        if gateway not in self._queues:
            return None
        message = self._queues[gateway].messages.popleft()
        self._remove(gateway, message)
        return message

    def order(self) -> list[str]:
        """Gateways with messages, the one that has spent least first."""
        return sorted(self._queues, key=self.spent)

    def spent(self, gateway: str) -> float:
        """Seconds that a gateway has cost."""
        return self._spent.get(gateway, self._floor)

    def quota(self, gateway: str) -> int:
        """Messages of a gateway's next turn."""
        return self._quotas.get(gateway, FIRST_QUOTA)

    def landed(self, costs: Mapping[str, float]) -> None:
        """Works as `charge`, of what a landing has cost: the gateways' next turns become longer or shorter by it."""
        self.charge(costs)
        for gateway, seconds in costs.items():
            if seconds < _SHORT_S:
                self._quotas[gateway] = min(MOST_QUOTA, 2 * self.quota(gateway))
            elif seconds > _LONG_S:
                self._quotas[gateway] = max(LEAST_QUOTA, self.quota(gateway) // 2)

    def charge(self, costs: Mapping[str, float]) -> None:
        """Add what gateways have cost, in seconds."""
        if costs:
            self._floor = max(self._floor, min(map(self.spent, costs)))
        for gateway, seconds in costs.items():
            self._spent[gateway] = self.spent(gateway) + seconds
        if len(self._spent) > _FORGET:
            self._spent = {name: spent for name, spent in self._spent.items() if spent > self._floor}
            self._quotas = {name: quota for name, quota in self._quotas.items() if name in self._spent}

    def keep(self, ours: Callable[[ResultMessage], bool]) -> None:
        """Drop all messages that are not `ours`."""
        for gateway in list(self._queues):
            messages = self._queues.pop(gateway).messages
            self._bytes -= sum(message.size for message in messages)
            for message in filter(ours, messages):
                self._put(gateway, message, at_front=False)

    def _only(self, message: ResultMessage) -> bool:
        return self._bytes == message.size

    def _enter(self, gateway: str) -> None:
        if gateway not in self._queues:
            self._spent[gateway] = max(self.spent(gateway), self._floor)

    def _put(self, gateway: str, message: ResultMessage, *, at_front: bool) -> None:
        queue = self._queues.setdefault(gateway, _Queue())
        (queue.messages.appendleft if at_front else queue.messages.append)(message)
        queue.bytes += message.size
        self._bytes += message.size

    def _remove(self, gateway: str, message: ResultMessage) -> None:
        queue = self._queues[gateway]
        queue.bytes -= message.size
        self._bytes -= message.size
        if not queue.messages:
            del self._queues[gateway]
