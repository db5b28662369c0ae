"""MQTT in, the delivery rules of the design as pure code: arrival indices, redelivery, and when a PUBACK may be sent.

Messages enter in the order in which they arrived; acknowledgements leave in that same order, up to the oldest message
that some flow which took it has not committed. Nothing here touches a socket or a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import xxhash

from edgert.core.batch import RawBatch
from edgert.core.text.long_text import beyond_short
from edgert.mqtt.packets.packets import Publish, PublishRun
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.instance.instance import Instance
from gateway.ingest.input_counters import InboxCounters
from gateway.ingest.message_size import MESSAGE_BYTES, size_of
from gateway.ingest.packet_ids import DOUBTFUL, EARLIER, NOT, SENT, IdTable


@dataclass(slots=True, eq=False)
class Reader:
    """One source of one flow, mostly."""

    progress: Progress
    instance: Instance | None
    """The source instance; None for a reader without a flow (`take_untrusted` gets the batches), and for a flow that
    ends."""
    retained: bool = False
    """True if the reader takes retained messages."""
    open: bool = True
    """True if the reader takes new messages; it takes redeliveries in any case."""
    copies: tuple[Instance, ...] = ()
    """The instances of a source that runs in copies; each takes the messages of its share of the topics."""
    copy_of: Mapping[str, int] = field(default_factory=dict)
    """Then: the number of that share by topic."""
    take_untrusted: Callable[[Sequence[bytes], float], None] | None = None
    """Called with (payloads, arrival in monotonic seconds) of each batch; set for a reader without a flow."""

    def leave(self) -> None:
        """Its flow ends: until that is written what comes is owed an acknowledgement, and goes nowhere."""
        self.instance, self.copies = None, ()

    def divide(self, batch: RawBatch) -> Iterable[tuple[Instance, RawBatch]]:
        """Divides a batch among the copies. A topic's messages stay in order: they all go to one copy."""
        parts = [RawBatch([], [], batch.arrival, batch.wall, owed=batch.owed) for _ in self.copies]
        for topic, payload, number in zip(
            batch.topics, batch.payloads, map(self.copy_of.__getitem__, batch.topics), strict=True
        ):
            part = parts[number]
            part.topics.append(topic)
            part.payloads.append(payload)
        for part in parts:
            part.size = size_of(part.topics, sum(map(len, part.payloads)))
        return [pair for pair in zip(self.copies, parts, strict=True) if pair[1].payloads]

    def takes(self, message: Publish) -> bool:
        """True if the reader takes this retained message."""
        return self.retained and (self.open or message.dup)


class Route:
    """All readers of one subscription (MQTT 5) or one topic (3.1.1)."""

    __slots__ = ("flows", "of_topic", "readers", "seed")

    def __init__(self, readers: tuple[Reader, ...], seed: int = 0, of_topic: bool = False) -> None:
        self.readers = readers
        self.flows = tuple(dict.fromkeys(r.progress for r in readers))
        self.seed = seed
        """Mixed into the hash: the subscription identifier, since a broker sends a copy per overlapping filter."""
        self.of_topic = of_topic
        """True if the route holds for one topic only, though a subscription identifier came with the message."""


NOWHERE = Route(())
Routing = Callable[[str, tuple[int, ...]], Route]
"""(topic, subscription identifiers) → route."""
Others = Callable[[str, tuple[int, ...]], Iterable[Route]]
"""(topic, subscription identifiers) → routes by which the same message may have come before, in another version of
MQTT: a redelivery then has no identifiers though it had some, or has some though it had none."""


def _digest(message: Publish, seed: int) -> int:
    digest = xxhash.xxh3_64_intdigest(message.payload, xxhash.xxh3_64_intdigest(message.topic.encode(), seed))
    return digest ^ 1 if message.qos == 2 else digest  # an entry of QoS 1 under the same id is of another message


Owed = tuple[int, int, int, tuple[Progress, ...], int]
"""An acknowledgement that is owed: packet id, QoS, arrival index, flows that must have committed it, bytes."""


