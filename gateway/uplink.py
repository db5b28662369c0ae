"""The way of results to the central side: what stands in the outbox is sent, and deleted when the collector has it.

At each connect the gateway says hello for each flow and ships nothing before the collector has answered: only then it
is known that the flow's epoch is newer than all that the tables hold. The broker's own PUBACK means nothing here.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
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
from edgert.store.database import Database, OutboxSize

log = logging.getLogger(__name__)

WINDOW = 64
"""Batches of one stream that may be on their way unacknowledged (at most some 6 MB in the broker)."""
RESEND_S = 15.0
"""Without any progress for so long, a stream is sent again from its last acknowledged number."""
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
    """Told when a flow's epoch was renamed."""
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
        mine = {key: n for key, n in message.acks.items() if key in self._streams}
        for key, sequence in mine.items():
            sending = self._streams[key]
            if sequence > sending.acknowledged:
                sending.acknowledged, sending.moved = sequence, self.clock.monotonic()
                sending.sent = max(sending.sent, sequence)
        try:
            deleted = await self.store(lambda: self.database.acknowledged(message.acks))
        except StoreError as error:
            self._trouble("", str(error))
            return
        self._trouble("", "")
        self.status.acknowledged += deleted
        self.status.last_ack = self.clock.monotonic()
        self._wake.set()

    async def _admit(self, flow: str, message: Acknowledgement) -> None:
        """The collector answered our hello: now the epochs of `flow` may leave, renamed if they are not the newest."""
        try:
            decided = await self.store(lambda: self._decide(flow, message))
        except StoreError as error:
            self._trouble("", str(error))
            return
        if decided is not None:
            epoch, error_text = decided
            if error_text:
                log.error("%s", error_text)
            self._trouble(flow, error_text)
            self._answered.add(flow)
            self.on_epoch(flow, epoch)

    def _decide(self, flow: str, message: Acknowledgement) -> tuple[int, str] | None:
        """On the store thread: the flow's newest epoch, and what is wrong; None for a flow that is not ours."""
        database, greatest = self.database, message.greatest_epoch(flow)
        stored = next((f for f in database.flows() if f.name == flow), None)
        if stored is None:
            return None
        epochs = database.epochs(flow)
        fresh = [e for e in epochs if e > stored.confirmed]
        cut = {s: n for (f, e, s), n in message.acks.items() if f == flow and e == greatest}
        if greatest in epochs:
            last = database.last_sequences(flow, greatest)
            older = any(n > last.get(s, 0) for s, n in cut.items())
        else:
            older = greatest is not None and greatest >= stored.confirmed
        if greatest is None or not older:
            if fresh:
                database.confirm(flow, fresh[-1])
            return stored.epoch, ""
        if not fresh:
            return stored.epoch, _older(flow) if epochs else ""
        first = epoch_ordinal(greatest) + 1
        renamed = {e: make_epoch(first + at, secrets.randbits(32)) for at, e in enumerate(fresh)}
        database.rebase(flow, renamed, greatest, cut)
        return max(renamed.values()), ""

    def _trouble(self, about: str, text: str) -> None:
        """What is wrong with one flow, or (`about` empty) with the database; an empty text takes it back."""
        self._errors.pop(about, None)
        if text:
            self._errors[about] = text
        self.status.error = "; ".join(self._errors.values())

    # -- the loop

    async def run(self) -> None:
        """Sends until cancelled."""
        while True:
            try:
                await self._turn()
            except StoreError as error:
                self._trouble("", str(error))
                log.error("the outbox could not be read: %s", error)
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), timeout=1.0)
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
        sending = self._streams.setdefault(stream, _Sending(moved=now))
        if sending.sent > sending.acknowledged and now - sending.moved > RESEND_S:
            log.warning(
                "no acknowledgement for %s in %.0f s: sending again from %d", stream, RESEND_S, sending.acknowledged + 1
            )
            sending.sent, sending.moved = sending.acknowledged, now
        room = WINDOW - (sending.sent - sending.acknowledged)
        if room <= 0:
            return
        if sending.sent == sending.acknowledged:
            sending.moved = now
        entries = await self.store(lambda: self.database.outbox(*stream, sending.sent, room))
        # what stood before the first entry is acknowledged, or it would still be there
        if entries and sending.sent == sending.acknowledged:
            sending.sent = sending.acknowledged = entries[0].sequence - 1
        for entry in entries:
            if not self._publish(stream[0], entry.payload):
                return
            sending.sent = entry.sequence

    def _publish(self, flow: str, payload: bytes) -> bool:
        return self.publish(results_topic(self.fleet, self.gateway, flow, PARTITION), payload)


def _older(flow: str) -> str:
    return (
        f"flow {flow}: the tables hold results of this gateway that are newer than this database "
        "(a restored or cloned card?); they win until the flow is deployed anew, in another version"
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
