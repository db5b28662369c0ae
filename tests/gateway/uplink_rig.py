"""An uplink with a database of its own, a clock turned by hand and a connection that only notes what it is given."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from edgert.central.landing.lineage import Opening, counted
from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.clock import VirtualClock
from edgert.core.ids import make_epoch
from edgert.core.results.pieces import Piece
from edgert.core.results.result_schema import Schema
from edgert.core.results.results import (
    Acknowledgement,
    EpochHello,
    GapBatch,
    OpenBatch,
    RowsBatch,
    pack_acknowledgement,
    results_topic,
    unpack_result_untrusted,
)
from edgert.core.settings.gateway import Uplink as UplinkSettings
from edgert.store.database import Database
from edgert.store.state.records import StoredFlow
from gateway.uplink.uplink import Uplink

SCHEMA = Schema(60.0, (), (("n", "count"),))
E1, E2, E7 = (make_epoch(n, 5) for n in (1, 2, 7))
COPIED = ("gateway.db", "gateway.db-wal")
Acks = dict[tuple[str, int, int], int]


class Rig:
    def __init__(self, folder: Path, made: int = 0, settings: UplinkSettings | None = None) -> None:
        self.folder = folder
        self.database = Database(folder / "gateway.db", "g1")
        self.clock = VirtualClock()
        self.sent: list[Any] = []
        self.connected = True
        self.made = made
        """Rows made so far: each has its number as its only value."""
        self.renamed: list[tuple[str, int]] = []
        self.uplink = Uplink(
            "fleet", "g1", self.database, self.clock, self.store, self.publish, settings or UplinkSettings(),
            on_epoch=lambda flow, epoch: self.renamed.append((flow, epoch)),
        )  # fmt: skip

    async def store(self, call: Callable[[], Any]) -> Any:
        return call()

    def publish(self, topic: str, payload: bytes) -> bool:
        if self.connected:
            assert topic == results_topic("fleet", "g1", topic.rpartition("/")[2])
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
            self.database.commit([Checkpoint(name, Position(), [], b"", columns, rows)], {}, 1)

    async def acknowledge(self, acks: Acks | None = None, answers: tuple[str, ...] = (), gateway: str = "g1") -> None:
        """An acknowledgement of the collector, which answers to the last hello of each flow of `answers`."""
        tokens = {flow: self.uplink.macs.token(flow) for flow in answers}
        message = Acknowledgement(gateway=gateway, collector="c", acks=acks or {}, answers=answers, tokens=tokens)
        await self.uplink.acknowledged_untrusted(pack_acknowledgement(message))

    async def forge(self, acks: Acks, tokens: dict[str, bytes] | None = None) -> None:
        """An acknowledgement by somebody who may write there and read nothing. It answers to a hello of each flow."""
        answers = tuple({flow for flow, _, _ in acks})
        message = Acknowledgement(gateway="g1", collector="c", acks=acks, answers=answers, tokens=tokens or {})
        await self.uplink.acknowledged_untrusted(pack_acknowledgement(message))

    async def turn(self) -> list[Any]:
        """What one turn sends: hello as its flow's name, results as (epoch, sequence) but for pieces."""
        self.sent.clear()
        self.uplink._wake.clear()
        await self.uplink.turn()
        return [
            m.flow if isinstance(m, EpochHello) else m.of if isinstance(m, Piece) else (m.epoch, m.sequence)
            for m in self.sent
        ]

    async def admitted(self) -> None:
        self.uplink.connected()
        await self.acknowledge(answers=("f",))


class Collector:
    """A model of the real one: lands what comes next in each stream of an epoch that was opened, drops what it has,
    counts by lineage. It tells of what it was sent, of the greatest epoch, and of those that a hello asks for."""

    def __init__(self) -> None:
        self.landed: dict[tuple[int, int], list[Any]] = {}
        self.greeted: list[str] = []
        self.asked: set[int] = set()

    async def serve(self, rig: Rig, turns: int = 8) -> None:
        """Takes what some turns of the uplink send, and answers each."""
        for _ in range(turns):
            await rig.turn()
            self.take(rig.sent)
            await self.answer(rig)

    def take(self, messages: Iterable[Any]) -> None:
        for batch in messages:
            if isinstance(batch, EpochHello):
                self.greeted.append(batch.flow)
                self.asked |= {*batch.epochs, max((e for e, _ in self.landed), default=0)}
                continue
            self.asked.add(batch.epoch)
            if batch.stream == 0 or self.landed.get((batch.epoch, 0)):
                stream = self.landed.setdefault((batch.epoch, batch.stream), [])
                if batch.sequence == len(stream) + 1:
                    stream.append(batch)

    async def answer(self, rig: Rig) -> None:
        acks = {("f", *key): len(stream) for key, stream in self.landed.items() if stream and key[0] in self.asked}
        answers, self.greeted = tuple(self.greeted), []
        self.asked.clear()
        await rig.acknowledge(acks, answers=answers)

    def rows(self) -> list[int]:
        """What the fleet table counts."""
        opened = [b for s in self.landed.values() for b in s if isinstance(b, OpenBatch)]
        valid = counted([Opening("g1", b.epoch, b.parent, b.cut) for b in opened])
        found = []
        for (epoch, stream), batches in self.landed.items():
            if ("g1", epoch) in valid:
                cut = valid["g1", epoch]
                last = len(batches) if cut is None else cut.get(stream, 0)
                found += [row[2] for b in batches[:last] if isinstance(b, RowsBatch) for row in b.rows]
        return sorted(found)

    def gaps(self) -> list[GapBatch]:
        return [b for s in self.landed.values() for b in s if isinstance(b, GapBatch)]


def save(rig: Rig) -> None:
    for name in COPIED:
        if (rig.folder / name).exists():
            shutil.copy(rig.folder / name, rig.folder / f"saved-{name}")


def restore(rig: Rig, made: int) -> Rig:
    """The same card as it was at `save`; the rows it makes from now on count from `made`."""
    rig.database.close()
    for name in COPIED:
        (rig.folder / name).unlink(missing_ok=True)
        if (rig.folder / f"saved-{name}").exists():
            shutil.copy(rig.folder / f"saved-{name}", rig.folder / name)
    return Rig(rig.folder, made, rig.uplink.settings)


def restart(rig: Rig) -> Rig:
    rig.database.close()
    return Rig(rig.folder, rig.made, rig.uplink.settings)
