"""The one database of a gateway: SQLite in WAL mode, synchronous=FULL, one writer, one transaction per checkpoint.

Every method belongs on the one store thread; each either commits whole or changes nothing and raises `StoreError`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edgert.core.errors import StoreError
from edgert.core.position import Position
from edgert.core.results import OpenBatch, RowsBatch, Schema, pack_result
from edgert.store.schema import upgrade

LIVE = 0
"""The stream in which results normally leave."""
BATCH_ROWS = 1_000
"""Contributions per result batch at the most: keeps one MQTT message around 100 kB."""


@dataclass(frozen=True, slots=True)
class StoredFlow:
    """A flow as the database knows it."""

    name: str
    document: Mapping[str, Any]
    version: int
    origin: str
    removed: bool
    epoch: int
    confirmed: int
    """Greatest epoch about which the collector was asked: numbers up to it may leave the board."""
    position: Position


@dataclass(slots=True)
class FlowCommit:
    """What one checkpoint of one flow writes."""

    flow: str
    position: Position
    deltas: Sequence[bytes]
    queue: bytes
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    """Contributions for the outbox, as lists in the order of `columns`."""


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    epoch: int
    stream: int
    sequence: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class OutboxSize:
    batches: int
    rows: int
    bytes: int

    def plus(self, change: OutboxSize) -> OutboxSize:
        return OutboxSize(self.batches + change.batches, self.rows + change.rows, self.bytes + change.bytes)


class Database:
    """Opens, checks and if need be upgrades the file. Raises `StoreError` saying what to do."""

    def __init__(self, path: Path, gateway: str) -> None:
        self.path = path
        self.gateway = gateway
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            fault = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"cannot open the database {path}: {error}; check the folder and its disk") from error
        if fault != "ok":
            raise StoreError(f"the database {path} is damaged ({fault}); move it away to begin anew")
        try:
            upgrade(self._db)
        except sqlite3.Error as error:
            raise StoreError(f"the database {path} could not be brought up to date: {error}") from error
        query = "SELECT count(*), coalesce(sum(rows), 0), coalesce(sum(length(payload)), 0) FROM outbox"
        self.outbox_size = OutboxSize(*self._rows(query)[0])
        """What waits in the outbox; kept in step with every transaction, so reading it costs nothing."""
        self._change = OutboxSize(0, 0, 0)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._change = OutboxSize(0, 0, 0)
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            raise StoreError(f"the database {self.path} could not be written: {error}") from error
        except BaseException:
            self._rollback()
            raise
        self.outbox_size = self.outbox_size.plus(self._change)

    def _rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _rows(self, query: str, *values: Any) -> list[Any]:
        """Every read goes through here, so that a failing disk is a `StoreError` too."""
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"the database {self.path} could not be read: {error}") from error

    # -- what a start needs

    def flows(self) -> list[StoredFlow]:
        columns = "name, document, version, origin, removed, epoch, confirmed, position, missing"
        return [
            StoredFlow(name, json.loads(document), version, origin, bool(removed), epoch, confirmed,
                       Position(position, frozenset(msgspec.msgpack.decode(missing, type=list[int]))))
            for name, document, version, origin, removed, epoch, confirmed, position, missing in self._rows(
                f"SELECT {columns} FROM flow ORDER BY name"
            )
        ]  # fmt: skip

    def state(self, flow: str) -> list[bytes]:
        """Snapshot and deltas of a flow, oldest first."""
        return [b for (b,) in self._rows("SELECT blob FROM state WHERE flow = ? ORDER BY number", flow)]

    def queue(self, flow: str) -> bytes:
        """What stood in the flow's queues; empty when there was no checkpoint yet."""
        found = self._rows("SELECT blob FROM queue WHERE flow = ?", flow)
        return found[0][0] if found else b""

    def pages(self) -> list[tuple[int, bytes]]:
        return self._rows("SELECT page, blob FROM page")

    def meta(self, key: str, default: Any = None) -> Any:
        found = self._rows("SELECT value FROM meta WHERE key = ?", key)
        return found[0][0] if found else default

    def set_meta(self, key: str, value: Any) -> None:
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    # -- checkpoints

    def commit(self, commits: Sequence[FlowCommit], pages: Mapping[int, bytes], next_index: int) -> None:
        """One transaction: state, queues, positions, outbox rows of these flows, and the current id table."""
        with self._transaction() as db:
            for commit in commits:
                self._write(db, commit)
            self._write_table(db, pages, next_index)

    def _write(self, db: sqlite3.Connection, commit: FlowCommit) -> None:
        flow, position = commit.flow, commit.position
        missing = msgspec.msgpack.encode(sorted(position.missing))
        db.execute("UPDATE flow SET position = ?, missing = ? WHERE name = ?", (position.index, missing, flow))
        db.executemany(
            "INSERT INTO state (flow, kind, blob) VALUES (?, 'delta', ?)", [(flow, d) for d in commit.deltas]
        )
        db.execute("INSERT OR REPLACE INTO queue VALUES (?, ?)", (flow, commit.queue))
        if commit.rows:
            epoch, version = db.execute("SELECT epoch, version FROM flow WHERE name = ?", (flow,)).fetchone()
            sequence = self._last(db, flow, epoch, LIVE)
            for at in range(0, len(commit.rows), BATCH_ROWS):
                rows = commit.rows[at : at + BATCH_ROWS]
                sequence += 1
                batch = RowsBatch(
                    gateway=self.gateway, flow=flow, epoch=epoch, stream=LIVE, sequence=sequence, flow_version=version,
                    columns=commit.columns, rows=rows,
                )  # fmt: skip
                self._put(db, batch, len(rows))
            self._count(db, flow, epoch, LIVE, sequence)

    def _put(self, db: sqlite3.Connection, batch: RowsBatch | OpenBatch, rows: int) -> None:
        payload = pack_result(batch)
        values = (batch.flow, batch.epoch, batch.stream, batch.sequence, rows, payload)
        db.execute("INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?)", values)
        self._change = self._change.plus(OutboxSize(1, rows, len(payload)))

    def _last(self, db: sqlite3.Connection, flow: str, epoch: int, stream: int) -> int:
        query = "SELECT sequence FROM stream WHERE flow = ? AND epoch = ? AND stream = ?"
        found = db.execute(query, (flow, epoch, stream)).fetchone()
        return found[0] if found else 0

    def _count(self, db: sqlite3.Connection, flow: str, epoch: int, stream: int, sequence: int) -> None:
        db.execute("INSERT OR REPLACE INTO stream VALUES (?, ?, ?, ?)", (flow, epoch, stream, sequence))

    def _write_table(self, db: sqlite3.Connection, pages: Mapping[int, bytes], next_index: int) -> None:
        db.executemany("INSERT OR REPLACE INTO page VALUES (?, ?)", [(n, raw) for n, raw in pages.items() if raw])
        db.executemany("DELETE FROM page WHERE page = ?", [(n,) for n, raw in pages.items() if not raw])
        db.execute("INSERT OR REPLACE INTO meta VALUES ('next_index', ?)", (next_index,))

    def compact_state(self, flow: str, snapshot: bytes) -> None:
        """Replaces a flow's snapshot and deltas by one snapshot of the same state."""
        with self._transaction() as db:
            db.execute("DELETE FROM state WHERE flow = ?", (flow,))
            db.execute("INSERT INTO state (flow, kind, blob) VALUES (?, 'snapshot', ?)", (flow, snapshot))

    # -- flows

    def last_sequences(self, flow: str, epoch: int) -> dict[int, int]:
        """The last number given per stream of an epoch: where its successor cuts it."""
        query = "SELECT stream, sequence FROM stream WHERE flow = ? AND epoch = ?"
        return dict(self._rows(query, flow, epoch))

    def epochs(self, flow: str) -> list[int]:
        """Every epoch in which the flow shipped or will, oldest first."""
        query = "SELECT DISTINCT epoch FROM stream WHERE flow = ? ORDER BY epoch"
        return [e for (e,) in self._rows(query, flow)]

    def put_flow(
        self,
        flow: StoredFlow,
        schema: Schema | None,
        last: FlowCommit | None,
        pages: Mapping[int, bytes],
        next_index: int,
    ) -> None:
        """Writes a new flow or a new version of one, in one transaction: `last` (all that the old version still had to
        say), then the new epoch, whose parent is the newest in which the flow shipped. `schema` None: ships nothing."""
        with self._transaction() as db:
            if last is not None:
                self._write(db, last)
            self._forget_state(db, flow.name)
            missing = msgspec.msgpack.encode(sorted(flow.position.missing))
            values = (flow.name, json.dumps(flow.document), flow.version, flow.origin, int(flow.removed), flow.epoch,
                      flow.confirmed, flow.position.index, missing)  # fmt: skip
            if schema is not None:
                parent = max(self.epochs(flow.name), default=None)
                cut = {} if parent is None else self.last_sequences(flow.name, parent)
                opened = OpenBatch(
                    gateway=self.gateway, flow=flow.name, epoch=flow.epoch, stream=LIVE, sequence=1,
                    flow_version=flow.version, schema=schema, parent=parent, cut=cut,
                )  # fmt: skip
                self._put(db, opened, 0)
                self._count(db, flow.name, flow.epoch, LIVE, 1)
            db.execute("INSERT OR REPLACE INTO flow VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            self._write_table(db, pages, next_index)

    def remove_flow(self, name: str, last: FlowCommit | None, pages: Mapping[int, bytes], next_index: int) -> None:
        """Stops a flow for good; its outbox drains, its epoch is remembered for a later flow of this name."""
        with self._transaction() as db:
            if last is not None:
                self._write(db, last)
            self._forget_state(db, name)
            db.execute("UPDATE flow SET removed = 1 WHERE name = ?", (name,))
            self._write_table(db, pages, next_index)

    def _forget_state(self, db: sqlite3.Connection, flow: str) -> None:
        db.execute("DELETE FROM state WHERE flow = ?", (flow,))
        db.execute("DELETE FROM queue WHERE flow = ?", (flow,))

    def confirm(self, flow: str, epoch: int) -> None:
        """The collector knows nothing newer: numbers up to this epoch may leave the board."""
        with self._transaction() as db:
            db.execute("UPDATE flow SET confirmed = ? WHERE name = ?", (epoch, flow))

    def rebase(self, flow: str, renamed: Mapping[int, int], parent: int, cut: Mapping[int, int]) -> None:
        """The collector knows a newer epoch (this card was replaced): renames epochs that have never left the board,
        in order; the first gets `parent` and `cut`."""
        with self._transaction() as db:
            for old, new in renamed.items():
                self._rename_epoch(db, flow, old, new, parent, cut)
                parent, cut = new, self.last_sequences(flow, new)
            db.execute("UPDATE flow SET epoch = ?, confirmed = ? WHERE name = ?", (parent, parent, flow))

    def _rename_epoch(
        self, db: sqlite3.Connection, flow: str, old: int, new: int, parent: int, cut: Mapping[int, int]
    ) -> None:
        query = "SELECT stream, sequence, rows, payload FROM outbox WHERE flow = ? AND epoch = ?"
        for stream, sequence, rows, payload in db.execute(query, (flow, old)).fetchall():
            plain = {**msgspec.msgpack.decode(payload, strict=False), "epoch": new}
            if plain["kind"] == "open":
                plain.update(parent=parent, cut=dict(cut))
            renamed = msgspec.msgpack.encode(plain)
            values = (flow, new, stream, sequence, rows, renamed)
            db.execute("INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?)", values)
            self._change = self._change.plus(OutboxSize(0, 0, len(renamed) - len(payload)))
        db.execute("DELETE FROM outbox WHERE flow = ? AND epoch = ?", (flow, old))
        db.execute("UPDATE stream SET epoch = ? WHERE flow = ? AND epoch = ?", (new, flow, old))

    # -- outbox

    def outbox(self, flow: str, epoch: int, stream: int, after: int, limit: int) -> list[OutboxEntry]:
        """Entries of one stream with a sequence above `after`, in order."""
        query = (
            "SELECT epoch, stream, sequence, payload FROM outbox "
            "WHERE flow = ? AND epoch = ? AND stream = ? AND sequence > ? ORDER BY sequence LIMIT ?"
        )
        return [OutboxEntry(*row) for row in self._rows(query, flow, epoch, stream, after, limit)]

    def outbox_streams(self) -> list[tuple[str, int, int]]:
        """(flow, epoch, stream) of everything that waits in the outbox."""
        query = "SELECT DISTINCT flow, epoch, stream FROM outbox ORDER BY flow, epoch, stream"
        return self._rows(query)

    def acknowledged(self, acks: Mapping[tuple[str, int, int], int]) -> int:
        """Deletes what the collector has; returns how many batches that were."""
        query = (
            "DELETE FROM outbox WHERE flow = ? AND epoch = ? AND stream = ? AND sequence <= ? "
            "RETURNING rows, length(payload)"
        )
        with self._transaction() as db:
            gone = [size for key, sequence in acks.items() for size in db.execute(query, (*key, sequence))]
            self._change = OutboxSize(-len(gone), -sum(rows for rows, _ in gone), -sum(size for _, size in gone))
        return len(gone)
