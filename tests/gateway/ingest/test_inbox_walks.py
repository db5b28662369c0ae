"""The delivery rules against a model of a broker: nothing is lost or doubled, whatever crashes, except what is counted.

The truth is the identity of a payload object, which the inbox never looks at: it sees id, DUP, topic and payload. One
machine walks through both lives of the gateway: `memory` dies in a crash, `disk` is what commits have written.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from edgert.core.checkpoint.position import Position
from edgert.mqtt.packets.packets import Publish
from edgert.runtime.checkpoint.progress import Progress
from gateway.ingest.inbox import NOWHERE, Inbox, Reader, Route
from tests.publishes import in_runs

WINDOW = 4
READS = {"A": {"t0": False, "t1": False}, "B": {"t0": True}}
"""Flow → topic → whether it takes retained messages."""


@dataclass(eq=False)
class Sent:
    """A message as its sender knows it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    unique: bool

    def takers(self) -> list[str]:
        return [f for f, topics in READS.items() if self.topic in topics and (topics[self.topic] or not self.retain)]


@dataclass
class Disk:
    pages: dict[int, bytes] = field(default_factory=dict)
    next_index: int = 1
    positions: dict[str, Position] = field(default_factory=lambda: {f: Position() for f in READS})
    taken: dict[str, tuple[Sent, ...]] = field(default_factory=lambda: dict.fromkeys(READS, ()))


def copy_of(text: bytes) -> bytes:
    """Equal, but another object."""
    return bytes(bytearray(text))


