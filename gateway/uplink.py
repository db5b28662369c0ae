"""The way of results to the central side: what stands in the outbox is sent, and deleted when the collector has it.

At each connect the gateway says hello for each flow and ships nothing before the collector has answered: only then it
is known that the flow's epoch is newer than all that the tables hold. The broker's own PUBACK means nothing here.

**A database that went back in time** (a restored or cloned card, or one that lied about its flush) shows when the
collector has a number that cannot have left this board, or an epoch that this database never had. Then our next
numbers mean something else in the tables, so nothing of the flow is sent or deleted until it has a new epoch, above
all others:

- Numbers up to `departed` (what may have left the board before this process first asked the collector; kept in the
  database, so that starts without a connection do not move it) were given before the time that was lost, so they mean
  the same here and there. They keep their numbers, and count as landed where the collector says so.
- What the outbox holds above that moves into the new epoch, with new numbers.
- If the collector's greatest epoch is one of ours, the new one goes on from it and cuts it at `departed`: rows beyond
  become void. As after any fallback, what this database computes takes their place.
- If it is not one of ours, another state made it, and nothing here computes it again: the new epoch goes on from it as
  far as it has landed, and all of it stays valid. Only what windows that were open held may count twice.
- What came in during the lost time and was acknowledged to the sensors' broker does not come again: a gap says so.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from edgert.core.clock import Clock
from edgert.core.errors import PayloadError, StoreError
from edgert.core.ids import epoch_ordinal, make_epoch
from edgert.core.results import (
    Acknowledgement,
    Hello,
    acks_topic,
    pack_result,
    results_topic,
    unpack_acknowledgement_untrusted,
)
from edgert.store.database import Database
from edgert.store.outbox import OutboxSize

log = logging.getLogger(__name__)

WINDOW = 64
"""Batches of one stream that may be on their way unacknowledged (at most some 6 MB in the broker)."""
RESEND_S = 15.0
"""Without any progress for so long, the collector is asked again, and then the first unacknowledged batch is sent."""
RESEND_MOST_S = 600.0
"""The wait doubles up to this while a stream makes no progress: a collector that is away costs one batch each time."""
PAUSE_S, PAUSE_MOST_S = 1.0, 60.0
"""After a turn that failed; doubles while the next ones fail too."""
HELLO_S = 10.0
"""A hello that nobody answers is repeated: the collector may start after us."""
PARTITION = "0"

T = TypeVar("T")
Stream = tuple[str, int, int]
"""(flow, epoch, stream)."""


@dataclass(slots=True)
class _Sending:
    sent: int = 0
    acknowledged: int = 0
    moved: float = 0.0
    """Monotonic time of the last progress."""
    wait: float = RESEND_S
    probing: bool = False
    """Nothing was acknowledged for a while: one batch at a time, until there is progress."""

    def reached(self, sequence: int, now: float) -> None:
        """All up to `sequence` has landed."""
        if sequence > self.acknowledged:
            self.acknowledged, self.moved = sequence, now
            self.sent = max(self.sent, sequence)
            self.wait, self.probing = RESEND_S, False


@dataclass(slots=True)
class UplinkStatus:
    acknowledged: int = 0
    """Batches deleted from the outbox since the start."""
    last_ack: float | None = None
    """Monotonic time of the last acknowledgement."""
    bad_acks: int = 0
    error: str = ""


@dataclass(slots=True)
class Uplink:
    """Lives on the daemon's loop; `store` runs a call on the store thread."""

    fleet: str
    gateway: str
    database: Database
    clock: Clock
    store: Callable[[Callable[[], Any]], Awaitable[Any]]
    publish: Callable[[str, bytes], bool]
    """Publishes with QoS 1; false when there is no connection."""
    status: UplinkStatus = field(default_factory=UplinkStatus)
    on_epoch: Callable[[str, int], None] = lambda flow, epoch: None
    """Told a flow's epoch when the collector has answered: it may have been renamed."""
    _streams: dict[Stream, _Sending] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)
    _hello_at: dict[str, float] = field(default_factory=dict)
    _errors: dict[str, str] = field(default_factory=dict)
    _connected: bool = False
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def acks_topic(self) -> str:
        return acks_topic(self.fleet, self.gateway)

    # -- told by the daemon, on its loop

    def connected(self) -> None:
        self._connected = True
        self._answered.clear()
        self._hello_at.clear()
        self._streams.clear()
        self._wake.set()

    def disconnected(self) -> None:
        self._connected = False

    def committed(self) -> None:
        """Something new may stand in the outbox."""
        self._wake.set()

    async def acknowledged_untrusted(self, payload: bytes) -> None:
        """One message of the collector."""
        try:
            message = unpack_acknowledgement_untrusted(payload)
        except PayloadError as error:
            self.status.bad_acks += 1
            log.warning("a message on %s is no acknowledgement and is ignored: %s", self.acks_topic, error)
            return
        if message.gateway != self.gateway:
            return
        for flow in message.answers:
            await self._admit(flow, message)
        try:
            deleted, foreign = await self.store(lambda: self._free(message))
        except StoreError as error:
            self._trouble("acknowledgement", str(error))
            return
        self._trouble("acknowledgement", "")
        for flow in foreign & self._answered:
            log.error("flow %s: the tables hold results that are not this database's; nothing of it is sent now", flow)
            self._answered.discard(flow)
            for stream in [s for s in self._streams if s[0] == flow]:
                del self._streams[stream]
        now = self.clock.monotonic()
        for key, sequence in message.acks.items():
            if key[0] not in foreign and key in self._streams:
                self._streams[key].reached(sequence, now)
        self.status.acknowledged += deleted
        self.status.last_ack = now
        self._wake.set()

    async def _admit(self, flow: str, message: Acknowledgement) -> None:
        """The collector answered our hello: now the epochs of `flow` may leave, renamed if they are not the newest."""
        try:
            epoch = await self.store(lambda: self._decide(flow, message))
        except StoreError as error:
            self._trouble("acknowledgement", str(error))
            return
        if epoch is not None:
            self._answered.add(flow)
            self.on_epoch(flow, epoch)

    def _decide(self, flow: str, message: Acknowledgement) -> int | None:
        """On the store thread: gives the flow an epoch that is newest and returns it; None if it is not ours."""
        departed = self.database.departed(flow)
        greatest, landed = _newest(flow, message)
        if greatest is None or not is_foreign(departed, greatest, landed):
            return self.database.epoch(flow)
        mine = [e for e, numbers in departed.items() if any(numbers.values())]
        if greatest not in departed and not mine:  # a new card: what it has went nowhere yet
            names = _named(departed, greatest)
            self.database.rebase(flow, names, greatest, landed)
            return names[max(departed)]
        first = greatest if greatest in departed else max(mine)
        kept, gap = departed[first], _gap(greatest, greatest in departed)
        log.error("flow %s: this %s; a new epoch is opened", flow, gap)
        names = _named([e for e in departed if e >= first], greatest)
        self.database.rebase(flow, names, greatest, kept if greatest == first else landed, kept, gap)
        return names[max(names)]

    def _free(self, message: Acknowledgement) -> tuple[int, set[str]]:
        """On the store thread: deletes what has landed, but for flows whose numbers in the tables are not ours; how
        many batches, and those flows."""
        foreign: set[str] = set()
        for flow in {flow for flow, _, _ in message.acks}:
            departed = self.database.departed(flow)
            greatest, landed = _newest(flow, message)
            if greatest is not None and is_foreign(departed, greatest, landed):
                foreign.add(flow)
        return self.database.acknowledged({k: n for k, n in message.acks.items() if k[0] not in foreign}), foreign

    def _trouble(self, about: str, text: str) -> None:
        """What is wrong; an empty text takes it back."""
        self._errors.pop(about, None)
        if text:
            self._errors[about] = text
        self.status.error = "; ".join(self._errors.values())

    # -- the loop

    async def run(self) -> None:
        """Sends until cancelled. Nothing that fails ends it."""
        pause = PAUSE_S
        while True:
            self._wake.clear()  # before the turn: what is committed meanwhile starts another
            try:
                await self._turn()
            except Exception as error:
                log.error("the outbox could not be sent: %s", error, exc_info=not isinstance(error, StoreError))
                self._trouble("outbox", str(error) or repr(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MOST_S)
                continue
            self._trouble("outbox", "")
            pause = PAUSE_S
            try:
                async with asyncio.timeout(1.0):  # wait_for may swallow a cancel (Python 3.11)
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _turn(self) -> None:
        if not self._connected:
            return
        streams: list[Stream] = await self.store(self.database.outbox_streams)
        for stream in [s for s in self._streams if s not in streams]:
            del self._streams[stream]
        for flow in dict.fromkeys(flow for flow, _, _ in streams):
            if flow not in self._answered:
                self._say_hello(flow)
        for stream in streams:
            if stream[0] in self._answered:
                await self._send(stream)

    def _say_hello(self, flow: str) -> None:
        now = self.clock.monotonic()
        due = now >= self._hello_at.get(flow, 0.0)
        if due and self._publish(flow, pack_result(Hello(gateway=self.gateway, flow=flow))):
            self._hello_at[flow] = now + HELLO_S

    async def _send(self, stream: Stream) -> None:
        now = self.clock.monotonic()
        sending = self._streams.get(stream)
        if sending is None:
            await self.store(lambda: self.database.departs(*stream))
            sending = self._streams[stream] = _Sending(moved=now)
        if sending.sent > sending.acknowledged and now - sending.moved > sending.wait:
            log.warning("no acknowledgement for %s in %.0f s: the collector is asked again", stream, sending.wait)
            sending.wait, sending.probing = min(2 * sending.wait, RESEND_MOST_S), True
            sending.sent, sending.moved = sending.acknowledged, now
            self._answered.discard(stream[0])
            self._say_hello(stream[0])
            return
        room = (1 if sending.probing else WINDOW) - (sending.sent - sending.acknowledged)
        if room <= 0:
            return
        if sending.sent == sending.acknowledged:
            sending.moved = now
        entries = await self.store(lambda: self.database.departing(*stream, sending.sent, room))
        # what stood before the first entry is acknowledged, or it would still be there
        if entries and sending.sent == sending.acknowledged:
            sending.sent = sending.acknowledged = entries[0].sequence - 1
        for entry in entries:
            if not self._publish(stream[0], entry.payload):
                return
            sending.sent = entry.sequence

    def _publish(self, flow: str, payload: bytes) -> bool:
        return self.publish(results_topic(self.fleet, self.gateway, flow, PARTITION), payload)


def _newest(flow: str, message: Acknowledgement) -> tuple[int | None, dict[int, int]]:
    """The greatest epoch of `flow` that the collector knows, and what has landed of it per stream."""
    greatest = message.greatest_epoch(flow)
    return greatest, {s: n for (f, e, s), n in message.acks.items() if f == flow and e == greatest}


def is_foreign(departed: Mapping[int, Mapping[int, int]], greatest: int, landed: Mapping[int, int]) -> bool:
    """Whether the tables hold what this database did not make: `landed` per stream of their `greatest` epoch, against
    what may have left this board (`departed`, by epoch and stream).

    An epoch older than one of ours that left is settled: ours said, when it was opened, how far the older one counts.
    """
    if not departed or greatest < max((e for e, numbers in departed.items() if any(numbers.values())), default=0):
        return False
    mine = departed.get(greatest)
    return mine is None or any(number > mine.get(stream, 0) for stream, number in landed.items())


def _named(epochs: Iterable[int], above: int) -> dict[int, int]:
    """New names for `epochs`, in order, all greater than `above`."""
    first = epoch_ordinal(above) + 1
    return {old: make_epoch(first + at, secrets.randbits(32)) for at, old in enumerate(sorted(epochs))}


def _gap(greatest: int, known: bool) -> str:
    what = (
        "results beyond this database's are void, those it computes now take their place"
        if known
        else "this database never had that epoch; its results stay"
    )
    return (
        "database went back in time (a restored or cloned card, or one that lost what it had confirmed): the tables "
        f"hold newer results of epoch {epoch_ordinal(greatest)}; {what}; what came in in between is missing here"
    )


def summary(status: UplinkStatus, outbox: OutboxSize, now: float) -> Mapping[str, Any]:
    """The uplink's part of the status page."""
    age = None if status.last_ack is None else round(now - status.last_ack, 1)
    return {
        "outbox_batches": outbox.batches,
        "outbox_rows": outbox.rows,
        "outbox_bytes": outbox.bytes,
        "acknowledged": status.acknowledged,
        "last_ack_age_s": age,
    }
