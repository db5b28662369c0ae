"""One stream of batches from a gateway to another, exactly once: the two ends of it, without sockets and clocks.

A stream is (flow, origin, destination). Its batches are numbered (epoch, sequence) when they are committed at the
origin, and never renumbered. `Sender` and `Receiver` live as long as their gateway's process; connections come and go.

    store of the origin ──▶ Sender ── Data, Skip ──▶ Receiver ──▶ flow ──▶ commit of the destination
                              ▲◀── Resume, Credit, Ack ──┘                       │
                              └───────────────── committed ◀─────────────────────┘

The receiver numbers a channel for each time that it asks for the stream (`Resume`), so that what was under way before
is known by an old channel and dropped. See docs/internals/links.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from edgert.core.errors import ProtocolError
from edgert.core.ids import is_credible
from edgert.links.messages import MAX_BODY, NOTHING, Ack, Credit, Data, Number, Resume, Skip

OVERHEAD: Final = 64
"""Bytes of credit that a batch costs beside its body: empty bodies are not free."""
WINDOW: Final = 1024 * 1024
"""Bytes of credit that a receiver gives: so much may wait for its flow, and one batch. At 100 ms and less there and
back it bears 10 MB/s."""
READ_BYTES: Final = 256 * 1024
"""Bytes that a sender asks of its store at a time, so that streams that share a connection go by turns."""
MOST_GAPS: Final = 3
"""A sender that answers so many requests in succession with the wrong number does not keep the protocol."""


def cost(body: bytes) -> int:
    """Bytes of credit that a batch takes."""
    return len(body) + OVERHEAD


class Stored(NamedTuple):
    """A batch as the origin's store has it."""

    epoch: int
    sequence: int
    body: bytes


class Wanted(NamedTuple):
    """Part of the store that a sender can send now: what comes after `after`, `limit_bytes` or one batch more."""

    channel: int
    after: Number
    upto: Number
    """The newest number when that was asked; what is up to it and not in the store then never comes again."""
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class Behind:
    """The receiver has numbers that this gateway never gave: the database here is older than what was sent. The flow
    has to open a later epoch; until then nothing is sent or deleted."""

    theirs: Number


class Sender:
    """The origin's end. It holds positions only: the bodies are in the store until they are acknowledged."""

    def __init__(self, last: Number = NOTHING) -> None:
        """`last`: the greatest number that the store has ever given."""
        self.last = last
        self.acknowledged = NOTHING
        """The receiver has committed everything up to here; the store can delete it."""
        self.behind: Number | None = None
        """See `Behind`."""
        self.channel = 0
        """Channel of the receiver's request; 0: the receiver has not asked."""
        self._read = NOTHING
        """The number after which the store is read next."""
        self._told = NOTHING
        """The number that the receiver knows as the last."""
        self._granted = 0
        self._used = 0

    def resume(self, message: Resume) -> Behind | None:
        """The receiver asks for the stream, from a position of its own. Raises `ProtocolError` for one that no flow can
        have come to: the epochs after it would be used up."""
        newest = max(message.after, message.committed)
        if not is_credible(newest.epoch, self.last.epoch):
            raise ProtocolError(f"expected a position near {self.last} of flow {message.flow}, got {newest}")
        self.channel, self._granted, self._used = message.channel, message.credit, 0
        self._read = self._told = message.after
        if newest > self.last:
            self.behind = newest
            return Behind(newest)
        self.behind = None
        self.acknowledged = max(self.acknowledged, message.committed)
        return None

    def disconnected(self) -> None:
        """Ends the connection: batches under way are read from the store again, after the next `resume`."""
        self.channel = 0

    def stored(self, last: Number) -> None:
        """The store has committed batches up to `last`."""
        self.last = max(self.last, last)
        if self.behind and self.last.epoch > self.behind.epoch:
            self.behind = None  # the receiver takes the new epoch from its beginning

    def credit(self, total: int) -> None:
        """The receiver has room for more."""
        self._granted = max(self._granted, total)

    def acknowledge(self, number: Number) -> bool:
        """The receiver has committed everything up to `number`; whether that is news. Raises `ProtocolError`."""
        if number > max(self._told, self.acknowledged):
            raise ProtocolError(f"expected an acknowledgement of at most {self._told}, got {number}")
        if self.behind or number <= self.acknowledged:
            return False
        self.acknowledged = number
        return True

    def wants(self) -> Wanted | None:
        """The range that the store should give to `offer`. None if there is none, the receiver has not asked, or there
        is no credit."""
        room = self._granted - self._used
        if not self.channel or self.behind or room <= 0 or self._read >= self.last:
            return None
        return Wanted(self.channel, self._read, self.last, min(room, READ_BYTES))

    def offer(self, wanted: Wanted, batches: Sequence[Stored]) -> list[Data | Skip]:
        """Takes what the store has there, in its order; returns the messages to send. Batches that find no credit any
        more are asked for again later. Raises ValueError, before anything is sent, for batches that no store must have.
        """
        if wanted.channel != self.channel or wanted.after != self._read or self.behind:
            return []  # the receiver asked anew meanwhile: by the same channel, if the connection is another
        _check(wanted, batches)
        messages: list[Data | Skip] = []
        for epoch, sequence, body in batches:
            if self._used >= self._granted:
                return messages
            number = Number(epoch, sequence)
            if not number.follows(self._told):
                messages.append(Skip(self.channel, number))
            messages.append(Data(self.channel, number, body))
            self._used += cost(body)
            self._read = self._told = number
        if not batches:
            self._read = wanted.upto
        return messages