class Delivery(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Sent] = []
        self.inflight: dict[int, Sent] = {}
        """At the broker, by packet id, in the order sent."""
        self.received: set[int] = set()
        """Of these packet ids PUBREC has come."""
        self.under_way: list[tuple[int, Sent | None, bool]] = []
        """None: PUBREL."""
        self.acks: list[int] = []
        self.disk = Disk()
        self.excused: dict[str, set[Sent]] = {f: set() for f in READS}
        """Counted as ambiguous, or lost by the broker itself."""
        self.number = 0
        self.start()

    # -- the gateway's lives

    def start(self) -> None:
        self.inbox = Inbox()
        self.inbox.table.load(self.disk.pages.items())
        self.inbox.next_index = self.disk.next_index
        self.flows = {f: Progress(p) for f, p in self.disk.positions.items()}
        self.inbox.flows.extend(self.flows.values())
        self.inbox.resume()
        self.fed: dict[str, list[Sent]] = {f: list(taken) for f, taken in self.disk.taken.items()}
        self.captured: dict[str, tuple[Position, tuple[Sent, ...]]] = {}
        self.routes: dict[str, Route] = {}
        for topic in ("t0", "t1"):
            readers = [Reader(self.flows[f], f, r[topic]) for f, r in READS.items() if topic in r]  # type: ignore[arg-type]
            self.routes[topic] = Route(tuple(readers))
        self.begin_connection()

    def begin_connection(self) -> None:
        self.inbox.connection_lost()
        self.arrived: list[tuple[int, Sent]] = []
        self.acks.clear()
        self.under_way = [(i, None if i in self.received else m, True) for i, m in self.inflight.items()]

    @rule(reaches=st.integers(0, 5))
    def disconnect(self, reaches: int) -> None:
        self.broker_takes(reaches)
        self.begin_connection()

    @rule(reaches=st.integers(0, 5))
    def crash(self, reaches: int) -> None:
        self.broker_takes(reaches)
        self.start()

    @rule()
    def session_is_lost(self) -> None:
        for message in [*self.waiting, *self.inflight.values()]:
            for flow in message.takers():
                self.excused[flow].add(message)
        self.waiting.clear()
        self.inflight.clear()
        self.received.clear()
        self.begin_connection()
        self.inbox.session_lost()
        self.write_table()

    # -- the broker

    @rule(topic=st.sampled_from(["t0", "t0", "t1", "nobody"]), qos=st.sampled_from([1, 1, 2]),
          text=st.sampled_from([b"", b"", b"", b"x"]), retain=st.booleans() | st.just(False))  # fmt: skip
    def publish(self, topic: str, qos: int, text: bytes, retain: bool) -> None:
        self.number += 1
        self.waiting.append(Sent(topic, copy_of(text or b"%d" % self.number), qos, retain and topic == "t0", not text))

    @rule(count=st.integers(1, 4))
    def broker_sends(self, count: int) -> None:
        for _ in range(count):
            free = [i for i in range(1, WINDOW + 1) if i not in self.inflight]
            if not (free and self.waiting):
                return
            self.inflight[free[0]] = self.waiting.pop(0)
            self.under_way.append((free[0], self.inflight[free[0]], False))

    @rule(count=st.integers(1, 4))
    def broker_takes(self, count: int) -> None:
        for packet_id in self.acks[:count]:
            if packet_id not in self.inflight:
                continue
            if self.inflight[packet_id].qos == 2 and packet_id not in self.received:
                self.received.add(packet_id)
                self.under_way.append((packet_id, None, False))
            else:
                del self.inflight[packet_id]
                self.received.discard(packet_id)
        del self.acks[:count]

    # -- the gateway

    @rule(count=st.integers(1, 5))
    def receive(self, count: int) -> None:
        taken, self.under_way = self.under_way[:count], self.under_way[count:]
        read: list[tuple[int, Sent, bool]] = []
        for packet_id, message, dup in taken:
            if message is not None:
                read.append((packet_id, message, dup))
                continue
            self.receive_messages(read)
            read = []
            self.inbox.released(packet_id)
        self.receive_messages(read)

    def receive_messages(self, read: list[tuple[int, Sent, bool]]) -> None:
        packets = [Publish(m.topic, m.payload, m.qos, m.retain, dup, i) for i, m, dup in read]
        before = self.inbox.counters.ambiguous
        batches = self.inbox.receive(in_runs(packets), lambda topic, ids: self.routes.get(topic, NOWHERE), 0.0, 0.0)
        got: dict[str, list[int]] = {f: [] for f in READS}
        for route, batch in batches:
            for reader in route.readers:
                got[str(reader.instance)] += [id(p) for p in batch.payloads]
        lost = set()
        for packet_id, message, _ in read:
            self.arrived.append((packet_id, message))
            for flow in READS:
                times = got[flow].count(id(message.payload))
                if flow not in message.takers():
                    assert not times, "a flow got what it does not read"
                elif times:
                    assert times == 1
                    assert message not in self.fed[flow], f"{flow} got {message} twice"
                    self.fed[flow].append(message)
                elif message not in self.fed[flow]:
                    assert not message.unique, f"{flow} lost {message}"
                    assert message.qos == 1, f"{flow} lost {message}, and QoS 2 leaves no doubt"
                    lost.add(message)
                    self.excused[flow].add(message)
        assert self.inbox.counters.ambiguous - before >= len(lost), "lost without being counted"
        self.acknowledge()

    def acknowledge(self) -> None:
        for packet_id, qos in self.inbox.due():
            (wanted, message) = self.arrived.pop(0)
            assert (packet_id, qos) == (wanted, message.qos), "acknowledged out of order"
            for flow in message.takers():
                done = message in self.disk.taken[flow] or message in self.excused[flow]
                assert done, f"{message} is acknowledged, but {flow} has not committed it"
            self.acks.append(packet_id)
        self.acks += self.inbox.complete()

    @rule(flow=st.sampled_from("AB"))
    def capture(self, flow: str) -> None:
        self.captured[flow] = (self.flows[flow].position(), tuple(self.fed[flow]))

    @rule(flow=st.sampled_from("AB"), works=st.sampled_from([True, True, False]))
    @precondition(lambda self: self.captured)
    def commit(self, flow: str, works: bool) -> None:
        if flow not in self.captured:
            return
        if not works:
            self.inbox.table.give_back(self.inbox.table.take_dirty())
            return
        self.disk.positions[flow], self.disk.taken[flow] = self.captured.pop(flow)
        self.write_table()
        self.flows[flow].committed = self.disk.positions[flow]
        self.acknowledge()

    def write_table(self) -> None:
        for page, raw in self.inbox.table.take_dirty().items():
            if raw:
                self.disk.pages[page] = raw
            else:
                self.disk.pages.pop(page, None)
        self.disk.next_index = self.inbox.next_index
        self.inbox.releases_written = self.inbox.releases

    # -- in the end

    def teardown(self) -> None:
        sent = {*self.waiting, *(m for i, m in self.inflight.items() if i not in self.received)}
        for _ in range(100):
            self.broker_sends(4)
            self.receive(5)
            for flow in READS:
                self.capture(flow)
                self.commit(flow, True)
            self.broker_takes(9)
            if not (self.waiting or self.inflight):
                break
        assert not self.waiting
        assert not self.inflight, "an acknowledgement never came"
        assert not self.inbox.owed
        assert self.inbox.uncommitted_bytes == 0
        for flow in READS:
            for message in sent:
                if flow in message.takers():
                    assert message in self.disk.taken[flow] or message in self.excused[flow]
            assert max(Counter(self.disk.taken[flow]).values(), default=1) == 1


TestDelivery = Delivery.TestCase
TestDelivery.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)

WEIGHTS: dict[str, tuple[int, Callable[[Delivery, random.Random], None]]] = {
    "publish": (8, lambda d, r: d.publish(r.choice(["t0", "t0", "t1", "nobody"]), r.choice([1, 1, 2]),
                                          r.choice([b"", b"", b"x"]), r.random() < 0.1)),
    "send": (8, lambda d, r: d.broker_sends(r.randint(1, 4))),
    "receive": (10, lambda d, r: d.receive(r.randint(1, 4))),
    "take": (4, lambda d, r: d.broker_takes(r.randint(1, 4))),
    "capture": (6, lambda d, r: d.capture(r.choice("AB"))),
    "commit": (6, lambda d, r: d.commit(r.choice("AB"), r.random() < 0.9)),
    "disconnect": (1, lambda d, r: d.disconnect(r.randint(0, 5))),
    "crash": (2, lambda d, r: d.crash(r.randint(0, 5))),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_long_walks_with_crashes_lose_and_double_nothing(seed: int) -> None:
    """Deeper than what Hypothesis draws: holes need a crash between the commits of two flows, and then another."""
    walk, made = random.Random(seed), Delivery()
    names = walk.choices(list(WEIGHTS), [w for w, _ in WEIGHTS.values()], k=250)
    for name in names:
        WEIGHTS[name][1](made, walk)
    made.teardown()
