"""All of a gateway but its connections: the real database, pool and inbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from edgert.core.clock import VirtualClock
from edgert.core.settings.gateway import Sensors
from edgert.flow.document import from_plain
from edgert.mqtt.packets.packets import Publish
from edgert.operators.registry import REGISTRY
from edgert.runtime.pool.pool import Pool
from edgert.store.database import Database
from gateway.checkpoint.checkpointer import Checkpointer
from gateway.flows.flows import Flows
from gateway.hosts.in_process import InProcess
from gateway.ingest.ingest import Ingest
from gateway.registry.registry import FlowRegistry


def document(name: str = "f", description: str = "", topic: str = "x/{source}") -> Any:
    operators = {
        "in": {"type": "mqtt_source", "topic": topic},
        "minute": {"type": "tumbling_window", "input": "in", "size_s": 10, "aggregates": {"n": "count()"}},
        "out": {"type": "ship", "input": "minute"},
    }
    return from_plain({"name": name, "description": description, "operators": operators}, REGISTRY)


class Gateway:
    """All of a gateway but its connections."""

    def __init__(
        self,
        path: Path,
        sensors: Sensors | None = None,
        subscriptions: str | None = None,
        name: str = "g1",
        fission: bool = True,
        greatest_age_s: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`monotonic`: the clock of the database, which is no virtual one otherwise."""
        self._store_thread = ThreadPoolExecutor(1)  # as in the daemon: a database bears no two at once
        self.database = Database(path, name, monotonic=monotonic)
        self.clock = VirtualClock()
        self.pool = Pool(self.clock)
        self.host = InProcess(self.pool, self.clock)
        self.host.checkpoints.hold_s = 30.0  # a busy machine makes no flow stuck
        self.flow_registry = FlowRegistry(self.database, self.store, self.clock)
        self.flow_registry.plan_changes.load(self.database)
        self.ingest = Ingest(
            sensors or Sensors(), "id", self.host, self.clock, forget_session=self.nothing,
            wants_checkpoint=lambda: None, save_subscriptions=lambda text: self.nothing(),
            lock=self.flow_registry.feeding,
        )  # fmt: skip
        self.checkpointer = Checkpointer(self.flow_registry, self.host, self.ingest, lambda: None, greatest_age_s)
        self.flows = Flows(
            REGISTRY, self.flow_registry, self.host, self.ingest, self.checkpointer, fission=fission
        )  # fmt: skip
        inbox = self.ingest.inbox
        inbox.table.load(self.database.pages())
        inbox.next_index = int(self.database.meta("next_index", 1))
        if subscriptions is not None:
            self.ingest.load(subscriptions)
        self.before_load()
        self.flows.load()
        self.pool.start()

    def before_load(self) -> None:
        """For what has to be there when flows are loaded."""

    async def nothing(self) -> None:
        return None

    async def store(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._store_thread, call)

    def feed(
        self, packet_id: int, time: float, *, dup: bool = False, topic: str = "x/a", ids: tuple[int, ...] = ()
    ) -> None:
        payload = b'{"time": %f}' % (1_700_000_000 + time)
        self.ingest.feed([Publish(topic, payload, 1, False, dup, packet_id, ids)])
        assert self.pool.wait_empty([i for r in self.flows.runs.values() for i in r.all], 60.0)

    async def checkpoint(self) -> bool:
        return await self.checkpointer.checkpoint(self.flows.runs.values())

    def shipped(self) -> int:
        """Rows in all contributions."""
        from edgert.core.results.results import RowsBatch, unpack_result_untrusted

        batches = [unpack_result_untrusted(e.payload) for s, _ in self.database.outbox_streams()
                   for e in self.database.outbox(*s, 0, 1_000)]  # fmt: skip
        return sum(row[-1] for b in batches if isinstance(b, RowsBatch) for row in b.rows)

    def crash(self) -> None:
        self.pool.stop()
        self.database.close()
