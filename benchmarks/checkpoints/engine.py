"""A gateway without its sockets: MQTT bytes from memory, ingest, pool, checkpoints, the database on a real disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.checkpoints.flow import FLOW, READ, publishes
from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.clock import Clock
from edgert.core.settings.gateway import GatewaySettings
from edgert.flow.document import from_plain
from edgert.mqtt.packets.decode import Decoder
from edgert.mqtt.packets.packets import V311
from edgert.operators.registry import with_installed
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.pool.from_settings import make_pool
from edgert.store.database import Database
from edgert.store.state.records import Spill
from gateway.checkpoint.checkpointer import Checkpointer
from gateway.flows.flows import Flows
from gateway.hosts.in_process import InProcess
from gateway.ingest.ingest import Ingest
from gateway.registry.registry import FlowRegistry

AHEAD: Final = 4
"""Reads that may wait in the source's queue."""
LOOK_S: Final = 0.0005


@dataclass(slots=True)
class Written:
    """What the last commit of the flow handed to SQLite, bytes."""

    delta: int = 0
    ids: int = 0
    queue: int = 0


class WatchedDatabase(Database):
    """Notes how large the parts of a commit are."""

    written = Written()
    compactions = 0

    def commit(
        self, commits: Sequence[Checkpoint], pages: Mapping[int, bytes], next_index: int, spills: Sequence[Spill] = ()
    ) -> set[str]:
        deltas = [len(delta) for commit in commits for delta in commit.deltas]
        self.written = Written(sum(deltas), sum(map(len, pages.values())), sum(len(c.queue) for c in commits))
        return super().commit(commits, pages, next_index, spills)

    def compact_state(self, flow: str, snapshot: bytes, last: int) -> None:
        self.compactions += 1
        super().compact_state(flow, snapshot, last)


class Engine:
    """Set up as `gateway.daemon` does it, with its defaults."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        settings = GatewaySettings()
        self.clock = clock
        self.database = WatchedDatabase(folder / "gateway.db", "bench", monotonic=clock.monotonic)
        self._store_thread = ThreadPoolExecutor(1)
        pool = make_pool(
            clock, policy=settings.pool.policy, consumption=settings.pool.consumption,
            consumption_rows=settings.pool.consumption_rows, workers=settings.pool.workers,
            send=lambda instance, messages: None,
        )  # fmt: skip
        self.host = InProcess(pool, clock)
        self.ingest = Ingest(
            settings.sensors, "bench", self.host, clock,
            forget_session=_nothing, wants_checkpoint=lambda: None, save_subscriptions=_nothing,
        )  # fmt: skip
        flow_registry = FlowRegistry(self.database, self.store, clock)
        self.checkpointer = Checkpointer(flow_registry, self.host, self.ingest, lambda: None)
        registry, _ = with_installed()
        self.flows = Flows(registry, flow_registry, self.host, self.ingest, self.checkpointer)
        self._decoder = Decoder(V311)
        self._io = psutil.Process().io_counters
        self.longest_s = 0.0
        """The longest that the flow took no row while there were some, since this was last set to 0."""

    async def start(self, document: Mapping[str, Any]) -> None:
        await self.host.start()
        await self.flows.deploy(from_plain(document, self.flows.registry), "file")

    async def stop(self) -> None:
        """The database's log is written back by that."""
        await self.checkpointer.compaction.done()
        await self.host.stop()
        self._store_thread.shutdown()
        self.database.close()

    @property
    def run(self) -> FlowRun:
        return self.flows.runs[FLOW]

    @property
    def write_bytes(self) -> int:
        """What the kernel says that this process had written to disks (in whole pages)."""
        return int(self._io().write_bytes)

    async def store(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._store_thread, call)

    async def feed(self, reads: Iterable[bytes]) -> int:
        """As the loop takes it from a socket that always has more; returns when all is worked on, how many reads."""
        instances = self.run.all
        first = instances[0]
        fed, done, moved = 0, first.counters.rows_in, time.perf_counter()
        for read in reads:
            for messages in publishes(self._decoder, read):
                self.ingest.feed(messages)
            fed += 1
            await asyncio.sleep(0)
            while first.queue.rows > AHEAD * READ:  # noqa: ASYNC110 - nobody says when there is room
                await asyncio.sleep(LOOK_S)
            if first.counters.rows_in > done:
                now = time.perf_counter()
                self.longest_s = max(self.longest_s, now - moved)
                done, moved = first.counters.rows_in, now
        while any(i.queue.rows or i.schedule.running for i in instances):  # noqa: ASYNC110 - nor when all is done
            await asyncio.sleep(LOOK_S)
        return fed

    async def checkpoint(self) -> float:
        """From the pause to the end of the transaction, s. `RuntimeError` where there was none."""
        before, began = self.checkpointer.status.commits, time.perf_counter()
        await self.checkpointer.checkpoint([self.run])
        if self.checkpointer.status.commits == before:
            raise RuntimeError(f"expected a checkpoint, got: {self.checkpointer.status}")
        return time.perf_counter() - began


async def _nothing(text: str = "") -> None:
    """There is no broker here."""
