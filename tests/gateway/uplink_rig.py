"""An uplink with a database of its own, a clock turned by hand and a connection that only notes what it is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgert.core.clock import VirtualClock
from edgert.core.ids import make_epoch
from edgert.core.position import Position
from edgert.core.results import Acknowledgement, Hello, Schema, pack_acknowledgement, unpack_result_untrusted
from edgert.store.database import Database, FlowCommit, StoredFlow
from gateway.uplink import Uplink

SCHEMA = Schema(60.0, (), (("n", "count"),))
E1, E2, E7 = (make_epoch(n, 5) for n in (1, 2, 7))
Acks = dict[tuple[str, int, int], int]


class Rig:
    def __init__(self, folder: Path, made: int = 0) -> None:
        self.folder = folder
        self.database = Database(folder / "gateway.db", "g1")
        self.clock = VirtualClock()
        self.sent: list[Any] = []
        self.connected = True
        self.made = made
        """Rows made so far: each has its number as its only value."""
        self.renamed: list[tuple[str, int]] = []
        self.uplink = Uplink("fleet", "g1", self.database, self.clock, self.store, self.publish)
        self.uplink.on_epoch = lambda flow, epoch: self.renamed.append((flow, epoch))

    async def store(self, call: Callable[[], Any]) -> Any:
        return call()

    def publish(self, topic: str, payload: bytes) -> bool:
        if self.connected:
            assert topic.startswith("edgert/v1/fleet/@results/0/g1/")
            self.sent.append(unpack_result_untrusted(payload))
        return self.connected

    def flow(self, epoch: int = E1, name: str = "f", version: int = 1) -> None:
        stored = StoredFlow(name, {}, version, "mqtt", False, epoch, Position())
        self.database.put_flow(stored, SCHEMA, None, {}, 1)

    def rows(self, batches: int, name: str = "f") -> None:
        for _ in range(batches):
            columns = ("window_start", "window_end", "n")
            self.made += 1
            rows = [[0.0, 60.0, self.made]]
            self.database.commit([FlowCommit(name, Position(), [], b"", columns, rows)], {}, 1)

    async def acknowledge(self, acks: Acks | None = None, answers: tuple[str, ...] = (), gateway: str = "g1") -> None:
        message = Acknowledgement(gateway=gateway, collector="c", acks=acks or {}, answers=answers)
        await self.uplink.acknowledged_untrusted(pack_acknowledgement(message))

    async def turn(self) -> list[Any]:
        """What one turn sends: hello as its flow's name, results as (epoch, sequence)."""
        self.sent.clear()
        await self.uplink._turn()
        return [m.flow if isinstance(m, Hello) else (m.epoch, m.sequence) for m in self.sent]

    async def admitted(self) -> None:
        self.uplink.connected()
        await self.acknowledge(answers=("f",))
