"""The database's results that wait for the collector, and how they make way when their quota is reached."""

from __future__ import annotations

import math
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.results.results import Drop
from edgert.flow.options.full_outbox import WhenFull
from edgert.store.epochs import rename
from edgert.store.outbox import batch_repair, link_outbox, notices, outbox, quota, sent_bounds
from edgert.store.outbox.outbox import OutboxEntry, OutboxSize
from edgert.store.state.records import FlowResults
from edgert.store.transactions import Transactions

LINKS_FULL: Final = "links to other gateways full"
"""The reason by which rows for other gateways are counted that made way."""
LINK_SLACK: Final = 0.1
"""Part of the quota that is freed at once: what waits is summed up for it, which is not to be done per checkpoint."""
ToOutbox = Checkpoint | FlowResults
"""Both have rows for the outbox."""


class OutboxTables(Transactions):
    """A part of `Database`."""

    leaving_ahead = sent_bounds.LEAVING_AHEAD

    def __init__(
        self, path: Path, gateway: str, quota_bytes: float = math.inf, monotonic: Callable[[], float] = time.monotonic,
        link_quota_bytes: float = math.inf,
    ) -> None:  # fmt: skip
        super().__init__(path)
        self.gateway = gateway
        self.quota_bytes = quota_bytes
        """Limit of the outbox. Beyond it come the last results of a flow that keeps all, and batches without rows:
        openings, gaps, drops."""
        self.link_quota_bytes = link_quota_bytes
        """Limit of all batches that wait for other gateways."""
        self._link_bytes = 0
        """No less than waits: what was sent is taken off when the quota seems reached."""
        self.outbox_size = self._change = OutboxSize(0, 0, 0)
        """Size of the outbox; kept in step with every transaction, so reading it costs nothing."""
        self.shed: Counter[tuple[str, str]] = Counter()
        """Rows that made way since the start, in the outbox or among batches for other gateways, by flow and reason."""
        self._shedding: list[quota.Shed] = []
        self._fresh: dict[quota.StreamKey, int] = {}
        """The first number that the transaction under way put into a stream."""
        self._when_full: dict[str, WhenFull] = {}
        self._monotonic, self._started, self._ran_before = monotonic, monotonic(), 0.0

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._change, self._shedding, self._fresh = OutboxSize(0, 0, 0), [], {}
        link_bytes = self._link_bytes
        try:
            with super()._transaction() as db:
                yield db
        except BaseException:
            self._link_bytes = link_bytes
            raise
        self.outbox_size = self.outbox_size.plus(self._change)
        for shed in self._shedding:
            self.shed[shed.flow, shed.reason] += shed.rows

    def _make_room(self, db: sqlite3.Connection, commit: ToOutbox, size: int) -> bool:
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

    def _links_fit(self, db: sqlite3.Connection, flow: str) -> bool:
        """Sheds batches for other gateways that are over their quota. False for a flow that keeps all (`outbox.full`),
        where only its own could make way."""
        if self._link_bytes <= self.link_quota_bytes:
            return True
        self._link_bytes = link_outbox.total(db)
        over = self._link_bytes - self.link_quota_bytes
        if over <= 0:
            return True
        keep = {name for name, what in self._when_full.items() if what == "stop-acknowledging"}
        need = int(over + LINK_SLACK * self.link_quota_bytes)
        for giving, gateway, batches, rows in link_outbox.make_room(db, need, keep):
            self._drop(giving, LINKS_FULL, rows, batches)
            self._say(db, giving, f"{rows} rows for {gateway} made way: links.quota_bytes was reached")
        self._link_bytes = link_outbox.total(db)
        return self._link_bytes <= self.link_quota_bytes or flow not in keep

    def _drop(self, flow: str, reason: str, rows: int, batches: int = 0) -> None:
        """Counts rows that are dropped, when the transaction stands. It changes nothing of the outbox."""
        self._shedding.append(quota.Shed(flow, reason, batches, rows, OutboxSize(0, 0, 0)))

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

    def _say(self, db: sqlite3.Connection, flow: str, gap: str, drops: Sequence[Drop] = ()) -> None:
        self._change = self._change.plus(notices.put(db, self.gateway, flow, gap, drops))

    # -- names and numbers of results

    def last_sequences(self, flow: str, epoch: int) -> dict[int, int]:
        """The last number given per stream of an epoch: where its successor cuts it."""
        return self.read(outbox.last_of_all, flow, epoch)

    def epochs(self, flow: str) -> list[int]:
        """Every epoch in which the flow shipped or will, oldest first."""
        query = "SELECT DISTINCT epoch FROM stream WHERE flow = ? ORDER BY epoch"
        return [e for (e,) in self._rows(query, flow)]

    def epoch(self, flow: str) -> int | None:
        """The epoch in which the flow numbers its results now; None for a flow that is not known."""
        found = self._rows("SELECT epoch FROM flow WHERE name = ?", flow)
        return found[0][0] if found else None

    def departed(self, flow: str) -> dict[int, dict[int, int]]:
        """Epoch → stream → the greatest number that may have left the board with what this database says."""
        return self.read(sent_bounds.departed, flow)

    def departs(self, flow: str, epoch: int, stream: int) -> None:
        """Call this before a stream is sent: from now on each of its numbers may have left the board."""
        key = flow, epoch, stream
        if self.read(sent_bounds.is_bound, key):
            with self._transaction() as db:
                sent_bounds.unbind(db, key)

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
                self._take_out(batch_repair.mend(db, self.gateway, flow, epoch))
            self._change = self._change.plus(rename(db, flow, renamed, parent, cut, kept, gap))

    def outbox(self, flow: str, epoch: int, stream: int, after: int, limit: int) -> list[OutboxEntry]:
        """Entries of one stream with a sequence above `after`, in order."""
        return [OutboxEntry(*row) for row in self._rows(batch_repair.ENTRIES, flow, epoch, stream, after, limit)]

    def departing(self, flow: str, epoch: int, stream: int, after: int, limit: int) -> list[OutboxEntry]:
        """Returns entries that are to be sent: from now on they may have left, so that none of them is shed any more.
        Gaps stand in the place of those that are damaged."""
        key = flow, epoch, stream
        entries = self.outbox(*key, after, limit)
        if damaged := [entry.sequence for entry in entries if not entry.is_whole]:
            with self._transaction() as db:
                self._take_out([batch_repair.replace(db, self.gateway, key, at) for at in damaged])
            entries = self.outbox(*key, after, limit)
        if entries and not self.read(sent_bounds.may_leave, key, entries[-1].sequence):
            with self._transaction() as db:
                sent_bounds.leave(db, key, entries[-1].sequence, self.leaving_ahead)
        return entries

    def outbox_streams(self) -> list[tuple[tuple[str, int, int], bool]]:
        """(flow, epoch, stream) of everything that waits in the outbox, and whether new results leave in it."""
        return self.read(outbox.waiting)

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
            self._take_out(batch_repair.mend_first(db, self.gateway, (flow, epoch, stream)))
            lost, change = outbox.fill(db, self.gateway, flow, epoch, stream, landed)
            self._change = self._change.plus(change)
            return lost

    def acknowledged(self, acks: Mapping[tuple[str, int, int], int]) -> Counter[str]:
        """Deletes what the collector has; returns how many batches that were, by flow."""
        deleted = Counter[str]()
        with self._transaction() as db:
            for key, sequence in acks.items():
                change = outbox.free(db, *key, 0, sequence)
                self._change = self._change.plus(change)
                deleted[key[0]] -= change.batches
        return deleted
