"""A broker for sensors that keeps to MQTT 5 and says nothing: packet ids from a small window, redelivery, QoS 1 and 2.

It knows the truth that the protocol never looks at: which message is which.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

from edgert.mqtt.packets import Publish, Subscription
from edgert.mqtt.topics import covers


@dataclass(frozen=True, slots=True)
class Copy:
    """A message on its way to the gateway by one subscription (or by several that the broker gives together)."""

    uid: int
    topic: str
    payload: bytes
    ids: tuple[int, ...]


@dataclass(slots=True)
class Session:
    """What a broker keeps of its client."""

    present: bool = False
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    waiting: deque[Copy] = field(default_factory=deque)
    flying: dict[int, tuple[Copy, Literal["sent", "received"]]] = field(default_factory=dict)
    """By packet id, in the order of the first delivery; "received": PUBREC has come."""
    last_id: int = 0


Packet = tuple[str, Any]
"""What it is, and what it says."""


class SensorsBroker:
    """`ids`: how many packet ids there are. `low`: the lowest free id is taken, else the next in turn. `durable`: it
    survives its own death; else it may come back as it was when `snap` was called last."""

    def __init__(
        self, draw: random.Random, filters: tuple[str, ...], qos: int, ids: int, low: bool, durable: bool
    ) -> None:
        self.filters = filters
        """What will be subscribed: a message that one of these would bring, and no subscription does, is lost."""
        self._draw, self.qos, self._ids, self._low, self.durable = draw, qos, ids, low, durable
        self.session = Session()
        self._snapshot: Session | None = None
        self.connected = False
        self.down: deque[Packet] = deque()
        self.up: deque[Packet] = deque()
        self.lost: set[int] = set()
        """What the broker itself has lost."""
        self.again: Counter[int] = Counter()
        """How often it may deliver what it had delivered, since it went back to an older state."""
        self.acknowledged: set[Copy] = set()
        """What it will not deliver again, since PUBACK (QoS 2: PUBREC) has come."""

    # -- sensors

    def publish(self, uid: int, topic: str, payload: bytes) -> None:
        """A sensor's message: a copy for each subscription that matches."""
        if any(covers(f, topic) and f not in self.session.subscriptions for f in self.filters):
            self.lost.add(uid)
        for subscription in self.session.subscriptions.values():
            if covers(subscription.filter, topic):
                ids = (subscription.subscription_id or 0,)
                self.session.waiting.append(Copy(uid, topic, payload, ids))

    # -- the gateway's connection

    def connect(self) -> bool:
        """Whether there is a session. What was under way is delivered anew."""
        self.connected = True
        present = self.session.present
        self.session.present = True
        self.up.clear()
        self.down.clear()
        for packet_id, (copy, state) in self.session.flying.items():
            if state == "sent":
                self.down.append(("publish", self._packet(copy, packet_id, dup=True)))
            else:
                self.down.append(("release", packet_id))
        return present

    def cut(self) -> list[Packet]:
        """The connection breaks: of what is under way some arrives all the same, in order. Returns what comes down."""
        self.connected = False
        for _ in range(self._draw.randint(0, len(self.up))):
            self._take(self.up.popleft())
        down = [self.down.popleft() for _ in range(self._draw.randint(0, len(self.down)))]
        self.up.clear()
        self.down.clear()
        return down

    def send(self) -> bool:
        """The next message on its way, if an id is free."""
        session = self.session
        if not (self.connected and session.waiting and len(session.flying) < self._ids):
            return False
        numbers = list(range(1, self._ids + 1))
        if not self._low:
            numbers = [(session.last_id + n) % self._ids + 1 for n in range(self._ids)]
        packet_id = next(n for n in numbers if n not in session.flying)
        session.last_id = packet_id
        copy = session.waiting.popleft()
        session.flying[packet_id] = (copy, "sent")
        self.down.append(("publish", self._packet(copy, packet_id, dup=False)))
        return True

    def _packet(self, copy: Copy, packet_id: int, dup: bool) -> Publish:
        return Publish(copy.topic, copy.payload, self.qos, False, dup, packet_id, copy.ids)

    def receive(self) -> bool:
        """Takes one packet of the gateway's."""
        if not self.up:
            return False
        self._take(self.up.popleft())
        return True

    def _take(self, packet: Packet) -> None:
        kind, what = packet
        flying = self.session.flying
        if kind == "subscribe":
            token, subscriptions = what
            self.session.subscriptions.update({s.filter: s for s in subscriptions})
            if self.connected:
                self.down.append(("subscribed", (token, tuple((s.filter, s.qos) for s in subscriptions))))
        elif kind == "unsubscribe":
            for topic_filter in what:
                self.session.subscriptions.pop(topic_filter, None)
        elif kind == "complete" or (kind == "ack" and self.qos == 1):
            if what in flying:
                self.acknowledged.add(flying.pop(what)[0])
        elif what in flying:
            copy, _ = flying[what]
            self.acknowledged.add(copy)
            flying[what] = (copy, "received")
            if self.connected:
                self.down.append(("release", what))

    # -- faults

    def snap(self) -> None:
        """What a broker that is not durable will know after its death."""
        self._snapshot = deepcopy(self.session)

    def die(self) -> None:
        """And comes back. The connection must be cut before."""
        if self.durable or self._snapshot is None:
            return
        now, then = _uids(self.session), _uids(self._snapshot)
        self.lost |= now - then
        self.again.update(then)
        self.session = deepcopy(self._snapshot)

    def forget(self) -> None:
        """The session is gone."""
        self.lost |= _uids(self.session)
        self.session = Session()
        self._snapshot = None


def _uids(session: Session) -> set[int]:
    return {copy.uid for copy in session.waiting} | {copy.uid for copy, _ in session.flying.values()}
