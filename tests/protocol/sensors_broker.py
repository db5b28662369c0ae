"""A broker for sensors that keeps to MQTT 5 and says nothing: packet ids from a small window, redelivery, QoS 1 and 2.

It knows the truth that the protocol never looks at: which message is which.
"""

from __future__ import annotations

import random
from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final, Literal

from edgert.mqtt.packets.packets import Subscription
from edgert.mqtt.topics import covers
from tests.protocol.ledger import Copy, Ledger
from tests.protocol.wire import Packet

CHANGES: Final = ("subscribe", "unsubscribe")


@dataclass(slots=True)
class Session:
    """What a broker keeps of its client."""

    present: bool = False
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    waiting: deque[Copy] = field(default_factory=deque)
    flying: dict[int, tuple[Copy, Literal["sent", "received"]]] = field(default_factory=dict)
    """By packet id, in the order of the first delivery; "received": PUBREC has come."""
    last_id: int = 0


class SensorsBroker:
    """`ids`: how many packet ids there are. `low`: the lowest free id is taken, else the next in turn. `durable`: it
    survives its own death; else it may come back as it was when `snap` was called last."""

    def __init__(
        self,
        draw: random.Random,
        ledger: Ledger,
        qos: int,
        ids: int,
        low: bool,
        durable: bool,
    ) -> None:
        self._ledger = ledger
        self.changes_in_one_step = False
        """Whether nothing comes between the end of a subscription and the next one: for that MQTT has no means."""
        self._draw, self.qos, self._ids, self._low, self.durable = draw, qos, ids, low, durable
        self.session = Session()
        self._snapshot: Session | None = None
        self.connected = False
        self.down: deque[Packet] = deque()
        self.up: deque[Packet] = deque()
        self._delivered: deque[int] = deque()
        """By this connection, and not acknowledged by the gateway yet: packet ids in the order of delivery."""

    # -- sensors

    def publish(self, uid: int, topic: str, payload: bytes) -> None:
        """A sensor's message: a copy for each subscription that matches."""
        self._ledger.published(uid, topic, self.session.subscriptions)
        for subscription in self.session.subscriptions.values():
            if covers(subscription.filter, topic):
                ids = (subscription.subscription_id,) if subscription.subscription_id else ()
                self.session.waiting.append(Copy(uid, topic, payload, ids, subscription.filter))

    # -- the gateway's connection

    def connect(self) -> bool:
        """Whether there is a session. What was under way is delivered anew."""
        self.connected = True
        present = self.session.present
        self.session.present = True
        self.up.clear()
        self.down.clear()
        self._delivered.clear()
        for packet_id, (copy, state) in self.session.flying.items():
            if state == "sent":
                self._delivered.append(packet_id)
                self.down.append(("publish", (copy, packet_id, True)))
            else:
                self.down.append(("release", packet_id))
        return present

    def cut(self) -> list[Packet]:
        """The connection breaks: of what is under way some arrives all the same, in order. Returns what comes down."""
        self.connected = False
        for _ in range(self._draw.randint(0, len(self.up))):
            self.receive()
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
        self._delivered.append(packet_id)
        self.down.append(("publish", (copy, packet_id, False)))
        return True

    def hear(self, packet: Packet) -> None:
        """The gateway says something. What it acknowledges it answers for, whether or not it gets here."""
        kind, what = packet
        if kind == "ack" and what in self.session.flying:
            self._ledger.acknowledged(self.session.flying[what][0])
        if self.connected:
            if kind == "ack":
                first = self._delivered.popleft() if self._delivered else None
                assert what == first, f"packet id {what} is acknowledged in the place of {first}"
            self.up.append(packet)

    def holds(self) -> set[Copy]:
        """What it will deliver, if nothing becomes of it."""
        return {*self.session.waiting, *(copy for copy, state in self.session.flying.values() if state == "sent")}

    def receive(self) -> bool:
        """Takes one packet of the gateway's."""
        if not self.up:
            return False
        packet = self.up.popleft()
        self._take(packet)
        while self.changes_in_one_step and packet[0] in CHANGES and self.up and self.up[0][0] in CHANGES:
            packet = self.up.popleft()
            self._take(packet)
        return True

    def _take(self, packet: Packet) -> None:
        kind, what = packet
        flying = self.session.flying
        if kind == "subscribe":
            packet_id, subscriptions = what
            self.session.subscriptions.update({s.filter: s for s in subscriptions})
            if self.connected:
                self.down.append(("subscribed", (packet_id, [s.qos for s in subscriptions])))
        elif kind == "unsubscribe":
            packet_id, filters = what
            for topic_filter in filters:
                self.session.subscriptions.pop(topic_filter, None)
            if self.connected:
                self.down.append(("unsubscribed", (packet_id, [0] * len(filters))))
        elif kind == "complete" or (kind == "ack" and self.qos == 1):
            flying.pop(what, None)
        elif what in flying:
            flying[what] = (flying[what][0], "received")
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
        now, then = self.session, self._snapshot
        self._ledger.broker_lost(_copies(now) - _copies(then))
        # what is under way under its old id is known by that, until PUBREL makes the gateway forget it
        same = {copy for packet_id, (copy, _) in then.flying.items() if now.flying.get(packet_id) == (copy, "sent")}
        self._ledger.broker_has_again(_copies(then) - same)
        self.session = deepcopy(self._snapshot)

    def forget(self) -> None:
        """The session is gone."""
        self._ledger.broker_lost(_copies(self.session))
        self.session = Session()
        self._snapshot = None


def _copies(session: Session) -> set[Copy]:
    return {*session.waiting, *(copy for copy, _ in session.flying.values())}
