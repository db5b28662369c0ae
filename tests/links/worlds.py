"""An origin and a destination with databases that survive crashes, and sessions that do not."""

from __future__ import annotations

from edgert.core.errors import ProtocolError
from edgert.links.messages import NOTHING, Number
from edgert.links.protocol import OVERHEAD, Gap, Stored
from edgert.links.session import Acknowledged, FellBehind, LinkSession, Received

FLOW = "f"
WINDOW = 4_000
GREATEST = 3_000
"""Bytes of a body."""


class Origin:
    def __init__(self) -> None:
        self.epoch = 1
        self.sequence = 0
        self.outbox: list[Stored] = []
        self.deleted = NOTHING
        self.committed: list[tuple[Number, bytes]] = []
        """All that was ever committed, to compare with."""
        self.behind: Number | None = None
        self.crash()

    def crash(self) -> None:
        """The process ends; the database stays."""
        self.session = LinkSession()
        self.session.send(FLOW, self.last)

    @property
    def last(self) -> Number:
        return Number(self.epoch, self.sequence)

    def commit(self, *bodies: bytes) -> None:
        for body in bodies:
            self.sequence += 1
            self.outbox.append(Stored(self.epoch, self.sequence, body))
            self.committed.append((self.last, body))
        self.session.stored(FLOW, self.last)

    def open_epoch(self) -> None:
        self.epoch, self.sequence = self.epoch + 1, 0

    def feed(self) -> None:
        """One read of the store."""
        for flow, wanted in self.session.wanted():
            found: list[Stored] = []
            size = 0
            for stored in self.outbox:
                if Number(stored.epoch, stored.sequence) > wanted.after and size < wanted.limit_bytes:
                    found.append(stored)
                    size += len(stored.body)
            self.session.offer(flow, wanted, found)

    def hear(self, data: bytes) -> None:
        for event in self.session.receive_untrusted(data, 0.0):
            if isinstance(event, Acknowledged):
                self.deleted = max(self.deleted, event.number)
                self.outbox = [s for s in self.outbox if Number(s.epoch, s.sequence) > event.number]
            elif isinstance(event, FellBehind):
                self.behind = event.theirs


class Destination:
    def __init__(self) -> None:
        self.position = NOTHING
        self.committed: list[tuple[Number, bytes]] = []
        self.gaps: list[Gap] = []
        self.most_held = 0
        self.crash()

    def crash(self) -> None:
        self.session = LinkSession()
        self.taken: list[tuple[Number, bytes]] = []
        """Given to the flow, and not yet committed."""
        self.session.receive(FLOW, self.position, WINDOW)
        self.queue: list[tuple[Number, bytes]] = []
        """In the flow's queue; part of `taken`."""

    def hear(self, data: bytes) -> None:
        for event in self.session.receive_untrusted(data, 0.0):
            assert isinstance(event, Received)
            self.taken.append((event.number, event.body))
            self.queue.append((event.number, event.body))
            if event.gap:
                self.gaps.append(event.gap)
            self.most_held = max(self.most_held, sum(len(body) + OVERHEAD for _, body in self.queue))

    def work(self, batches: int) -> None:
        done = self.queue[:batches]
        self.queue = self.queue[batches:]
        if done:
            self.session.taken(FLOW, done[-1][0])

    def commit(self) -> None:
        """What the flow has worked on, and its queues, as a checkpoint has them."""
        if self.taken:
            self.position = self.taken[-1][0]
            self.committed += self.taken
            self.taken, self.queue = [], []
            self.session.committed(FLOW, self.position)

    def rewind(self) -> None:
        """A slot died: the flow goes back to its last checkpoint."""
        self.taken, self.queue = [], []
        self.session.rewind(FLOW, self.position)


class World:
    """Both, and what is under way between them."""

    def __init__(self) -> None:
        self.origin, self.destination = Origin(), Destination()
        self.to_destination = b""
        self.to_origin = b""

    def connect(self) -> None:
        self.to_destination = self.to_origin = b""
        self.origin.session.connected(0.0)
        self.destination.session.connected(0.0)

    def lose(self) -> None:
        self.to_destination = self.to_origin = b""
        self.origin.session.lost()
        self.destination.session.lost()

    def collect(self) -> None:
        self.origin.feed()
        self.to_destination += self.origin.session.take_output()
        self.to_origin += self.destination.session.take_output()

    def carry(self, forward: int, back: int) -> None:
        """So many bytes each way."""
        self.collect()
        one, self.to_destination = self.to_destination[:forward], self.to_destination[forward:]
        other, self.to_origin = self.to_origin[:back], self.to_origin[back:]
        self.destination.hear(one)
        self.origin.hear(other)

    def finish(self) -> None:
        """No more trouble: everything arrives."""
        self.lose()
        self.connect()
        for _ in range(10_000):
            self.carry(1 << 30, 1 << 30)
            self.destination.work(1 << 30)
            self.destination.commit()
            if not self.origin.outbox and not self.to_origin and not self.to_destination:
                break
        self.check()
        assert self.destination.committed == self.origin.committed
        assert not self.origin.outbox

    def check(self) -> None:
        """What must hold at every moment."""
        origin, destination = self.origin, self.destination
        done = destination.committed
        assert done == origin.committed[: len(done)], "committed in order, once"
        taken = done + destination.taken
        assert taken == origin.committed[: len(taken)], "given to the flow in order, once"
        assert origin.deleted <= destination.position, "nothing is deleted before it is committed over there"
        assert destination.most_held <= WINDOW + GREATEST + OVERHEAD
        assert len(self.to_destination) <= 2 * (WINDOW + GREATEST + OVERHEAD) + 20_000


def is_protocol_error_or_nothing(session: LinkSession, data: bytes) -> None:
    """Bytes from outside raise one error type, or none."""
    try:
        session.receive_untrusted(data, 0.0)
    except ProtocolError:
        session.lost()
