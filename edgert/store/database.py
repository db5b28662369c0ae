"""The one database of a gateway: SQLite in WAL mode, synchronous=FULL, one writer, one transaction per checkpoint.

Every method belongs on the one store thread; each either commits whole or changes nothing and raises `StoreError`.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.results.result_schema import Schema
from edgert.flow.options import full_outbox
from edgert.flow.plan import Assignment
from edgert.store import fallback, look_ups, plan_change
from edgert.store.file import owner
from edgert.store.outbox import early_results, link_outbox, outbox, sent_bounds
from edgert.store.outbox.outbox import OutboxSize
from edgert.store.outbox_tables import OutboxTables, ToOutbox
from edgert.store.state import spill
from edgert.store.state.records import (
    COLUMNS,
    FlowResults,
    Spill,
    Spilled,
    StateExtent,
    StoredFlow,
    columns_of,
    row_of,
    stored_flow,
)  # fmt: skip

WRITE_BACK_S = 600.0
"""The log is written back into the database at least so often, and with each flow that is deployed."""


class _Trial(Exception):
    """A transaction that is to be taken back."""


class Database(OutboxTables):
    """Opens, checks and if need be upgrades the file. Raises `StoreError` saying what to do."""

    def __init__(
        self, path: Path, gateway: str, quota_bytes: float = math.inf, monotonic: Callable[[], float] = time.monotonic,
        link_quota_bytes: float = math.inf, batch_limits: outbox.BatchLimits | None = None,
    ) -> None:  # fmt: skip
        super().__init__(path, gateway, quota_bytes, monotonic, link_quota_bytes)
        self._batch_limits = batch_limits or outbox.BatchLimits()
        self.spill_quota_bytes = spill.QUOTA_BYTES
        self.repeated: Counter[str] = Counter()
        """Rows that had left ahead of a checkpoint when their flow went back to the one before, by flow, ever."""
        self.again: Mapping[str, int] = {}
        """Rows, of these, that are made again since this start, by flow."""
        self._written_back = -math.inf
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        with self._transaction() as db:
            owner.claim(db, self.gateway, self.path)
            sent_bounds.started(db)
            self.again = early_results.go_back(db)
        query = "SELECT coalesce(sum(batches), 0), coalesce(sum(rows), 0), coalesce(sum(bytes), 0) FROM stream"
        self.outbox_size = OutboxSize(*self._rows(query)[0])
        self.repeated.update(dict(self._rows("SELECT flow, repeated FROM ahead")))
        self._link_bytes = self.read(link_outbox.total)
        self._mark_file.write(self.mark, wait=True)
        self.write_back()
        self._written_back = self._monotonic()
        self._ran_before = float(self.meta("running_s", 0.0))
        self._when_full = {stored.name: full_outbox.of_document(stored.document) for stored in self.flows()}

    # -- what a start needs

    def flows(self) -> list[StoredFlow]:
        return [stored_flow(*row) for row in self._rows(f"SELECT {COLUMNS} FROM flow ORDER BY name")]

    def state(self, flow: str) -> list[bytes]:
        """Snapshot and deltas of a flow, oldest first."""
        return [b for (b,) in self._rows("SELECT blob FROM state WHERE flow = ? ORDER BY number", flow)]

    def queue(self, flow: str) -> bytes:
        """The packed content of the flow's queues; empty when there was no checkpoint yet."""
        found = self._rows("SELECT blob FROM queue WHERE flow = ?", flow)
        return found[0][0] if found else b""

    def spilled(self, flow: str) -> Spilled | None:
        """Input that stands behind what its queues hold; None if there is none."""
        return self.read(spill.read, flow)

    def spill_room(self, flow: str) -> int:
        """Returns how many bytes more of it may be spilled before some of that is given up."""
        return self.read(spill.room, flow, self.spill_quota_bytes)

    def pages(self) -> list[tuple[int, bytes]]:
        return self._rows("SELECT page, blob FROM page")

    # -- checkpoints

    def commit(
        self, commits: Sequence[Checkpoint], pages: Mapping[int, bytes], next_index: int, spills: Sequence[Spill] = ()
    ) -> set[str]:
        """One transaction: state, queues, positions, outbox rows of these flows, input of others that are stuck, and
        the current id table.

        Returns the flows of which nothing was written: those that keep all, and whose results have no room."""

        def rest(db: sqlite3.Connection) -> None:
            for spilled in spills:
                spill.put(db, spilled, self.spill_quota_bytes)
            self._write_table(db, pages, next_index)

        refused = self._write_fitting(commits, self._write, rest)
        if self._monotonic() - self._written_back >= WRITE_BACK_S:
            self._write_back_now()
        return refused

    def _write_back_now(self) -> None:
        self.write_back()
        self._written_back = self._monotonic()

    def put_early(self, results: Sequence[FlowResults]) -> set[str]:
        """Numbers what these flows have made and puts it into the outbox, ahead of their checkpoints: nothing else
        changes. Returns the flows of which nothing was written, as `commit` does."""
        return self._write_fitting(results, self._put_early)

    def go_back(self, flow: str) -> int:
        """The flow goes on from its last checkpoint: so many rows that had left ahead of the next are made again."""
        if not self._rows("SELECT 1 FROM ahead WHERE flow = ? AND rows > 0", flow):
            return 0
        with self._transaction() as db:
            found = early_results.go_back(db, flow)
        self.repeated.update(found)
        return found[flow]

    def _write_fitting(
        self, parts: Sequence[ToOutbox], write: Callable[[sqlite3.Connection, Any], None],
        rest: Callable[[sqlite3.Connection], None] = lambda db: None,
    ) -> set[str]:  # fmt: skip
        """Writes those of `parts` that have room, and `rest`, in one transaction. Returns the flows of the others.

        A transaction in which some had no room is a trial: it is taken back, and made anew without them. Where ROLLBACK
        TO undoes pages that had been written to the log twice, SQLite (seen with 3.40 and 3.46) goes on with a wrong
        checksum until the transaction ends, and a crash loses what is committed from there on."""
        refused: set[str] = set()
        while True:
            try:
                with self._transaction() as db:
                    left = [part for part in parts if part.flow not in refused]
                    if more := {part.flow for part in left if not self._fits(db, part, write)}:
                        refused |= more
                        raise _Trial
                    rest(db)
                return refused
            except _Trial:
                continue

    def _fits(self, db: sqlite3.Connection, part: ToOutbox, write: Callable[[sqlite3.Connection, Any], None]) -> bool:
        """True if there was room for the rows of `part`; if not, nothing of it is written, and the transaction must not
        be committed."""
        before, link_bytes = (self._change, len(self._shedding)), self._link_bytes
        db.execute("SAVEPOINT flow")
        write(db, part)
        fits = not part.rows or self._make_room(db, part, self._change.bytes - before[0].bytes)
        if self._link_bytes > link_bytes:
            fits = fits and self._links_fit(db, part.flow)
        if not fits:
            db.execute("ROLLBACK TO flow")
            self._change = before[0]
            del self._shedding[before[1] :]
            self._link_bytes = link_bytes
        db.execute("RELEASE flow")
        return fits

    def _write(self, db: sqlite3.Connection, commit: Checkpoint) -> None:
        flow = commit.flow
        at = columns_of(commit.position)
        db.execute("UPDATE flow SET position = ?, missing = ?, links = ? WHERE name = ?", (*at, flow))
        other = "ON CONFLICT DO UPDATE SET blob = excluded.blob WHERE blob <> excluded.blob"  # or no page is touched
        db.execute(f"INSERT INTO queue VALUES (?, ?) {other}", (flow, commit.queue))
        early_results.covered(db, flow)
        spill.forget(db, flow)
        if commit.rows:
            self._put_rows(db, commit)
        if commit.gap or commit.drops:
            self._say(db, flow, commit.gap, commit.drops)
        if commit.links:
            link_outbox.put(db, flow, commit.links)
            self._link_bytes += sum(len(payload) for _, _, payload in commit.links)
        if commit.whole:
            db.execute("DELETE FROM state WHERE flow = ?", (flow,))
        fallback.put_state(db, commit)

    def _put_early(self, db: sqlite3.Connection, results: FlowResults) -> None:
        early_results.put(db, results.flow, len(results.rows))
        self._put_rows(db, results)

    def _put_rows(self, db: sqlite3.Connection, written: ToOutbox) -> None:
        rows = written.columns, written.rows
        stream, first, change, too_large = outbox.put_rows(
            db, self.gateway, written.flow, *rows, self.running_s, self._batch_limits
        )
        if too_large:
            self._drop(written.flow, outbox.TOO_LARGE, too_large)
        self._fresh.setdefault(stream, first)
        self._change = self._change.plus(change)

    def _write_table(self, db: sqlite3.Connection, pages: Mapping[int, bytes], next_index: int) -> None:
        db.executemany("INSERT OR REPLACE INTO page VALUES (?, ?)", [(n, raw) for n, raw in pages.items() if raw])
        db.executemany("DELETE FROM page WHERE page = ?", [(n,) for n, raw in pages.items() if not raw])
        self._messages = self._lost_messages + next_index - 1
        values = [("next_index", next_index), ("running_s", self.running_s)]
        db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values)

    def last_state(self, flow: str) -> int:
        """The number of a flow's last delta, or of its snapshot; 0 if there is none."""
        return int(self._rows("SELECT coalesce(max(number), 0) FROM state WHERE flow = ?", flow)[0][0])

    def compact_state(self, flow: str, snapshot: bytes, last: int) -> None:
        """Replaces a flow's snapshot and deltas up to number `last` by one snapshot of the same state; does nothing if
        they are gone meanwhile, as those of a flow that was replaced."""
        with self._transaction() as db:
            fallback.merge_state(db, flow, snapshot, last)

    def extents(self, flow: str) -> list[StateExtent | None]:
        """The extent of each piece of `state`; None where a flow cannot go back there."""
        return self.read(fallback.extents, flow)

    def put_gap(self, flow: str, text: str, *, no_room: bool = False) -> None:
        """Says in the tables that something of a flow is missing; `no_room`: what had none in what is spilled."""
        with self._transaction() as db:
            self._say(db, flow, text)
            if no_room:
                spill.lost_are_said(db, flow)

    def fall_back(self, flow: str, to: StateExtent, successor: int, gap: str) -> None:
        """Takes a flow back to `to`, as its state after that is damaged. It goes on in the epoch `successor`."""
        with self._transaction() as db:
            self._change = self._change.plus(fallback.go_back(db, flow, to, successor, gap))

    # -- flows

    def put_flow(
        self,
        flow: StoredFlow,
        schema: Schema | None,
        last: Checkpoint | None,
        pages: Mapping[int, bytes],
        next_index: int,
        *,
        state: Sequence[bytes] = (),
        tokens: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Writes a new flow or a new version of one, in one transaction: `last` (all that the old version still had to
        say), then the new epoch, whose parent is the newest in which the flow shipped. `schema` None: ships nothing.
        `state`: with it the new version begins; `tokens`: of its retained messages, see `edgert.store.look_ups`."""
        with self._transaction() as db:
            if last is not None:
                self._write_last(db, replace(last, deltas=()))
            self._forget_state(db, flow.name)
            look_ups.put(db, flow.name, tokens)
            if schema is not None:
                self._change = self._change.plus(outbox.open_epoch(db, self.gateway, flow, schema))
            row = row_of(flow)
            db.execute(f"INSERT OR REPLACE INTO flow ({COLUMNS}) VALUES ({', '.join('?' * len(row))})", row)
            fallback.put_state(db, Checkpoint(flow.name, flow.position, state, b""))
            self._write_table(db, pages, next_index)
        self._write_back_now()
        self._when_full[flow.name] = full_outbox.of_document(flow.document)

    # -- plans

    def change_plan(
        self, stored: StoredFlow, schema: Schema | None, part: Checkpoint | None, link_epochs: Mapping[str, int]
    ) -> None:
        """The flow goes on by its next plan, in one transaction: `part` is all that this gateway has of it then (None:
        nothing; the flow is removed here), and every stream to another gateway begins a new epoch with what is in
        that. `schema`: of what the flow ships here; None: nothing."""
        flow = stored.name
        with self._transaction() as db:
            link_outbox.forget(db, flow)
            for gateway, epoch in link_epochs.items():
                link_outbox.begin_epoch(db, flow, gateway, epoch)
            self._forget_state(db, flow)
            ships = "SELECT 1 FROM opening WHERE flow = ? AND epoch = ?"
            if schema is not None and not db.execute(ships, (flow, stored.epoch)).fetchone():
                self._change = self._change.plus(outbox.open_epoch(db, self.gateway, stored, schema))
            row = row_of(stored)
            db.execute(f"INSERT OR REPLACE INTO flow ({COLUMNS}) VALUES ({', '.join('?' * len(row))})", row)
            if part is not None:
                self._write(db, part)
            plan_change.prepare(db, flow, None)
        self._when_full[flow] = full_outbox.of_document(stored.document)

    def put_plan(self, flow: str, number: int, assignment: Assignment) -> None:
        """The flow goes on by another plan, from its last checkpoint."""
        with self._transaction() as db:
            blob = msgspec.msgpack.encode(dict(assignment))
            db.execute("UPDATE flow SET plan = ?, assignment = ? WHERE name = ?", (number, blob, flow))

    def set_origin(self, flow: str, origin: str) -> None:
        """Where the flow's document came from, "mqtt" or "file"."""
        with self._transaction() as db:
            db.execute("UPDATE flow SET origin = ? WHERE name = ?", (origin, flow))

    def restored(self, gaps: Mapping[str, str] | None = None) -> None:
        """The rescued flows run, or stand in their table; `gaps`: flow → what it lacks."""
        with self._transaction() as db:
            for flow, text in (gaps or {}).items():
                self._say(db, flow, text)
            db.execute("DELETE FROM meta WHERE key IN ('rescued', 'begun_anew')")
            db.execute("INSERT OR REPLACE INTO meta VALUES ('restored', 1)")

    def remove_flow(self, name: str, last: Checkpoint | None, pages: Mapping[int, bytes], next_index: int) -> None:
        """Stops a flow for good; its outbox empties, its epoch is remembered for a later flow of this name."""
        with self._transaction() as db:
            if last is not None:
                self._write_last(db, last)
            self._forget_state(db, name)
            look_ups.put(db, name, {})
            db.execute("UPDATE flow SET removed = 1 WHERE name = ?", (name,))
            self._write_table(db, pages, next_index)

    def _write_last(self, db: sqlite3.Connection, last: Checkpoint) -> None:
        """Writes the last checkpoint of a flow, also beyond the quota: it cannot be made again later."""
        self._write(db, last)
        if last.rows:
            self._make_room(db, last, 0)

    def _forget_state(self, db: sqlite3.Connection, flow: str) -> None:
        db.execute("DELETE FROM state WHERE flow = ?", (flow,))
        db.execute("DELETE FROM queue WHERE flow = ?", (flow,))
        spill.forget(db, flow)
