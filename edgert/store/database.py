"""The one database of a gateway: SQLite in WAL mode, synchronous=FULL, one writer, one transaction per checkpoint.

Every method belongs on the one store thread; each either commits whole or changes nothing and raises `StoreError`.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from edgert.core.checkpoint import Checkpoint
from edgert.core.result_schema import Schema
from edgert.core.results import Drop
from edgert.flow import full_outbox
from edgert.flow.full_outbox import WhenFull
from edgert.flow.plan import Assignment
from edgert.links.messages import NOTHING, Number
from edgert.links.protocol import Stored
from edgert.store import (
    ahead,
    departures,
    fallback,
    link_outbox,
    mending,
    outbox,
    owner,
    plan_change,
    quota,
    spill,
    statements,
)  # fmt: skip
from edgert.store.outbox import OutboxEntry, OutboxSize
from edgert.store.plan_change import Prepared
from edgert.store.records import (
    COLUMNS,
    FlowResults,
    Mark,
    Spill,
    Spilled,
    StoredFlow,
    columns_of,
    row_of,
    stored_flow,
)  # fmt: skip
from edgert.store.renaming import rename
from edgert.store.transactions import Transactions

WRITE_BACK_S = 600.0
"""The log is written back into the database at least so often, and with each flow that is deployed."""
Written = Checkpoint | FlowResults
"""Both have rows for the outbox."""


class Database(Transactions):
    """Opens, checks and if need be upgrades the file. Raises `StoreError` saying what to do."""

    def __init__(
        self, path: Path, gateway: str, quota_bytes: float = math.inf, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(path)
        self.gateway = gateway
        self.batch_limits = outbox.BatchLimits()
        """Of results that are put into the outbox."""
        self.quota_bytes = quota_bytes
        """Of the outbox. Beyond it come the last words of a flow that keeps all, and what has no rows: openings, gaps,
        drops."""
        self.outbox_size = self._change = OutboxSize(0, 0, 0)
        """What waits in the outbox; kept in step with every transaction, so reading it costs nothing."""
        self.shed: Counter[tuple[str, str]] = Counter()
        """Rows that made way in the outbox since the start, by flow and reason."""
        self.repeated: Counter[str] = Counter()
        """Rows that had left ahead of a checkpoint when their flow went back to the one before, by flow, ever."""
        self.again: Mapping[str, int] = {}
        """Those of them that are made again since this start."""
        self._shedding: list[quota.Shed] = []
        self._fresh: dict[quota.Stream, int] = {}
        """The first number that the transaction under way put into a stream."""
        self._monotonic, self._started = monotonic, monotonic()
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        with self._transaction() as db:
            owner.claim(db, self.gateway, self.path)
            departures.started(db)
            self.again = ahead.go_back(db)
        query = "SELECT coalesce(sum(batches), 0), coalesce(sum(rows), 0), coalesce(sum(bytes), 0) FROM stream"
        self.outbox_size = OutboxSize(*self._rows(query)[0])
        self.repeated.update(dict(self._rows("SELECT flow, repeated FROM ahead")))
        self._mark_file.write(self.mark, wait=True)
        self.write_back()
        self._written_back = self._monotonic()
        self._ran_before = float(self.meta("running_s", 0.0))
        self._when_full: dict[str, WhenFull] = {
            stored.name: full_outbox.of_document(stored.document) for stored in self.flows()
        }

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._change, self._shedding, self._fresh = OutboxSize(0, 0, 0), [], {}
        with super()._transaction() as db:
            yield db
        self.outbox_size = self.outbox_size.plus(self._change)
        for shed in self._shedding:
            self.shed[shed.flow, shed.reason] += shed.rows

    # -- what a start needs

    def flows(self) -> list[StoredFlow]:
        return [stored_flow(*row) for row in self._rows(f"SELECT {COLUMNS} FROM flow ORDER BY name")]

    def state(self, flow: str) -> list[bytes]:
        """Snapshot and deltas of a flow, oldest first."""
        return [b for (b,) in self._rows("SELECT blob FROM state WHERE flow = ? ORDER BY number", flow)]

    def queue(self, flow: str) -> bytes:
        """What stood in the flow's queues; empty when there was no checkpoint yet."""
        found = self._rows("SELECT blob FROM queue WHERE flow = ?", flow)
        return found[0][0] if found else b""

    def spilled(self, flow: str) -> Spilled | None:
        """Input that stands behind what its queues hold; None if there is none."""
        return self._read(lambda db: spill.read(db, flow))

    def spill_room(self, flow: str) -> int:
        """How many bytes more of it may be spilled before some of that is given up."""
        return self._read(lambda db: spill.room(db, flow))

    def pages(self) -> list[tuple[int, bytes]]:
        return self._rows("SELECT page, blob FROM page")

    # -- checkpoints

    def commit(
        self, commits: Sequence[Checkpoint], pages: Mapping[int, bytes], next_index: int, spills: Sequence[Spill] = ()
    ) -> set[str]:
        """One transaction: state, queues, positions, outbox rows of these flows, input of others that are blocked, and
        the current id table.

        Returns the flows of which nothing was written: those that keep all, and whose results have no room."""
        with self._transaction() as db:
            refused = {commit.flow for commit in commits if not self._fits(db, commit, self._write)}
            for spilled in spills:
                spill.put(db, spilled)
            self._write_table(db, pages, next_index)
        if self._monotonic() - self._written_back >= WRITE_BACK_S:
            self._write_back_now()
        return refused

    def _write_back_now(self) -> None:
        self.write_back()
        self._written_back = self._monotonic()

    def put_ahead(self, results: Sequence[FlowResults]) -> set[str]:
        """Numbers what these flows have made and puts it into the outbox, ahead of their checkpoints: nothing else
        changes. Returns the flows of which nothing was written, as `commit` does."""
        with self._transaction() as db:
            return {result.flow for result in results if not self._fits(db, result, self._put_ahead)}

    def go_back(self, flow: str) -> int:
        """The flow goes on from its last checkpoint: so many rows that had left ahead of the next are made again."""
        if not self._rows("SELECT 1 FROM ahead WHERE flow = ? AND rows > 0", flow):
            return 0
        with self._transaction() as db:
            found = ahead.go_back(db, flow)
        self.repeated.update(found)
        return found[flow]

    def _fits(self, db: sqlite3.Connection, commit: Written, write: Callable[[sqlite3.Connection, Any], None]) -> bool:
        """Whether there was room for the rows of `commit`; if not, nothing of it is written."""
        before = self._change, len(self._shedding)
        db.execute("SAVEPOINT flow")
        write(db, commit)
        fits = not commit.rows or self._make_room(db, commit, self._change.bytes - before[0].bytes)
        if not fits:
            db.execute("ROLLBACK TO flow")
            self._change = before[0]
            del self._shedding[before[1] :]
        db.execute("RELEASE flow")
        return fits

    def _make_room(self, db: sqlite3.Connection, commit: Written, size: int) -> bool:
        """Sheds what is over the quota. Whether `commit`, of `size` bytes, may stay: of a flow that keeps all, only
        what fits; but what would not even fit into an empty outbox stays if nothing else of its flow waits."""
        over = self.outbox_size.bytes + self._change.bytes - self.quota_bytes
        if over <= 0:
            return True
        flow = commit.flow
        self._take_out(quota.make_room(db, self.gateway, flow, int(over), self._when_full, self._fresh))
        within = self.outbox_size.bytes + self._change.bytes <= self.quota_bytes
        if within or self._when_full.get(flow) != "stop-acknowledging":
            return True
        return size > self.quota_bytes and quota.rows_of(db, flow) == len(commit.rows)

    def _take_out(self, shed: Sequence[quota.Shed]) -> None:
        """Counts what made way, when the transaction stands."""
        self._shedding += shed
        for part in shed:
            self._change = self._change.plus(part.change)

    @property
    def running_s(self) -> float:
        """Time that the gateway has run with this database, seconds: a clock that no clock's step moves."""
        return self._ran_before + self._monotonic() - self._started

    def shed_old(self, greatest_age_s: float) -> bool:
        """Sheds results that have waited for longer than that; not all at once, if they are many: whether more wait."""
        before = self.running_s - greatest_age_s
        if before <= 0:
            return False
        with self._transaction() as db:
            shed, more = quota.shed_old(db, self.gateway, before)
            self._take_out(shed)
        return more

    def _write(self, db: sqlite3.Connection, commit: Checkpoint) -> None:
        flow = commit.flow
        at = columns_of(commit.position)
        db.execute("UPDATE flow SET position = ?, missing = ?, links = ? WHERE name = ?", (*at, flow))
        other = "ON CONFLICT DO UPDATE SET blob = excluded.blob WHERE blob <> excluded.blob"  # or no page is touched
        db.execute(f"INSERT INTO queue VALUES (?, ?) {other}", (flow, commit.queue))
        ahead.covered(db, flow)
        spill.forget(db, flow)
        if commit.rows:
            self._put_rows(db, commit)
        if commit.gap or commit.drops:
            self._say(db, flow, commit.gap, commit.drops)
        if commit.links:
            link_outbox.put(db, flow, commit.links)
        if commit.whole:
            db.execute("DELETE FROM state WHERE flow = ?", (flow,))
        fallback.put_state(db, commit)

    def _say(self, db: sqlite3.Connection, flow: str, gap: str, drops: Sequence[Drop] = ()) -> None:
        self._change = self._change.plus(statements.put(db, self.gateway, flow, gap, drops))

    def _put_ahead(self, db: sqlite3.Connection, results: FlowResults) -> None:
        ahead.put(db, results.flow, len(results.rows))
        self._put_rows(db, results)

    def _put_rows(self, db: sqlite3.Connection, written: Written) -> None:
        rows = written.columns, written.rows
        stream, first, change = outbox.put_rows(
            db, self.gateway, written.flow, *rows, self.running_s, self.batch_limits
        )
        self._fresh.setdefault(stream, first)
        self._change = self._change.plus(change)

    def _write_table(self, db: sqlite3.Connection, pages: Mapping[int, bytes], next_index: int) -> None:
        db.executemany("INSERT OR REPLACE INTO page VALUES (?, ?)", [(n, raw) for n, raw in pages.items() if raw])
        db.executemany("DELETE FROM page WHERE page = ?", [(n,) for n, raw in pages.items() if not raw])
        self._messages = next_index - 1
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

    def marks(self, flow: str) -> list[Mark | None]:
        """What the checkpoints cover whose pieces `state` has, one by one; None where a flow cannot go back there."""
        return self._read(lambda db: fallback.marks(db, flow))

    def put_gap(self, flow: str, text: str, *, no_room: bool = False) -> None:
        """Says in the tables that something of a flow is missing; `no_room`: what had none in what is spilled."""
        with self._transaction() as db:
            self._say(db, flow, text)
            if no_room:
                spill.lost_are_said(db, flow)

    def fall_back(self, flow: str, to: Mark, successor: int, gap: str) -> None:
        """What is stored of a flow after `to` is damaged: it goes on from there, in the epoch `successor`."""
        with self._transaction() as db:
            self._change = self._change.plus(fallback.go_back(db, flow, to, successor, gap))

    # -- flows

    def last_sequences(self, flow: str, epoch: int) -> dict[int, int]:
        """The last number given per stream of an epoch: where its successor cuts it."""
        return self._read(lambda db: outbox.last_of_all(db, flow, epoch))

    def epochs(self, flow: str) -> list[int]:
        """Every epoch in which the flow shipped or will, oldest first."""
        query = "SELECT DISTINCT epoch FROM stream WHERE flow = ? ORDER BY epoch"
        return [e for (e,) in self._rows(query, flow)]

    def put_flow(
        self,
        flow: StoredFlow,
        schema: Schema | None,
        last: Checkpoint | None,
        pages: Mapping[int, bytes],
        next_index: int,
    ) -> None:
        """Writes a new flow or a new version of one, in one transaction: `last` (all that the old version still had to
        say), then the new epoch, whose parent is the newest in which the flow shipped. `schema` None: ships nothing."""
        with self._transaction() as db:
            if last is not None:
                self._write_last(db, last)
            self._forget_state(db, flow.name)
            if schema is not None:
                self._change = self._change.plus(outbox.open_epoch(db, self.gateway, flow, schema))
            row = row_of(flow)
            db.execute(f"INSERT OR REPLACE INTO flow ({COLUMNS}) VALUES ({', '.join('?' * len(row))})", row)
            self._write_table(db, pages, next_index)
        self._write_back_now()
        self._when_full[flow.name] = full_outbox.of_document(flow.document)

    # -- links

    def link_streams(self) -> dict[tuple[str, str], Number]:
        """(flow, gateway) → the greatest number given, of every stream that ever had a batch."""
        return self._read(link_outbox.streams)

    def link_last(self, flow: str, gateway: str) -> Number:
        """The greatest number ever given in a stream to another gateway."""
        return self._read(lambda db: link_outbox.last(db, flow, gateway))

    def link_position(self, flow: str, origin: str) -> Number:
        """The last number from another gateway that the flow's last commit covers."""
        found = self._rows("SELECT links FROM flow WHERE name = ?", flow)
        links = msgspec.msgpack.decode(found[0][0], type=dict[str, tuple[int, int]]) if found else {}
        return Number(*links.get(origin, NOTHING))

    def link_pending(self, flow: str, gateway: str, after: Number, limit_bytes: int) -> list[Stored]:
        """See `link_outbox.pending`."""
        return self._read(lambda db: link_outbox.pending(db, flow, gateway, after, limit_bytes))

    def link_delete_to(self, flow: str, gateway: str, number: Number) -> None:
        """The other gateway has committed everything up to `number`."""
        with self._transaction() as db:
            link_outbox.delete_to(db, flow, gateway, number)

    def link_begin_epoch(self, flow: str, gateway: str, epoch: int) -> None:
        """See `link_outbox.begin_epoch`."""
        with self._transaction() as db:
            link_outbox.begin_epoch(db, flow, gateway, epoch)

    def link_sizes(self) -> list[tuple[str, str, int, int, int]]:
        """(flow, gateway, batches, rows, bytes) of what waits for other gateways."""
        return self._read(link_outbox.sizes)

    # -- plans

    def fences(self) -> dict[str, int]:
        """See `plan_change.fences`."""
        return self._read(plan_change.fences)

    def put_fence(self, flow: str, fence: int) -> None:
        """See `plan_change.put_fence`."""
        with self._transaction() as db:
            plan_change.put_fence(db, flow, fence)

    def prepared(self) -> dict[str, Prepared]:
        """The parts of next plans that wait for the word to be run, by flow."""
        return {flow: Prepared.unpack(blob) for flow, blob in self._read(plan_change.prepared).items()}

    def put_prepared(self, flow: str, prepared: Prepared | None) -> None:
        """See `plan_change.prepare`."""
        with self._transaction() as db:
            plan_change.prepare(db, flow, None if prepared is None else prepared.pack())

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
        """Stops a flow for good; its outbox drains, its epoch is remembered for a later flow of this name."""
        with self._transaction() as db:
            if last is not None:
                self._write_last(db, last)
            self._forget_state(db, name)
            db.execute("UPDATE flow SET removed = 1 WHERE name = ?", (name,))
            self._write_table(db, pages, next_index)

    def _write_last(self, db: sqlite3.Connection, last: Checkpoint) -> None:
        """What a flow says at its end cannot be said again later, so it is written in any case."""
        self._write(db, last)
        if last.rows:
            self._make_room(db, last, 0)

    def _forget_state(self, db: sqlite3.Connection, flow: str) -> None:
        db.execute("DELETE FROM state WHERE flow = ?", (flow,))
        db.execute("DELETE FROM queue WHERE flow = ?", (flow,))
        spill.forget(db, flow)

    def epoch(self, flow: str) -> int | None:
        """The epoch in which the flow numbers its results now; None for a flow that is not known."""
        found = self._rows("SELECT epoch FROM flow WHERE name = ?", flow)
        return found[0][0] if found else None

    def departed(self, flow: str) -> dict[int, dict[int, int]]:
        """Epoch → stream → the greatest number that may have left the board with what this database says."""
        return self._read(lambda db: departures.departed(db, flow))

    def departs(self, flow: str, epoch: int, stream: int) -> None:
        """To be called before a stream is sent: from now on each of its numbers may have left the board."""
        key = flow, epoch, stream
        if self._read(lambda db: departures.is_bound(db, key)):
            with self._transaction() as db:
                departures.unbind(db, key)

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
            for epoch in renamed:
                self._take_out(mending.mend(db, self.gateway, flow, epoch))
            self._change = self._change.plus(rename(db, flow, renamed, parent, cut, kept, gap))

    # -- outbox

    def outbox(self, flow: str, epoch: int, stream: int, after: int, limit: int) -> list[OutboxEntry]:
        """Entries of one stream with a sequence above `after`, in order."""
        return [OutboxEntry(*row) for row in self._rows(mending.ENTRIES, flow, epoch, stream, after, limit)]

    def departing(self, flow: str, epoch: int, stream: int, after: int, limit: int) -> list[OutboxEntry]:
        """The same entries, to be sent: from now on they may have left, so that none of them is shed any more. Gaps
        stand in the place of those that are damaged."""
        key = flow, epoch, stream
        entries = self.outbox(*key, after, limit)
        if damaged := [entry.sequence for entry in entries if not entry.is_whole]:
            with self._transaction() as db:
                self._take_out([mending.replace(db, self.gateway, key, at) for at in damaged])
            entries = self.outbox(*key, after, limit)
        if entries and not self._read(lambda db: departures.may_leave(db, key, entries[-1].sequence)):
            with self._transaction() as db:
                departures.leave(db, key, entries[-1].sequence)
        return entries

    def outbox_streams(self) -> list[tuple[tuple[str, int, int], bool]]:
        """(flow, epoch, stream) of everything that waits in the outbox, and whether new results leave in it."""
        return self._read(outbox.waiting)

    def open_stream(self, flow: str, backlog: int, successor: int) -> int | None:
        """Where more than `backlog` batches of a flow wait, what its next checkpoints ship leaves beside them: in
        another stream, or where its epoch has had enough of those, in the epoch `successor`, which goes on from it.
        Returns the epoch in which the flow ships; None for a flow that is not known."""
        with self._transaction() as db:
            epoch = self.epoch(flow)
            if epoch is not None and outbox.is_behind(db, flow, epoch, backlog):
                if outbox.has_room(db, flow, epoch):
                    outbox.open_stream(db, flow, epoch)
                else:
                    all_of_it = self.last_sequences(flow, epoch)
                    change = outbox.reopen(db, flow, epoch, successor, epoch, all_of_it, all_of_it)
                    self._change = self._change.plus(change)
                    db.execute("UPDATE flow SET epoch = ? WHERE name = ?", (successor, flow))
                    epoch = successor
        return epoch

    def fill(self, flow: str, epoch: int, stream: int, landed: int) -> int:
        """See `outbox.fill`."""
        with self._transaction() as db:
            self._take_out(mending.mend_first(db, self.gateway, (flow, epoch, stream)))
            lost, change = outbox.fill(db, self.gateway, flow, epoch, stream, landed)
            self._change = self._change.plus(change)
            return lost

    def acknowledged(self, acks: Mapping[tuple[str, int, int], int]) -> int:
        """Deletes what the collector has; returns how many batches that were."""
        with self._transaction() as db:
            for key, sequence in acks.items():
                self._change = self._change.plus(outbox.free(db, *key, 0, sequence))
            return -self._change.batches