def _check(wanted: Wanted, batches: Sequence[Stored]) -> None:
    before = wanted.after
    for epoch, sequence, body in batches:
        number = Number(epoch, sequence)
        if number <= before or sequence < 1:
            raise ValueError(f"expected a batch with a number after {before}, got {number}")
        if len(body) > MAX_BODY:
            raise ValueError(f"expected a body of at most {MAX_BODY} bytes in batch {number}, got {len(body)}")
        before = number


@dataclass(slots=True)
class Refusals:
    """Batches that a receiver did not take, since the process began."""

    duplicates: int = 0
    """The flow has them."""
    stale: int = 0
    """Batches of an earlier epoch than the newest."""
    out_of_order: int = 0
    """Not the next; they are asked for again."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Batches between two numbers that will never come. This gateway had acknowledged them, and its database is older
    than that; or the origin's quota did not bear them."""

    after: Number
    first: Number


class Taken(NamedTuple):
    """A batch that goes to the flow."""

    gap: Gap | None
    """Batches missing before this one, if there are any."""


class Receiver:
    """The destination's end. It holds no bodies; the flow acknowledges them by commits."""

    def __init__(self, position: Number = NOTHING, window: int = WINDOW) -> None:
        """`position`: the last number that the flow's last commit covers."""
        if window < 1:
            raise ValueError(f"expected a window of at least 1 byte, got {window}")
        self.window = window
        self.committed = self.accepted = position
        """`committed`: the last number that a commit of the flow covers. `accepted`: the last that it was given."""
        self.channel = 0
        """The number of the connection; 0 while there is none."""
        self.refusals = Refusals()
        self._held: deque[tuple[Number, int]] = deque()
        """(number, cost) of the batches that the flow was given and still has in its queues."""
        self._held_bytes = 0
        self._used = self._granted = 0
        """Credit used and granted on the channel, bytes; `_granted` is the value that the sender was told."""
        self._skipping: Number | None = None
        self._gaps = 0
        """Requests in succession that were answered with the wrong number."""

    def resume(self, channel: int, flow: str) -> Resume:
        """Returns the request for the batches behind the last accepted one, on a new channel."""
        self.channel, self._used, self._skipping = channel, 0, None
        self._granted = max(0, self.window - self._held_bytes)
        return Resume(channel, flow, self.committed, self.accepted, self._granted)

    def disconnected(self) -> None:
        self.channel = 0

    def rewind(self, position: Number) -> None:
        """The flow went back to `position`, and gets everything after it again; `resume` has to follow.

        Raises ValueError for a position before the last commit, or one that was not reached."""
        if not self.committed <= position <= self.accepted:
            raise ValueError(f"expected a position from {self.committed} to {self.accepted}, got {position}")
        self.accepted = position
        self.channel = 0
        while self._held and self._held[-1][0] > position:
            self._held_bytes -= self._held.pop()[1]

    def skip(self, message: Skip) -> None:
        """The sender says that batches are missing before its next one. Raises `ProtocolError`."""
        if message.channel != self.channel:
            return
        first = message.first
        if first <= self.accepted or first.sequence < 1:
            raise ProtocolError(f"expected a gap to lead to a number after {self.accepted}, got {first}")
        self._check_epoch(first)
        self._skipping = first

    def take(self, message: Data) -> Taken | None:
        """The batch goes to the flow, if it is the next one. Raises `ProtocolError`.

        If not it is counted in `refusals`; after one that is out of order `channel` is 0, and `resume` has to follow.
        """
        refusals, number = self.refusals, message.number
        if message.channel != self.channel:  # it was under way when the receiver asked anew, and comes again
            return None
        if self._used >= self._granted:
            raise ProtocolError(f"expected no batch beyond a credit of {self._granted} bytes, got {number}")
        spent = cost(message.body)
        self._used += spent
        self._check_epoch(number)
        if number <= self.accepted:
            refusals.stale += number.epoch < self.accepted.epoch
            refusals.duplicates += number.epoch == self.accepted.epoch
            return None  # `grant` gives its credit back
        next_one = number.follows(self.accepted)
        if number != self._skipping and (self._skipping or not next_one):
            self._out_of_order(number)
            return None
        taken = Taken(None if next_one else Gap(self.accepted, number))
        self.accepted, self._skipping, self._gaps = number, None, 0
        self._held.append((number, spent))
        self._held_bytes += spent
        return taken

    def _check_epoch(self, number: Number) -> None:
        """Raises `ProtocolError` for an epoch that no flow can have come to. Once committed, the origin would refuse
        the position in it at each connection, and with it all streams between the two gateways."""
        if not is_credible(number.epoch, self.accepted.epoch):
            raise ProtocolError(f"expected an epoch near that of {self.accepted}, got {number}")

    def _out_of_order(self, number: Number) -> None:
        self.refusals.out_of_order += 1
        self._gaps += 1
        if self._gaps >= MOST_GAPS:
            raise ProtocolError(f"expected the batch that follows {self.accepted}, got {number}, {self._gaps} times")
        self.channel = 0

    def taken(self, number: Number) -> None:
        """The flow has worked on everything up to `number`, or holds it elsewhere: there is room for more."""
        while self._held and self._held[0][0] <= number:
            self._held_bytes -= self._held.popleft()[1]

    def grant(self) -> Credit | None:
        """More credit for the sender, where it is enough to be worth a message."""
        room = self._used + max(0, self.window - self._held_bytes)
        if not self.channel or room - self._granted < max(1, self.window // 4):
            return None
        self._granted = room
        return Credit(self.channel, room)

    def commit(self, number: Number) -> Ack | None:
        """A commit of this gateway covers everything up to `number`: only now the sender may delete it.

        Raises ValueError for a number that the flow was never given."""
        if number > self.accepted:
            raise ValueError(f"expected a commit of at most {self.accepted}, got {number}")
        self.taken(number)
        if number <= self.committed:
            return None
        self.committed = number
        return Ack(self.channel, number) if self.channel else None
