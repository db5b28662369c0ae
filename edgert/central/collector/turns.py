"""Turns of gateways at the collector: the gateway that has cost the least time is next. Pure.

Each gateway has a queue. Time is charged to the gateway that caused it, as measured, so whatever makes a message
expensive (many flows, epochs, tables or refusals), its own gateway waits for it and the others go on.

Gateways of which results came to the landing, and gateways of which none did, take turns alternately: names cost
nothing to invent, and however many of them ask, a gateway with results has every second turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from edgert.central.collector.inbox import ResultMessage
from edgert.central.collector.messages import gateway_of_topic
from edgert.central.landing.lru import LruCache

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
"""Gateways of a class whose cost is remembered."""


@dataclass(slots=True)
class _Queue:
    messages: deque[ResultMessage] = field(default_factory=deque)
    bytes: int = 0


@dataclass(slots=True)
class _Class:
    """Account of the gateways of one class."""

    spent: dict[str, float] = field(default_factory=dict)
    """Gateway -> seconds."""
    floor: float = 0.0
    """Seconds that a new gateway is taken to have spent: those of the gateway that was served last."""

    def of(self, gateway: str) -> float:
        return self.spent.get(gateway, self.floor)

    def charge(self, costs: Mapping[str, float]) -> None:
        """Adds what gateways of this class have cost, in seconds."""
        self.floor = max(self.floor, min(map(self.of, costs), default=self.floor))
        for gateway, seconds in costs.items():
            self.spent[gateway] = self.of(gateway) + seconds
        if len(self.spent) > _FORGET:
            self.spent = {name: spent for name, spent in self.spent.items() if spent > self.floor}


class Turns:
    """Messages by gateway. `spent` is in seconds; a gateway that was silent has no credit for it."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._queues: dict[str, _Queue] = {}
        self._landing, self._new = _Class(), _Class()
        self._landed: LruCache[str, None] = LruCache(_FORGET)
        """Gateways of the class `_landing`: results of them came to the landing. All others are `_new`."""
        self._quotas: dict[str, int] = {}
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
        """Gateways with messages: of each class the one that has spent least first, and of the classes alternately."""
        ordered = sorted(self._queues, key=self.spent)
        landing = [name for name in ordered if name in self._landed]
        new = [name for name in ordered if name not in self._landed]
        return [name for pair in zip_longest(landing, new) for name in pair if name is not None]

    def spent(self, gateway: str) -> float:
        """Seconds that a gateway has cost, to be compared within its class."""
        return self._class_of(gateway).of(gateway)

    def quota(self, gateway: str) -> int:
        """Messages of a gateway's next turn."""
        return self._quotas.get(gateway, FIRST_QUOTA)

    def landed(self, costs: Mapping[str, float]) -> None:
        """Works as `charge`, of what a landing has cost: the gateways' next turns become longer or shorter by it."""
        self._admit(costs)
        self.charge(costs)
        for gateway, seconds in costs.items():
            if seconds < _SHORT_S:
                self._quotas[gateway] = min(MOST_QUOTA, 2 * self.quota(gateway))
            elif seconds > _LONG_S:
                self._quotas[gateway] = max(LEAST_QUOTA, self.quota(gateway) // 2)
        if len(self._quotas) > _FORGET:
            self._quotas = {name: quota for name, quota in self._quotas.items() if name in self._landing.spent}

    def charge(self, costs: Mapping[str, float]) -> None:
        """Add what gateways have cost, in seconds."""
        for those in (self._landing, self._new):
            those.charge({name: seconds for name, seconds in costs.items() if self._class_of(name) is those})

    def keep(self, ours: Callable[[ResultMessage], bool]) -> None:
        """Drop all messages that are not `ours`."""
        for gateway in list(self._queues):
            messages = self._queues.pop(gateway).messages
            self._bytes -= sum(message.size for message in messages)
            for message in filter(ours, messages):
                self._put(gateway, message, at_front=False)

    def _only(self, message: ResultMessage) -> bool:
        return self._bytes == message.size

    def _class_of(self, gateway: str) -> _Class:
        return self._landing if gateway in self._landed else self._new

    def _admit(self, gateways: Iterable[str]) -> None:
        """Results of these gateways came to the landing. What one cost above other new ones is its debt there."""
        for gateway in gateways:
            if gateway not in self._landed:
                debt = max(0.0, self._new.spent.pop(gateway, 0.0) - self._new.floor)
                self._landing.spent[gateway] = self._landing.floor + debt
            for forgotten, _ in self._landed.set(gateway, None):
                self._landing.spent.pop(forgotten, None)

    def _enter(self, gateway: str) -> None:
        if gateway not in self._queues:
            of = self._class_of(gateway)
            of.spent[gateway] = max(of.of(gateway), of.floor)

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
