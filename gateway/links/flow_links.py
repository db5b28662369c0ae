"""Flows that run on several gateways: their batches between the database, the links and the host.

A batch leaves after the commit that numbered it, and is fed to the flow here with its number as the flow's position; a
commit of the flow here acknowledges it (docs/internals/links.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from edgert.core.clock import Clock
from edgert.core.errors import PayloadError, show
from edgert.core.settings.gateway import Links as LinksSettings
from edgert.links.messages import NOTHING, Number
from edgert.links.protocol import Gap
from edgert.links.tls import Identity
from edgert.runtime.checkpoint import departures
from edgert.runtime.flow_run import FlowRun
from edgert.store.database import Database
from edgert.store.outbox import link_outbox
from gateway.base.epochs import epoch_after
from gateway.base.tasks import OnStore, Tasks
from gateway.hosts.host import Arrival, Host
from gateway.ingest.ingest import Ingest
from gateway.ledger.gaps import write_gap
from gateway.links.link_store import LinkStore, LinkStream, NotNow
from gateway.links.peers import Peers

log = logging.getLogger(__name__)

DAMAGED: Final = "damaged batch of another gateway, rows unknown"
NO_OPERATOR: Final = "rows of another gateway for an operator that does not run here"
LOOK_TICKS = 8
"""How often what waits is read for the status: every two seconds."""


class FlowLinks:
    """Lives on the loop. Streams are open for the flows that run, and for what still waits for other gateways."""

    def __init__(
        self,
        fleet: str,
        gateway: str,
        settings: LinksSettings,
        database: Database,
        store: OnStore,
        host: Host,
        ingest: Ingest,
        clock: Clock,
    ) -> None:
        self.gateway = gateway
        self.drops: Counter[tuple[str, str]] = Counter()
        """Rows that came over links and were not fed, by flow and reason."""
        self.gaps: Counter[str] = Counter()
        """Gaps in what came over links, by flow."""
        self._database, self._store, self._host, self._ingest, self._clock = database, store, host, ingest, clock
        link_store = LinkStore(database, store, gateway)
        self.peers = Peers(Identity(fleet, gateway), settings, link_store, self.deliver, self._fell_behind)
        self._runs: Mapping[str, FlowRun] = {}
        self._incoming: set[tuple[str, str]] = set()
        self._outgoing: set[tuple[str, str]] = set()
        self._syncing = asyncio.Lock()
        """An open stream must not be opened again: it would go back to the last commit."""
        self._ticks = 0
        self._waiting: list[dict[str, Any]] = []
        self._held: set[str] = set()
        self._unsaid: dict[tuple[str, str], Number] = {}
        """(flow, origin) → the last batch that was fed, of which the origin was not told that there is room again."""
        self._tasks = Tasks(lambda error: log.error("a step of a link failed", exc_info=error))

    async def start(self) -> None:
        """Raises `LinkError` where it cannot listen."""
        await self.peers.start()

    async def stop(self) -> None:
        await self._tasks.stop()
        await self.peers.stop()

    # -- flows

    async def sync(self, runs: Mapping[str, FlowRun]) -> None:
        """Opens and closes streams so that they are those of `runs`, the flows that run now."""
        self._runs = runs
        async with self._syncing:
            pairs = {name: run.neighbours() for name, run in runs.items()}
            incoming = {(name, origin) for name, (origins, _) in pairs.items() for origin in origins}
            outgoing = {(name, other) for name, (_, others) in pairs.items() for other in others}
            outgoing |= {
                (flow, other) for flow, other, *_ in await self._store(partial(self._database.read, link_outbox.sizes))
            }
            for flow, origin in self._incoming - incoming:
                self._incoming.discard((flow, origin))
                self.peers.close_incoming(flow, origin)
            for flow, other in self._outgoing - outgoing:
                self._outgoing.discard((flow, other))
                self.peers.close_outgoing(flow, other)
            for flow, origin in incoming - self._incoming:
                await self.peers.open_incoming(flow, origin)
                self._incoming.add((flow, origin))  # not before: where it raises it is opened by the next call
            for flow, other in outgoing - self._outgoing:
                await self.peers.open_outgoing(flow, other)
                self._outgoing.add((flow, other))
        await self._send()  # a flow that has ended gave its last batches

    def committed(self, runs: Sequence[FlowRun]) -> None:
        """Checkpoints of these flows are in the database: acknowledges what they cover, sends what they made."""
        for run in runs:
            for origin, number in run.progress.committed.links.items():
                if (run.flow.name, origin) in self._incoming:
                    self.peers.committed(run.flow.name, origin, Number(*number))
        if any((run.flow.name, other) in self._outgoing for run in runs for other in run.neighbours()[1]):
            self._tasks.begin(self._send())

    async def _send(self) -> None:
        for (flow, other), number in (await self._store(partial(self._database.read, link_outbox.streams))).items():
            if (flow, other) in self._outgoing:
                self.peers.stored(flow, other, number)

    async def look(self) -> None:
        """Reads what waits for other gateways, for the status."""
        sizes = await self._store(partial(self._database.read, link_outbox.sizes))
        self._waiting = [dict(zip(("flow", "gateway", "batches", "rows", "bytes"), one, strict=True)) for one in sizes]

    def tick(self) -> None:
        """Tells origins that there is room again; to be called four times a second."""
        self._ticks += 1
        if self._ticks % LOOK_TICKS == 0:
            self._tasks.begin(self.look())
        self._say_room()

    def _say_room(self) -> None:
        for (flow, origin), number in list(self._unsaid.items()):
            run = self._runs.get(flow)
            if run is None or self._host.has_room(run):
                del self._unsaid[flow, origin]
                self.peers.taken(flow, origin, number)

    def hold(self, flow: str) -> None:
        """The flow stands still: batches for it stay at their origins, and its own stay here. The exports for its next
        plan have these, and a gateway that runs by it already would count them twice."""
        self._held.add(flow)
        self.peers.hold(flow)

    def release(self, flow: str) -> None:
        """The flow works on: its batches leave, and origins send again what it did not take."""
        self._held.discard(flow)
        self.peers.release(flow)
        run = self._runs.get(flow)
        if run is None:
            return
        for name, origin in self._incoming:
            if name == flow:
                self.peers.rewind(flow, origin, Number(*run.progress.links.get(origin, NOTHING)))

    # -- what the links say

    def deliver(self, stream: LinkStream, number: Number, body: bytes, gap: Gap | None) -> None:
        run = self._runs.get(stream.flow)
        if run is None or stream.flow in self._held:
            raise NotNow(f"flow {stream.flow} does not run here now")
        if gap is not None:
            self.gaps[stream.flow] += 1
            self._say_missing(stream, f"batches of gateway {stream.origin} are missing for good: {gap}")
        arrivals = self._arrivals_untrusted(run, stream, body)
        with self._ingest.lock:
            self._host.deliver(run, arrivals)
            run.progress.links[stream.origin] = (number.epoch, number.sequence)
        self._host.lend()
        self._unsaid[stream.flow, stream.origin] = number
        self._say_room()

    def _arrivals_untrusted(self, run: FlowRun, stream: LinkStream, body: bytes) -> list[Arrival]:
        """The batches of `body` that instances here can take; the others are logged and counted in `drops`."""
        try:
            found = departures.unpack_untrusted(body, self._clock.monotonic())
        except PayloadError as error:
            self.drops[stream.flow, DAMAGED] += 1
            self._say_missing(stream, f"a batch of gateway {stream.origin} is dropped: {error}")
            return []
        arrivals: list[Arrival] = []
        for one in found:
            instance = run.entrance(one.operator)
            if instance is None or not run.takes(instance, one.source, one.producer):
                self.drops[stream.flow, NO_OPERATOR] += len(one.batch)
                log.error(
                    "flow %s: %d rows from %s for %s are dropped: it does not run here so", stream.flow, len(one.batch),
                    stream.origin, show(one.operator),
                )  # fmt: skip
            else:
                arrivals.append((instance, one.source, one.producer, one.batch))
        return arrivals

    def _say_missing(self, stream: LinkStream, text: str) -> None:
        """In the log and the table `gaps`: the counters here do not outlive the process."""
        log.error("flow %s: %s", stream.flow, text)
        self._tasks.begin(write_gap(self._store, self._database, stream.flow, text))

    def dropped(self) -> dict[tuple[str, str, str], int]:
        """Rows (and damaged batches) that came over links and were not fed, by (flow, operator or nothing, reason)."""
        return {(flow, "", reason): count for (flow, reason), count in self.drops.items()}

    def _fell_behind(self, stream: LinkStream, number: Number) -> None:
        """Begins a new epoch: the other gateway has batches that this (restored, older) database does not know."""
        log.error(
            "flow %s: gateway %s has batch %s of this one, which the database here does not know; a new epoch begins",
            stream.flow, stream.destination, number,
        )  # fmt: skip
        self._tasks.begin(self._begin_epoch(stream, epoch_after(number.epoch)))

    async def _begin_epoch(self, stream: LinkStream, epoch: int) -> None:
        await self._store(lambda: self._database.write(link_outbox.begin_epoch, stream.flow, stream.destination, epoch))
        self.peers.stored(stream.flow, stream.destination, Number(epoch, 0))

    def status(self) -> dict[str, Any]:
        """Returns its section of the status object."""
        return {
            **self.peers.status(),
            "waiting": self._waiting,
            "drops": [{"flow": flow, "reason": reason, "rows": n} for (flow, reason), n in self.drops.items()],
            "gaps": dict(self.gaps),
        }
