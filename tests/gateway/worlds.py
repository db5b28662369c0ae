"""Flows and files that several tests of a gateway share, and results read back from its database."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from edgert.core.clock import Clock
from edgert.core.results.results import GapBatch, OpenBatch, RowsBatch, unpack_result_untrusted
from edgert.flow.document import from_plain
from edgert.flow.physical import Fusion
from edgert.operators.registry import REGISTRY
from edgert.store.database import Database
from gateway.status.status import Status
from tests.gateway.slots_walk import Walk
from tests.gateway.whole_gateway import Gateway, document
from tests.slots_here import InThisProcess


def rot(path: Path, table: str, numbers: Iterable[int] = (-1,)) -> None:
    """One byte in the midst of some pieces (0 is the oldest) of flow `f` is another."""
    with sqlite3.connect(path) as db:
        rows = db.execute(f"SELECT number, blob FROM {table} WHERE flow = 'f' ORDER BY number").fetchall()
        for number, blob in [rows[at] for at in numbers]:
            raw = bytearray(blob)
            raw[len(raw) // 2] ^= 0xFF
            db.execute(f"UPDATE {table} SET blob = ? WHERE flow = 'f' AND number = ?", (bytes(raw), number))


def results(database: Database) -> list[OpenBatch | RowsBatch | GapBatch]:
    found = [unpack_result_untrusted(e.payload) for stream, _ in database.outbox_streams()
             if stream[0] == "f" for e in database.outbox(*stream, 0, 1_000)]  # fmt: skip
    return [result for result in found if isinstance(result, OpenBatch | RowsBatch | GapBatch)]


async def with_messages(path: Path, most: int = 5, *, merged: bool = False) -> None:
    """Two flows that take messages 1 to `most`, one per checkpoint; and one more that is not committed."""
    gateway = Gateway(path)
    for name in ("f", "other"):
        await gateway.flows.deploy(document(name), "mqtt")
    for number in range(1, most + 1):
        gateway.feed(number, number)
        assert await gateway.checkpoint()
        if merged and number == 2:
            gateway.checkpointer.compact(gateway.flows.runs["f"])
    gateway.feed(most + 1, most + 1)
    gateway.crash()


def gaps(gateway: Gateway) -> list[GapBatch]:
    return [batch for batch in results(gateway.database) if isinstance(batch, GapBatch)]


def alarms() -> Any:
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "tell": {"type": "publish", "input": "in", "topic": "alarm/{source}", "qos": 1},
        "minute": {"type": "tumbling_window", "input": "in", "size_s": 10, "aggregates": {"n": "count()"}},
        "out": {"type": "ship", "input": "minute"},
    }
    return from_plain({"name": "f", "operators": operators}, REGISTRY)


def no_central() -> dict[str, Any]:
    return {
        "outbox_rows": 0, "acknowledged": 0, "rows_by_flow": {}, "acknowledged_by_flow": {}, "enabled": False,
        "connected": False, "error": "", "broker": "", "outbox_bytes": 0, "outbox_quota_bytes": 1,
        "lost_by_tables": 0, "last_ack_age_s": None,
    }  # fmt: skip


def status_of(
    gateway: Gateway, central: Callable[[], dict[str, Any]] = no_central, clock: Clock | None = None
) -> Status:
    sections = {
        "ingest": lambda: {"messages": 0, "connected": True, "subscribed": True, "error": ""},
        "central": central,
        "checkpoint": lambda: {"error": "", "failures": 0, "missed": 0},
    }
    return Status("g1", "fleet", sections, (), gateway.flows, gateway.host, clock or gateway.clock)


ROOT = Path(__file__).parents[2]
ARTEFACTS = ROOT / "artefacts"


APART: dict[str, Any] = {
    "name": "f",
    "operators": {
        "in": {"type": "mqtt_source", "time_earliest": "1970-01-01", "topic": "x/{source}", "slot": 0},
        "by": {"type": "key_by", "input": "in", "keys": ["source"]},
        "minute": {"type": "tumbling_window", "input": "by", "size_s": 10, "aggregates": {"n": "count()"}, "slot": 1},
        "out": {"type": "ship", "input": "minute", "slot": 1},
    },
}


def begun(fusion: Fusion = "full") -> tuple[Walk, InThisProcess, InThisProcess]:
    """The flow in two slots that have started: of its source, and of its window."""
    walk = Walk(random.Random(1), APART, "locality", 2, fusion)
    walk.slots.begin(walk.run)
    near, far = walk.processes
    for process in walk.processes:
        process.start()
    for _ in range(5):
        near.step()
        far.step()
    return walk, near, far
