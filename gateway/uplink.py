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
from edgert.store.database import Database

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
    outbox_batches: int = 0
    outbox_rows: int = 0
    outbox_bytes: int = 0
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
            self.status.error = str(error)
            return
        self.status.acknowledged += deleted
        self.status.last_ack = self.clock.monotonic()
        self._wake.set()

    async def _admit(self, flow: str, message: Acknowledgement) -> None:
        """The collector answered our hello: now the epochs of `flow` may leave, renamed if they are not the newest."""
        greatest = message.greatest_epoch(flow)

        def decide() -> tuple[int, str] | None:
            stored = next((f for f in self.database.flows() if f.name == flow), None)
            if stored is None:
                return None
            epochs = self.database.epochs(flow)
            fresh = [e for e in epochs if e > stored.confirmed]
            if greatest is None or greatest in epochs:
                if fresh:
                    self.database.confirm(flow, fresh[-1])
                return stored.epoch, ""
            if stored.confirmed and greatest > stored.confirmed:
                text = (
                    f"flow {flow}: the tables hold results of this gateway that are newer than this database "
                    "(a restored or cloned card?); they win until the flow is deployed anew"
                )
                return stored.epoch, text
            cut = {s: n for (f, e, s), n in message.acks.items() if f == flow and e == greatest}
            first = epoch_ordinal(greatest) + 1
            renamed = {e: make_epoch(first + at, secrets.randbits(32)) for at, e in enumerate(fresh)}
            if renamed:
                self.database.rebase(flow, renamed, greatest, cut)
            return max(renamed.values(), default=stored.epoch), ""

        try:
            decided = await self.store(decide)
        except StoreError as error:
            self.status.error = str(error)
            return
        if decided is not None:
            epoch, error_text = decided
            if error_text:
                log.error("%s", error_text)
            self.status.error = error_text
            self._answered.add(flow)
            self.on_epoch(flow, epoch)

    # -- the loop

    async def run(self) -> None:
        """Sends until cancelled."""
        while True:
            try:
                await self._turn()
            except StoreError as error:
                self.status.error = str(error)
                log.error("the outbox could not be read: %s", error)
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), timeout=1.0)
            except TimeoutError:
                continue

    async def _turn(self) -> None:
        size = await self.store(self.database.outbox_size)
        self.status.outbox_batches, self.status.outbox_rows, self.status.outbox_bytes = (
            size.batches,
            size.rows,
            size.bytes,
        )
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
        if now >= self._hello_at.get(flow, 0.0):
            self._hello_at[flow] = now + HELLO_S
            self._publish(flow, pack_result(Hello(gateway=self.gateway, flow=flow)))

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
        for entry in entries:
            if not self._publish(stream[0], entry.payload):
                return
            sending.sent = entry.sequence

    def _publish(self, flow: str, payload: bytes) -> bool:
        return self.publish(results_topic(self.fleet, self.gateway, flow, PARTITION), payload)


def summary(status: UplinkStatus, now: float) -> Mapping[str, Any]:
    """The uplink's part of the status page."""
    age = None if status.last_ack is None else round(now - status.last_ack, 1)
    return {
        "outbox_batches": status.outbox_batches,
        "outbox_rows": status.outbox_rows,
        "outbox_bytes": status.outbox_bytes,
        "acknowledged": status.acknowledged,
        "last_ack_age_s": age,
    }
