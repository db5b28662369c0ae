"""The way of results to the central side: what stands in the outbox is sent, and deleted when the collector has it.

At each connect the gateway says hello for each flow and ships nothing before the collector has answered: only then it
is known that the flow's epoch is newer than all that the tables hold. The broker's own PUBACK means nothing here, but a
refusal is shown.

After a long outage what has piled up of a flow stays in its stream, and new results open another (`store.outbox`). New
results leave first; what has piled up has a limit of its own. The collector takes a stream only when it has the
epoch's first batch, so that one goes ahead of all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgert.core.clock import Clock
from edgert.core.errors import PayloadError, StoreError
from edgert.core.results.pieces import LEAST_DATA, PACKET_BYTES, cut, room
from edgert.core.results.results import (
    HELLO_EPOCHS,
    Acknowledgement,
    EpochHello,
    acks_topic,
    pack_result,
    results_topic,
    unpack_acknowledgement_untrusted,
)
from edgert.core.settings.gateway import Uplink as UplinkSettings
from edgert.mqtt.packets.packets import MAX_PACKET_BYTES
from edgert.store.database import Database
from edgert.store.outbox.outbox import FIRST, OutboxEntry, rows_waiting
from edgert.store.outbox.quota import StreamKey
from gateway.base.epochs import epoch_after
from gateway.base.tasks import OnStore
from gateway.uplink import reconcile
from gateway.uplink.lost_by_tables import fill
from gateway.uplink.macs import Macs
from gateway.uplink.send_window import SendWindow
from gateway.uplink.status import UplinkStatus
from gateway.uplink.token_bucket import TokenBucket

log = logging.getLogger(__name__)

CHUNK = 16
"""Batches read from the database at a time: some 2 MB at most. After each, new results may go first."""
BACKLOG = 16
"""More batches than these have to wait, or a stream of their own is not worth its while."""
OVERHEAD = 60
"""Bytes of a message beside topic and payload: headers of MQTT, TCP and IP."""
IDLE_S = 1.0
"""Between two looks at the outbox when nothing is heard."""
PAUSE_S, PAUSE_MOST_S = 1.0, 60.0
"""After a turn that failed; doubles while the next ones fail too."""
HELLO_S = 10.0
"""A hello that nobody answers is repeated: the collector may start after us."""


@dataclass(slots=True)
class Uplink:
    """Lives on the daemon's loop; `store` runs a call on the store thread."""

    fleet: str
    gateway: str
    database: Database
    clock: Clock
    store: OnStore
    publish: Callable[[str, bytes], bool]
    """Publishes with QoS 1; false when there is no connection."""
    settings: UplinkSettings = field(default_factory=UplinkSettings)
    limit: Callable[[str], int] = lambda topic: MAX_PACKET_BYTES
    """Bytes of the largest packet that the broker takes."""
    status: UplinkStatus = field(default_factory=UplinkStatus)
    on_epoch: Callable[[str, int], None] = lambda flow, epoch: None
    """Told a flow's epoch when the collector has answered: it may be a new one."""
    macs: Macs = field(default_factory=Macs)
    pause_s: float = PAUSE_S
    _cap: TokenBucket = field(init=False)
    _backlog: TokenBucket = field(init=False)
    _streams: dict[StreamKey, SendWindow] = field(default_factory=dict)
    _left: dict[StreamKey, int] = field(default_factory=dict)
    """The greatest number of a stream that may have left the board, of flows that said hello since the start."""
    _answered: set[str] = field(default_factory=set)
    """Flows that are in contact with the collector."""
    _lost: dict[str, float] = field(default_factory=dict)
    """Since when (monotonic) a flow is without the contact that it had. In neither: nobody knows since when."""
    _stalled: dict[str, set[int]] = field(default_factory=dict)
    """Flow -> epochs of which a stream stands still: the next hello asks for them."""
    _hello_at: dict[str, float] = field(default_factory=dict)
    _errors: dict[str, str] = field(default_factory=dict)
    _unsent: dict[str, str] = field(default_factory=dict)
    """Flows of which something could not be read or written in this turn, and why."""
    _connected: bool = False
    _limited: float = IDLE_S
    """How long the limits hold back what could leave, at most."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        now = self.clock.monotonic()
        self._cap = TokenBucket(self.settings.rate, now)
        self._backlog = TokenBucket(self.settings.backlog_rate, now)

    @property
    def acks_topic(self) -> str:
        return acks_topic(self.fleet, self.gateway)

    # -- told by the daemon, on its loop

    def section(self) -> dict[str, Any]:
        """For the status page."""
        status, outbox = self.status, self.database.outbox_size
        age = None if status.last_ack is None else round(self.clock.monotonic() - status.last_ack, 1)
        return {
            "outbox_batches": outbox.batches,
            "outbox_rows": outbox.rows,
            "outbox_bytes": outbox.bytes,
            "acknowledged": status.acknowledged.total(),
            "acknowledged_by_flow": dict(status.acknowledged),
            "rows_by_flow": dict(status.waiting),
            "bad_acks": status.bad_acks,
            "not_authentic_acks": self.macs.refused,
            "lost_by_tables": status.lost_by_tables,
            "sent_bytes": status.sent_bytes,
            "last_ack_age_s": age,
            "outbox_quota_bytes": self.database.quota_bytes,
        }

    def connected(self) -> None:
        self.disconnected()
        self._connected = True
        self._hello_at.clear()
        self._stalled.clear()
        self._wake.set()

    def disconnected(self) -> None:
        self._connected = False
        self._streams.clear()
        for flow in list(self._answered):
            self._loses(flow, self.clock.monotonic())

    def refused(self, reason: str) -> None:
        """The broker does not take a message of ours; that it took others shows when the collector acknowledges."""
        text = f"the broker refuses what is published: {reason}"
        if self._errors.get("broker") != text:
            log.error("%s (its rules for this gateway's user?)", text)
        self._trouble("broker", text)

    def committed(self) -> None:
        """Something new may stand in the outbox."""
        self._wake.set()

    def may_leave(self, flow: str) -> bool:
        """True if results of `flow` can leave now, as far as is known. A hello is said when there is something to send,
        so without one since the connection nothing speaks against it."""
        return self._connected and (flow in self._answered or flow not in self._hello_at)

    async def acknowledged_untrusted(self, payload: bytes) -> None:
        """One message of the collector."""
        try:
            message = unpack_acknowledgement_untrusted(self.macs.payload_untrusted(payload, self.acks_topic))
        except PayloadError as error:
            self.status.bad_acks += 1
            if text := self.macs.note_refused(error, self.acks_topic, self.clock.monotonic()):
                self._trouble("mac", text)
            return
        if message.gateway != self.gateway:
            return
        self._trouble("broker", "")
        self._trouble("mac", "")
        try:
            message, doubts = await self.store(lambda: reconcile.believed(self.database, message, self._left))
            self._doubt(doubts)
            for flow in message.answers:
                if self.macs.is_answer(flow, message.tokens.get(flow, b"")):
                    await self._admit(flow, message)
            deleted, foreign = await self.store(lambda: reconcile.free(self.database, message))
        except StoreError as error:
            self._trouble("acknowledgement", str(error))
            return
        self._trouble("acknowledgement", "")
        now = self.clock.monotonic()
        for flow in foreign & self._answered:
            log.error("flow %s: results are acknowledged that did not leave this board; the collector is asked", flow)
            self._loses(flow, now)
        for key, sequence in message.acks.items():
            if key[0] not in foreign and key in self._streams:
                self._streams[key].reached(sequence, now)
        self.status.acknowledged.update(deleted)
        self.status.last_ack = now
        self._wake.set()

    def _doubt(self, doubts: Sequence[str]) -> None:
        self.status.bad_acks += len(doubts)
        text = f"an acknowledgement that cannot be true is refused: {'; '.join(doubts[:3])}" if doubts else ""
        if text and self._errors.get("doubt") != text:
            log.error("%s (who may write on %s?)", text, self.acks_topic)
        self._trouble("doubt", text)

    async def _admit(self, flow: str, message: Acknowledgement) -> None:
        """The collector answered our hello: now the epochs of `flow` may leave, renamed if they are not the newest."""
        since = self._lost.get(flow)
        known = since is not None or flow in self._answered
        long = not known or (since is not None and self.clock.monotonic() - since > self.settings.outage_s)
        try:
            lost = await self.store(lambda: fill(self.database, flow, message, self._stalled.get(flow, ())))
            epoch = await self.store(lambda: self._decide(flow, message, long))
        except StoreError as error:
            log.error("flow %s cannot leave: %s", flow, error)
            self._trouble(f"flow {flow}", str(error))
            return
        self._trouble(f"flow {flow}", "")
        self._stalled.pop(flow, None)
        self.status.lost_by_tables += lost
        for stream in [s for s in self._streams if lost and s[0] == flow]:
            del self._streams[stream]  # they begin before what is in flight
        if epoch is not None:
            self._lost.pop(flow, None)
            self._answered.add(flow)
            self.on_epoch(flow, epoch)

    def _decide(self, flow: str, message: Acknowledgement, long: bool) -> int | None:
        """On the store thread: in which epoch the flow ships from now on; None if it is not ours. `long`: its outage
        was so long that new results leave beside what has piled up."""
        epoch = reconcile.admit(self.database, flow, message)
        if long and epoch is not None:
            epoch = self.database.open_stream(flow, BACKLOG, epoch_after(epoch))
        return epoch

    def _loses(self, flow: str, since: float) -> None:
        """Sends nothing of `flow` until the collector has answered again."""
        if flow in self._answered:
            self._answered.discard(flow)
            self._lost[flow] = since
        for stream in [s for s in self._streams if s[0] == flow]:
            del self._streams[stream]

    def _trouble(self, about: str, text: str) -> None:
        """Sets the error text of the status; an empty text removes it."""
        self._errors.pop(about, None)
        if text:
            self._errors[about] = text
        self.status.error = "; ".join(self._errors.values())

    # -- the loop

    async def run(self) -> None:
        """Sends until cancelled. Nothing that fails ends it."""
        pause = self.pause_s
        while True:
            self._wake.clear()  # before the turn: what is committed meanwhile starts another
            try:
                wait = await self.turn()
            except Exception as error:
                log.error("the outbox could not be sent: %s", error, exc_info=not isinstance(error, StoreError))
                self._trouble("outbox", str(error) or repr(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MOST_S)
                continue
            self._trouble("outbox", "")
            pause = self.pause_s
            try:
                async with asyncio.timeout(wait):  # wait_for may swallow a cancel (Python 3.11)
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def turn(self) -> float:
        """Sends what may leave now; returns how long to wait where nothing is heard meanwhile."""
        self.status.waiting = await self.store(lambda: self.database.read(rows_waiting))
        if not self._connected:
            self._trouble("flows", "")  # nothing is tried
            return IDLE_S
        self._limited = IDLE_S
        before, self._unsent = self._unsent, {}
        waiting: list[tuple[StreamKey, bool]] = await self.store(self.database.outbox_streams)
        self._streams = {s: sending for s, _ in waiting if (sending := self._streams.get(s))}
        for flow in dict.fromkeys(stream[0] for stream, _ in waiting):
            if flow not in self._answered:
                await self._apart(flow, self._say_hello(flow))
        backlog = [stream for stream, newest in waiting if not newest]
        for stream in backlog:
            if stream[2] == FIRST and not (stream in self._streams and self._streams[stream].sent):
                await self._apart(stream[0], self._send(stream, (self._cap,), opening=True))
        for stream, newest in waiting:
            while newest and await self._apart(stream[0], self._send(stream, (self._cap,))):
                pass
        while backlog:
            limits = (self._cap, self._backlog)
            backlog = [s for s in backlog if await self._apart(s[0], self._send(s, limits))]
            if self._wake.is_set():  # what is new goes first
                break
        for flow, error in self._unsent.items():
            if before.get(flow) != error:
                log.error("flow %s could not be sent: %s", flow, error)
        self._trouble("flows", "; ".join(f"flow {flow}: {error}" for flow, error in self._unsent.items()))
        return self._limited

    async def _apart(self, flow: str, sends: Awaitable[bool]) -> bool:
        """Sends for one flow. A failure delays no other flow; it is tried again with the next turn."""
        try:
            return await sends
        except StoreError as error:
            self._unsent[flow] = str(error)
            return False

    async def _say_hello(self, flow: str) -> bool:
        """Says hello for a flow. True if it was sent. Raises StoreError where the broker's limit is below it."""
        now = self.clock.monotonic()
        if now < self._hello_at.get(flow, 0.0):
            return False
        stalled = self._stalled.get(flow, set())
        departed = await self.store(lambda: self.database.departed(flow))
        if not any(stream[0] == flow for stream in self._left):  # at the first hello nothing has left since the start
            self._left |= {(flow, epoch, s): n for epoch, of in departed.items() for s, n in of.items()}
        epochs = sorted(departed, reverse=True)
        asked = {*stalled, *epochs[: HELLO_EPOCHS - len(stalled)]}
        newest_first = tuple(sorted(asked, reverse=True))
        hello = EpochHello(gateway=self.gateway, flow=flow, epochs=newest_first, token=self.macs.token(flow))
        payload, topic = pack_result(hello), results_topic(self.fleet, self.gateway, flow)
        if len(topic) + len(payload) + PACKET_BYTES + self.macs.overhead > (limit := self.limit(topic)):
            raise StoreError(f"expected a broker that takes a hello, got one with a limit of {limit} bytes per packet")
        said = self._publish(flow, payload, (self._cap,))
        if said:
            self._hello_at[flow] = now + HELLO_S
        return said

    async def _send(self, stream: StreamKey, limits: tuple[TokenBucket, ...], opening: bool = False) -> bool:
        """Sends some batches of a stream, or only the epoch's first; whether there may be more to send now."""
        if stream[0] not in self._answered:
            return False
        now = self.clock.monotonic()
        sending = self._streams.get(stream)
        if sending is None:
            await self.store(lambda: self.database.departs(*stream))
            sending = self._streams[stream] = SendWindow(now)
        if sending.is_stalled(now):
            why = (
                "no results of flow %s (epoch %s, stream %s) were acknowledged in %.0f s: the collector is asked again"
            )
            log.warning(why, *stream, sending.wait)
            self._answered.discard(stream[0])
            self._lost[stream[0]] = sending.moved
            sending.stalls(now)
            stalled = self._stalled.setdefault(stream[0], set())
            if len(stalled) < HELLO_EPOCHS // 2:
                stalled.add(stream[1])
            await self._say_hello(stream[0])
            return False
        room = min(sending.room, 1 if opening else CHUNK)
        if not room or self._is_limited(limits):
            return False
        entries = await self.store(lambda: self.database.departing(*stream, sending.sent, room))
        if not entries or (opening and entries[0].sequence > 1):
            return False
        sending.begins(entries[0].sequence, now)
        for entry in entries:
            in_contact = stream[0] in self._answered and self._streams.get(stream) is sending  # it was, before the wait
            if not in_contact or not sending.room or self._is_limited(limits):
                return False
            if not self._publish_whole(stream, entry, limits):
                return False
            sending.sends(entry.sequence, len(entry.payload))
            self._left[stream] = max(entry.sequence, self._left.get(stream, 0))
        return len(entries) == CHUNK

    def _is_limited(self, limits: tuple[TokenBucket, ...]) -> bool:
        now = self.clock.monotonic()
        wait = max(limit.wait(now) for limit in limits)
        if wait:
            self._limited = min(self._limited, wait)
        return wait > 0

    def _publish_whole(self, stream: StreamKey, entry: OutboxEntry, limits: tuple[TokenBucket, ...]) -> bool:
        """A batch in one message, or in pieces where the broker's limit is below it. Raises StoreError where that limit
        leaves no room for any data."""
        flow, topic = stream[0], results_topic(self.fleet, self.gateway, stream[0])
        limit = self.limit(topic) - self.macs.overhead
        if len(topic) + len(entry.payload) + PACKET_BYTES <= limit:
            return self._publish(flow, entry.payload, limits)
        size = room(limit, topic, self.gateway, flow)
        if size < LEAST_DATA:
            raise StoreError(f"expected a broker that takes results, got one with a limit of {limit} bytes per packet")
        pieces = cut(entry.payload, size, self.gateway, flow, (stream[1], stream[2], entry.sequence))
        return all(self._publish(flow, piece, limits) for piece in pieces)

    def _publish(self, flow: str, payload: bytes, limits: tuple[TokenBucket, ...]) -> bool:
        topic = results_topic(self.fleet, self.gateway, flow)
        payload = self.macs.signed(payload, topic)
        if not self.publish(topic, payload):
            return False
        size = len(topic) + len(payload) + OVERHEAD
        self.status.sent_bytes += size
        for limit in limits:
            limit.spend(size, self.clock.monotonic())
        return True
