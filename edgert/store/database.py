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
from edgert.store import file, outbox
from edgert.store.outbox import LIVE, OutboxEntry, OutboxSize
from edgert.store.schema import upgrade

CHECKED_BYTES = 64 << 20
"""A larger file is checked at a start without its outbox, or a long outage would be followed by a long start."""
CACHE_KIB = 512
"""SQLite's page cache (its default: 2 MB). A larger transaction spills to the log before its end."""

WAITING = "SELECT flow, epoch, stream FROM stream WHERE batches > 0 ORDER BY flow, epoch, stream"
ENTRIES = (
    "SELECT epoch, stream, sequence, payload FROM outbox "
    "WHERE flow = ? AND epoch = ? AND stream = ? AND sequence > ? ORDER BY sequence LIMIT ?"
)


@dataclass(frozen=True, slots=True)
class StoredFlow:
    """A flow as the database knows it."""

    name: str
    document: Mapping[str, Any]
    version: int
    origin: str
    removed: bool
    epoch: int
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


class Database:
    """Opens, checks and if need be upgrades the file. Raises `StoreError` saying what to do."""

    def __init__(self, path: Path, gateway: str) -> None:
        self.path = path
        self.gateway = gateway
        try:
            self._lock = file.lock(path)
        except OSError as error:
            raise StoreError(f"cannot lock the database {path}: {error}; check the folder and its disk") from error
        try:
            self._open()
        except BaseException:
            self._lock.close()
            raise

    def _open(self) -> None:
        path = self.path
        try:
            file.private(path)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            fault = self._fault()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"cannot open the database {path}: {error}; check the folder and its disk") from error
        if fault != "ok":
            raise StoreError(f"the database {path} is damaged ({fault}); move it away to begin anew")
        self._change = OutboxSize(0, 0, 0)
        self.outbox_size = self._change
        """What waits in the outbox; kept in step with every transaction, so reading it costs nothing."""
        try:
            upgrade(self._db)
            # what was being sent when the last process ended may have left the board
            self._db.execute("UPDATE stream SET departed = sequence WHERE departed IS NULL")
        except sqlite3.Error as error:
            raise StoreError(f"the database {path} could not be brought up to date: {error}") from error
        query = "SELECT coalesce(sum(batches), 0), coalesce(sum(rows), 0), coalesce(sum(bytes), 0) FROM stream"
        self.outbox_size = OutboxSize(*self._rows(query)[0])

    def _fault(self) -> str:
        """ "ok", or what is wrong with the file."""
        if self.path.stat().st_size <= CHECKED_BYTES:
            return str(self._db.execute("PRAGMA quick_check(1)").fetchone()[0])
        names = self._db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'outbox'").fetchall()
        found = (self._db.execute(f"PRAGMA quick_check('{name}')").fetchone()[0] for (name,) in names)
        return next((fault for fault in found if fault != "ok"), "ok")

    def close(self) -> None:
        self._db.close()
        self._lock.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._change = OutboxSize(0, 0, 0)
        self._rollback()  # one that could not be taken back when it failed
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
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise StoreError(f"a transaction of the database {self.path} could not be taken back: {error}") from error

    def _rows(self, query: str, *values: Any) -> list[Any]:
        """Every read goes through here, so that a failing disk is a `StoreError` too."""
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"the database {self.path} could not be read: {error}") from error

    # -- what a start needs

    def flows(self) -> list[StoredFlow]:
        columns = "name, document, version, origin, removed, epoch, position, missing"
        return [
            StoredFlow(name, json.loads(document), version, origin, bool(removed), epoch,
                       Position(position, frozenset(msgspec.msgpack.decode(missing, type=list[int]))))
            for name, document, version, origin, removed, epoch, position, missing in self._rows(
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
            sequence = outbox.last(db, flow, epoch, LIVE)
            for rows in outbox.in_batches(commit.rows):
                sequence += 1
                batch = RowsBatch(
                    gateway=self.gateway, flow=flow, epoch=epoch, stream=LIVE, sequence=sequence, flow_version=version,
                    columns=commit.columns, rows=rows,
                )  # fmt: skip
                change = outbox.put(db, flow, epoch, LIVE, sequence, len(rows), pack_result(batch))
                self._change = self._change.plus(change)

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
                      flow.position.index, missing)  # fmt: skip
            if schema is not None:
                parent = max(self.epochs(flow.name), default=None)
                cut = {} if parent is None else self.last_sequences(flow.name, parent)
                opened = OpenBatch(
                    gateway=self.gateway, flow=flow.name, epoch=flow.epoch, stream=LIVE, sequence=1,
                    flow_version=flow.version, schema=schema, parent=parent, cut=cut,
                )  # fmt: skip
                change = outbox.put_opening(db, flow.name, flow.epoch, pack_result(opened))
                self._change = self._change.plus(change)
            db.execute("INSERT OR REPLACE INTO flow VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
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

    def epoch(self, flow: str) -> int | None:
        """The epoch in which the flow numbers its results now; None for a flow that is not known."""
        found = self._rows("SELECT epoch FROM flow WHERE name = ?", flow)
        return found[0][0] if found else None

    def departed(self, flow: str) -> dict[int, dict[int, int]]:
        """Epoch → stream → the greatest number that may have left the board with what this database says."""
        query = "SELECT epoch, stream, coalesce(departed, sequence) FROM stream WHERE flow = ? ORDER BY epoch, stream"
        found: dict[int, dict[int, int]] = {}
        for epoch, stream, number in self._rows(query, flow):
            found.setdefault(epoch, {})[stream] = number
        return found

    def departs(self, flow: str, epoch: int, stream: int) -> None:
        """To be called before a stream is sent: from now on each of its numbers may have left the board."""
        where = "WHERE flow = ? AND epoch = ? AND stream = ? AND departed IS NOT NULL"
        if self._rows(f"SELECT 1 FROM stream {where}", flow, epoch, stream):
            with self._transaction() as db:
                db.execute(f"UPDATE stream SET departed = NULL {where}", (flow, epoch, stream))

    def rebase(
        self, flow: str, renamed: Mapping[int, int], parent: int, cut: Mapping[int, int],
        kept: Mapping[int, int] | None = None, gap: str = "",
    ) -> None:  # fmt: skip
        """The collector knows a newer epoch than this database: epochs get new names, in order; the first of them gets
        `parent` and `cut`, each other goes on from the one before it.

        An epoch that has never left the board disappears under its old name. With `kept` the first one has: it stays,
        with its numbers up to `kept` per stream, and only what stands above in the outbox gets the new name (and new
        numbers), after a batch that says `gap`.
        """
        with self._transaction() as db:
            for old, new in renamed.items():
                change = outbox.reopen(db, flow, old, new, parent, cut, kept or {}, gap)
                self._change = self._change.plus(change)
                if kept is None:
                    db.execute("DELETE FROM stream WHERE flow = ? AND epoch = ?", (flow, old))
                    db.execute("DELETE FROM opening WHERE flow = ? AND epoch = ?", (flow, old))
                parent, cut, kept, gap = new, self.last_sequences(flow, new), None, ""
            db.execute("UPDATE flow SET epoch = ? WHERE name = ?", (parent, flow))

    # -- outbox

    def outbox(self, flow: str, epoch: int, stream: int, after: int, limit: int) -> list[OutboxEntry]:
        """Entries of one stream with a sequence above `after`, in order."""
        return [OutboxEntry(*row) for row in self._rows(ENTRIES, flow, epoch, stream, after, limit)]

    def outbox_streams(self) -> list[tuple[str, int, int]]:
        """(flow, epoch, stream) of everything that waits in the outbox."""
        return self._rows(WAITING)

    def acknowledged(self, acks: Mapping[tuple[str, int, int], int]) -> int:
        """Deletes what the collector has; returns how many batches that were."""
        with self._transaction() as db:
            for key, sequence in acks.items():
                self._change = self._change.plus(outbox.free(db, *key, 0, sequence))
            return -self._change.batches