@dataclass(slots=True)
class Inbox:
    """State of one persistent session with the sensors' broker."""

    table: IdTable = field(default_factory=IdTable)
    next_index: int = 1
    counters: InboxCounters = field(default_factory=InboxCounters)
    owed: deque[Owed] = field(default_factory=deque)
    uncommitted_bytes: int = 0
    """Bytes of the QoS 1 and 2 messages taken in and not acknowledged yet, as `size_of` reckons."""
    completing: deque[tuple[int, int]] = field(default_factory=deque)
    """PUBCOMPs that are owed: which PUBREL it was since the start, packet id."""
    releasing: set[int] = field(default_factory=set)
    """The packet ids in `completing`."""
    releases: int = 0
    """PUBRELs since the start, but those that came again before their PUBCOMP."""
    releases_written: int = 0
    """Number of the releases that the id table of the last commit includes."""
    flows: list[Progress] = field(default_factory=list)
    """Every flow of the gateway; a new one starts at the current index (`add_flow`)."""
    _began: int = 1
    """`next_index` before the last read."""
    _retaken: list[tuple[Progress, int]] = field(default_factory=list)
    """Missing message numbers of flows that the last read filled."""

    # -- life of the session

    def resume(self, *, doubtful_to: int = 0) -> None:
        """After a restart, with every flow's committed position in `flows`. `doubtful_to`: a flow went back to a state
        that is older than what was acknowledged, so any message up to this index may have been."""
        flows = self.flows
        indices = dict(self.table.known())
        greatest = max([self.next_index - 1, *indices.values(), *(f.fed for f in flows)])
        for packet_id, index in indices.items():
            self.table.sent[packet_id] = DOUBTFUL if index <= doubtful_to else EARLIER
        for flow in flows:
            flow.resume(set(indices.values()), greatest)
        self.next_index = greatest + 1

    def connection_lost(self) -> None:
        """Acknowledgements owed die with their connection; what the next one delivers makes them anew."""
        self.owed.clear()
        self.completing.clear()
        self.releasing.clear()
        self.uncommitted_bytes = 0

    def session_lost(self) -> None:
        """The broker has no session: no redelivery can come from it. To be committed before SUBSCRIBE."""
        self.connection_lost()
        self.table.clear()
        self.table.emptied |= self.next_index > 1
        for flow in self.flows:
            flow.missing.clear()

    def add_flow(self, flow: Progress) -> None:
        """A new flow takes what arrives from now on."""
        flow.fed = self.next_index - 1
        flow.start = flow.position()
        self.flows.append(flow)

    def remove_flow(self, flow: Progress) -> None:
        """Ends all waiting for a removed flow."""
        flow.gone = True
        self.flows.remove(flow)

    # -- messages

    def receive(
        self,
        messages: Sequence[Publish | PublishRun],
        lookup: Routing,
        monotonic: float,
        wall: float,
        *,
        by_id: bool = True,
        others: Others = lambda _topic, _ids: (),
    ) -> list[tuple[Route, RawBatch]]:
        """Sorts one read's messages by route; `Reader`s of a route all get its batch. Where messages that are owed an
        acknowledgement and others take turns, a route has several, in their order. `by_id`: whether messages with the
        same subscription identifiers have the same route, whatever their topics (but for those `of_topic`). `others`:
        asked where a redelivery is not what stands under its packet id."""
        self._began, self._retaken = self.next_index, []
        batches: list[tuple[Route, RawBatch]] = []
        last: dict[Route, RawBatch] = {}

        def batch_of(route: Route, owed: bool) -> RawBatch:
            batch = last.get(route)
            if batch is None or batch.owed is not owed:
                batch = last[route] = RawBatch([], [], monotonic, wall, owed=owed)
                batches.append((route, batch))
            return batch

        counters = self.counters
        by: object = None
        found = NOWHERE
        for message in messages:
            if isinstance(message, PublishRun):
                self._sort(message, lookup, batch_of, by_id)
                continue
            # a message by the same subscription as the one before takes the same route: most do, and a call is spared
            its = (by_id and message.subscription_ids) or message.topic
            if its is not by:
                found = lookup(message.topic, message.subscription_ids)
                by = None if found.of_topic else its
            route = self._admit(message, found, others) if message.qos or message.retain else found
            counters.messages += 1
            if route.readers:
                batch = batch_of(route, message.qos > 0)
                batch.topics.append(message.topic)
                batch.payloads.append(message.payload)
            else:
                counters.bytes += len(message.payload)
                counters.unrouted += not found.flows and not message.retain
        for _, batch in batches:
            payload_bytes = sum(map(len, batch.payloads))
            batch.size = size_of(batch.topics, payload_bytes)
            counters.bytes += payload_bytes
        for flow in self.flows:
            flow.fed = self.next_index - 1
        return batches

    def _sort(self, run: PublishRun, lookup: Routing, batch_of: Callable[[Route, bool], RawBatch], by_id: bool) -> None:
        """Adds a run to the batches of its routes: at once if it came by a subscription that is known."""
        topics, payloads, ids = run.topics, run.payloads, run.subscription_ids
        self.counters.messages += len(topics)
        first = lookup(topics[0], ids)
        if not (by_id and ids) or first.of_topic:
            routes = [lookup(topic, ids) for topic in topics]
            if any(route is not first for route in routes):
                for route, topic, payload in zip(routes, topics, payloads, strict=True):
                    self._put(route, [topic], [payload], batch_of)
                return
        self._put(first, topics, payloads, batch_of)

    def _put(
        self, route: Route, topics: list[str], payloads: list[bytes], batch_of: Callable[[Route, bool], RawBatch]
    ) -> None:
        if route.readers:
            batch = batch_of(route, False)
            batch.topics += topics
            batch.payloads += payloads
        else:
            self.counters.bytes += sum(map(len, payloads))
            self.counters.unrouted += len(payloads)

    def _admit(self, message: Publish, route: Route, others: Others) -> Route:
        """The route that is left for a message with a packet id, or a retained one."""
        if message.retain:
            route = self._as_retained(message, route)
        packet_id, payload, table = message.packet_id, message.payload, self.table
        digest = _digest(message, route.seed) if message.qos else 0
        if message.dup and message.qos and table.indices[packet_id] and table.hashes[packet_id] != digest:
            for other in others(message.topic, message.subscription_ids):
                if table.hashes[packet_id] == (its := _digest(message, other.seed)):
                    route, digest = self._as_retained(message, other) if message.retain else other, its
                    break
        if message.retain and not route.readers:
            self.counters.retained_ignored += 1
        if not message.qos:
            return route
        if (
            table.hashes[packet_id] == digest
            and (index := table.indices[packet_id])
            and (message.dup or self._is_unanswered(packet_id, index, route))
        ):
            self.counters.without_dup += not message.dup
            flows = route.flows
            route = self._redelivered(packet_id, index, route, message.qos)
        else:
            index = self.next_index
            self.next_index = index + 1
            old = table.indices[packet_id]
            flows = route.flows
            self._forget(old)
            if message.dup and table.is_lost(packet_id):
                self.counters.perhaps_repeated += 1
            table.set(packet_id, digest, index)
        size = len(payload) + MESSAGE_BYTES + beyond_short(message.topic)
        self.owed.append((packet_id, message.qos, index, flows, size))
        self.uncommitted_bytes += size
        return route

    def _is_unanswered(self, packet_id: int, index: int, route: Route) -> bool:
        """True if the broker cannot have the answer to the message under a packet id, so it cannot have used the id for
        another message: the arriving message is a redelivery, though some brokers do not mark it."""
        sent = self.table.sent[packet_id]
        return sent == NOT or (sent == EARLIER and not all(flow.start.covers(index) for flow in route.flows))

    def _as_retained(self, message: Publish, route: Route) -> Route:
        takers = tuple(r for r in route.readers if r.takes(message))
        if not takers:
            return NOWHERE
        return route if len(takers) == len(route.readers) else Route(takers, route.seed)

    def _forget(self, index: int) -> None:
        """The packet id of `index` is used anew, so what it stood for cannot come again."""
        for flow in self.flows:
            if flow.missing:
                flow.missing.discard(index)

    def _redelivered(self, packet_id: int, index: int, route: Route, qos: int) -> Route:
        for flow in self.flows:  # earlier messages of this read are fed already
            flow.fed = self.next_index - 1
        takers = {flow for flow in route.flows if flow.takes(index)}
        self._retaken += [(flow, index) for flow in takers]
        if len(takers) == len(route.flows):
            return route
        self.counters.redelivered += 1
        sent = self.table.sent[packet_id]
        was_sent = sent == SENT or (sent == EARLIER and all(flow.start.covers(index) for flow in route.flows))
        # at QoS 2 an entry that stands says that no PUBCOMP was sent, so the id cannot have been used again
        if sent == DOUBTFUL or (was_sent and qos == 1):
            self.counters.ambiguous += 1
        return Route(tuple(r for r in route.readers if r.progress in takers), route.seed)

    def owe(self, packet_id: int, qos: int) -> None:
        """A message that was skipped (oversized) is acknowledged in its turn, and goes nowhere."""
        self._forget(self.table.indices[packet_id])
        self.table.set(packet_id, 0, 0)
        self.owed.append((packet_id, qos, 0, (), 0))

    def take_back(self, messages: Sequence[Publish | PublishRun]) -> None:
        """The last read failed when its messages had their numbers, or some of them: no flow has them, so they are
        owed until they come again. To be called with the read's messages, before the next read."""
        counters = self.counters
        for message in messages:
            many = len(message.topics) if isinstance(message, PublishRun) else 1
            counters.untaken += many
            counters.untaken_qos_0 += many if isinstance(message, PublishRun) or not message.qos else 0
        for flow in self.flows:
            flow.fed = self.next_index - 1
            flow.missing.update(range(self._began, self.next_index))
        for flow, index in self._retaken:
            flow.missing.add(index)
        self._retaken = []

    def leave(self, messages: Sequence[Publish | PublishRun]) -> None:
        """Leaves messages to the broker, for the next session; those of QoS 0 are lost, and counted. One that is sent
        for the first time says that the broker has the answer to what its packet id stood for: when it comes again it
        must not be taken for that."""
        for message in messages:
            if isinstance(message, PublishRun):
                self.counters.left += len(message.topics)
            elif not message.qos:
                self.counters.left += 1
            elif not message.dup:
                self._forget(self.table.indices[message.packet_id])
                self.table.set(message.packet_id, 0, 0)

    def released(self, packet_id: int) -> bool:
        """Handles PUBREL: a QoS 2 message is complete, so the next message under its id is a new one. A restart must
        know that too before PUBCOMP lets the broker use the id. Returns False if PUBCOMP for the id is owed already;
        this bounds the number owed, however many PUBRELs a broker sends."""
        if packet_id in self.releasing:
            return False
        self._forget(self.table.indices[packet_id])
        self.table.set(packet_id, 0, 0)
        self.releases += 1
        self.completing.append((self.releases, packet_id))
        self.releasing.add(packet_id)
        return True

    # -- acknowledgements

    def held_up_by(self, flows: Iterable[Progress]) -> bool:
        """True if one of `flows` has not committed the oldest message that is owed an acknowledgement."""
        if not self.owed:
            return False
        _, _, index, takers, _ = self.owed[0]
        return any(flow in takers and not flow.has_committed(index) for flow in flows)

    def due(self) -> list[tuple[int, int]]:
        """(packet id, QoS) of every message that may be acknowledged now, in arrival order; each is given once."""
        due: list[tuple[int, int]] = []
        owed, sent = self.owed, self.table.sent
        while owed:
            packet_id, qos, index, flows, size = owed[0]
            for flow in flows:
                if not flow.has_committed(index):
                    return due
            owed.popleft()
            sent[packet_id] = SENT
            self.uncommitted_bytes -= size
            due.append((packet_id, qos))
        return due

    def complete(self) -> list[int]:
        """Returns the packet ids for which PUBCOMP may be sent now: a commit has written that they are free. Each is
        given once."""
        due: list[int] = []
        while self.completing and self.completing[0][0] <= self.releases_written:
            due.append(self.completing.popleft()[1])
        self.releasing.difference_update(due)
        return due
