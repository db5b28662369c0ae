"""A database with one flow, and what a test commits to it and reads back."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.ids import make_epoch
from edgert.core.results.result_schema import Schema
from edgert.core.results.results import unpack_result_untrusted
from edgert.store.database import Database
from edgert.store.state.records import StoredFlow

SCHEMA = Schema(60.0, (("source", "string"),), (("n", "count"),))
COLUMNS = ("window_start", "window_end", "source", "n")
ROW = [0.0, 60.0, "a", 1]
E1, E2, E3, E9 = (make_epoch(n, 7) for n in (1, 2, 3, 9))


def flow(epoch: int, version: int = 1, position: Position | None = None) -> StoredFlow:
    return StoredFlow("f", {"name": "f"}, version, "mqtt", False, epoch, position or Position())


def commit(*rows: Any, index: int = 5, deltas: tuple[bytes, ...] = (b"d",)) -> Checkpoint:
    return Checkpoint("f", Position(index, frozenset([2])), deltas, b"queue", COLUMNS, rows)


def entries(database: Database, epoch: int) -> list[Any]:
    return [unpack_result_untrusted(e.payload) for e in database.outbox("f", epoch, 0, 0, 1_000)]


def everything(database: Database) -> Any:
    return [database.db.execute(f"SELECT * FROM {t}").fetchall()
            for t in ("meta", "flow", "state", "queue", "page", "stream", "outbox")]  # fmt: skip


COMMITS = """
import sys
import tracemalloc
from pathlib import Path
from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.store.database import Database
from tests.store.worlds import COLUMNS, E1, SCHEMA, flow
database = Database(Path(sys.argv[1]), "g1")
if not database.flows():
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
at = database.flows()[0].position.index
while True:
    at += 1
    delta = b"%d" % at
    done = Checkpoint("f", Position(at), [delta], delta, COLUMNS, [[0.0, 60.0, "a", at]])
    database.commit([done], {0: delta}, at + 1)
    print(at, flush=True)
"""


def spoil(path: Path, *numbers: int) -> None:
    with sqlite3.connect(path) as db:
        for number in numbers:
            query = "SELECT payload FROM outbox WHERE flow = 'f' AND sequence = ?"
            raw = bytearray(db.execute(query, (number,)).fetchone()[0])
            raw[len(raw) // 2] ^= 1
            db.execute("UPDATE outbox SET payload = ? WHERE flow = 'f' AND sequence = ?", (bytes(raw), number))
