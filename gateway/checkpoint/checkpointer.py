"""The times of checkpoints, and the effects of a commit: acknowledgements, and results that may leave."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.compression import compressed
from edgert.core.errors import DamagedError, StoreError
from edgert.runtime.flow_run import FlowRun
from edgert.store.state.records import Spill
from gateway.base.tasks import to_its_end
from gateway.checkpoint.compaction import Compaction
from gateway.checkpoint.input_spill import InputSpill
from gateway.checkpoint.outbox_room import OutboxRoom
from gateway.hosts.host import Host
from gateway.ingest.ingest import Ingest
from gateway.ledger.drop_ledger import NO_ROOM
from gateway.registry.registry import FlowRegistry

log = logging.getLogger(__name__)

MERGED_HERE_BYTES = 524_288
"""Bytes of packed state (some 5,000 keys) up to which it is merged in this process; more of it is merged in a process
of its own."""
AGE_LOOK_S = 10.0
"""Seconds between two looks for results that have waited too long; with more of them left, each turn looks."""
SOON = 0.1
"""A checkpoint is made together with others up to this part of its interval early."""
IDLE_S = 0.05
"""Seconds to wait after a requested checkpoint that had nothing to write: the code that asked waits for something
else."""


@dataclass(slots=True)
class CheckpointStatus:
    """Figures since the start."""

    commits: int = 0
    failures: int = 0
    missed: int = 0
    """Checkpoints put off because a flow reached no batch boundary in time."""
    last_ms: float = 0.0
    """The last commit, from pause to the end of the transaction."""
    pause_ms: float = 0.0
    """For how much of that a flow stood still, the longest of them."""
    error: str = ""


class Checkpointer:
    """One loop for all flows; flows that are due together share one transaction, and so one fsync."""

    def __init__(
        self, flow_registry: FlowRegistry, host: Host, ingest: Ingest, on_committed: Callable[[], None],
        greatest_age_s: float = 0.0, on_written: Callable[[Sequence[FlowRun]], None] = lambda runs: None,
    ) -> None:  # fmt: skip
        """`greatest_age_s`: how long results may wait in the outbox; 0: for ever. `on_written` is called with the flows
        whose checkpoints are in the database."""
        self.status = CheckpointStatus()
        database, store = flow_registry.database, flow_registry.store
        self._flow_registry, self.runs, self.drops = flow_registry, flow_registry.runs, flow_registry.drops
        self._database, self._store, self._host, self._ingest, self._clock = database, store, host, ingest, ingest.clock
        self.feeding = ingest.lock
        """The lock of feeding: while it is held, no flow is fed."""
        self.on_committed = on_committed
        self.on_written = on_written
        self.outbox_room = OutboxRoom(database)
        self._greatest_age_s = greatest_age_s
        self._next_age_look = 0.0 if greatest_age_s else math.inf
        self._due: dict[FlowRun, float] = {}
        self._asked = asyncio.Event()
        self._idle = False
        self._fault = ""
        """Why the last checkpoint left a flow out."""
        self.hurries = False
        """The checkpoint under way is to take no more flows, and to write what it has: the gateway ends."""
        self.merged_here_bytes = MERGED_HERE_BYTES
        self.compaction = Compaction(database, store, flow_registry.is_current, ingest.clock)
        self.input_spill = InputSpill(host, ingest.clock, database.spill_room)

    def section(self) -> dict[str, Any]:
        """The checkpoints' section of the status page."""
        status = self.status
        return {
            "commits": status.commits,
            "failures": status.failures,
            "missed": status.missed,
            "last_ms": round(status.last_ms, 2),
            "pause_ms": round(status.pause_ms, 2),
            "error": status.error,
        }

    def dropped(self) -> dict[tuple[str, str, str], int]:
        """Rows by (flow, "outbox" or nothing, reason): input that had no room, results that made way in the outbox."""
        lost = {(flow, "", NO_ROOM): messages for flow, messages in list(self.drops.lost_input.items())}
        shed = {(flow, "outbox", reason): rows for (flow, reason), rows in list(self._database.shed.items())}
        return lost | shed

    def state(self, run: FlowRun) -> str:
        """The state of a started flow: running, stuck (no batch boundary for `PATIENCE_S`) or blocked (the flow
        waits for room in the outbox)."""
        if run.flow.name in self.outbox_room.blocked:
            return "blocked"
        return "stuck" if self.input_spill.is_stuck(run) else "running"

    def is_without(self, run: FlowRun) -> bool:
        """True if the last checkpoint of the flow that was tried is not in the database."""
        return run.flow.name in self.outbox_room.blocked or self.input_spill.failed_last(run)

    def ask(self) -> None:
        """Asks for an early checkpoint: a bound on uncommitted input is near."""
        self._asked.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            now = self._clock.monotonic()
            # a new run gets its own interval; the due time of an earlier run of the same name is forgotten
            self._due = {run: self._due.get(run, now + run.flow.checkpoint_interval_s) for run in self.runs.values()}
            soonest = min(self._next_age_look, *self._due.values(), now + 1.0)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, soonest - now)):  # wait_for may swallow a cancel (3.11)
                    await self._asked.wait()
            # the event may have been set at the timeout; while reading is paused nothing sets it
            asked = (self._asked.is_set() or self._ingest.read_limits.paused_s > 0.0) and not self.in_vain()
            self._asked.clear()
            now = self._clock.monotonic()
            if now >= self._next_age_look and not await self.shed_old():
                self._next_age_look = now + AGE_LOOK_S
            due = list(self.runs.values()) if asked else self._together(now)
            # where no flow runs, PUBCOMPs wait for nothing but that the database knows the id table
            if (due or (not self.runs and self._ingest.inbox.completing)) and not await self.checkpoint(due):
                await asyncio.sleep(self._flow_registry.retry_s)
            elif asked and self._idle:
                await asyncio.sleep(IDLE_S)

    def _together(self, now: float) -> list[FlowRun]:
        """Flows whose checkpoint is due, and with them those whose is due soon: 300 flows that began one after the
        other would wake the gateway 60 times a second for ever."""
        due = {run: self._due.get(run, math.inf) for run in self.runs.values()}
        if min(due.values(), default=math.inf) > now:
            return []
        return [run for run, at in due.items() if at - SOON * run.flow.checkpoint_interval_s <= now]

    def in_vain(self) -> bool:
        """True if an early checkpoint would free no input: the oldest input belongs to a flow that waits for room."""
        blocked = [run.progress for name, run in self.runs.items() if name in self.outbox_room.blocked]
        return bool(blocked) and self._ingest.inbox.held_up_by(blocked)

    async def checkpoint(self, runs: Iterable[FlowRun]) -> bool:
        """Captures and commits `runs`. False when the commit failed; all captures stay pending then. It is brought to
        its end though the caller is cancelled: a flow never has two captures at a time, and input that is in the
        database is acknowledged."""
        async with self._flow_registry.busy:
            return await to_its_end(self._checkpoint(runs))

    async def _checkpoint(self, runs: Iterable[FlowRun]) -> bool:
        chosen = [run for run in runs if self._flow_registry.is_current(run)]
        started, now = time.perf_counter(), self._clock.monotonic()
        for run in chosen:
            self._due[run] = now + run.flow.checkpoint_interval_s
        try:
            written: list[tuple[FlowRun, Checkpoint]]
            spills: list[tuple[FlowRun, Spill]]
            written, spills = await self._store(lambda: self._commit(chosen))
        except Exception as error:
            if not isinstance(error, StoreError):
                log.exception("a checkpoint failed in a way that was not foreseen")
            self.failed(error)
            for run in chosen:
                run.progress.hold(True)
            return False
        for run in chosen:
            run.progress.hold(run.flow.name in self.outbox_room.blocked)
        for run, form in written:
            run.progress.commit(form.position)
        for run, spill in spills:
            run.progress.spilled = spill.position
        if written:
            self.status.commits += 1
            self.status.last_ms = (time.perf_counter() - started) * 1e3
            self.status.pause_ms = max(run.pause_s for run, _ in written) * 1e3
            self.status.error = self._fault
        self._ingest.committed(freed=bool(written or spills))
        if written:
            self.on_committed()
            self.on_written([run for run, _ in written])
            for run, _ in written:
                if run.wants_compaction() and run.size.total > self.merged_here_bytes:
                    self.compaction.begin(run)
        self._idle = not written and not spills
        return True

    async def shed_old(self) -> bool:
        """Drops results that have waited too long, a bounded number at a time. True if there are more."""
        try:
            return bool(await self._store(self._shed_old))
        except StoreError as error:
            log.error("results that have waited too long could not be dropped: %s", error)
            return False

    def _shed_old(self) -> bool:
        more = self._database.shed_old(self._greatest_age_s)
        self.outbox_room.shed()
        return more

    def failed(self, error: Exception) -> None:
        """Reports that something of a flow could not be written: once, until another error or a commit."""
        self.status.failures += 1
        if str(error) != self.status.error:
            log.error("a checkpoint failed and is tried again; nothing is acknowledged meanwhile: %s", error)
        self.status.error = str(error)

    def _commit(self, runs: list[FlowRun]) -> tuple[list[tuple[FlowRun, Checkpoint]], list[tuple[FlowRun, Spill]]]:
        """On the store thread."""
        forms: list[tuple[FlowRun, Checkpoint]] = []
        spills: list[tuple[FlowRun, Spill]] = []
        self._fault = ""
        self.input_spill.begin(self.runs.values())
        for run in runs:
            if self.hurries or run.ended:  # its last results and its end are one transaction, which was not reached
                continue
            if form := self._captured(run):
                forms.append((run, form))
            elif spill := self.input_spill.spill(run, self.feeding):
                spills.append((run, spill))
        ingest = self._ingest
        if not (forms or spills or ingest.inbox.completing or ingest.drops.due(ingest.clock.monotonic())):
            return [], []
        commits, spilled = [form for _, form in forms], [spill for _, spill in spills]
        with self.id_table() as (pages, next_index):
            refused = self._database.commit(commits, pages, next_index, spilled)
        self.outbox_room.committed([run.flow.name for run, _ in forms], refused)
        forms = [(run, form) for run, form in forms if run.flow.name not in refused]
        for run, form in forms:
            run.committed(form)
            self.drops.said(run, form.drops)
            self._host.checkpoints.committed(run)
        for run, spill in spills:
            self.input_spill.spilled(run, spill)
        for run, _ in forms:
            if run.wants_compaction() and run.size.total <= self.merged_here_bytes:
                self.compact(run)
        return forms, spills

    def _captured(self, run: FlowRun) -> Checkpoint | None:
        """Returns the checkpoint to write of one flow. A checkpoint whose commit failed is tried again unchanged,
        before anything more is captured. The fault of one flow's operator affects that flow alone."""
        try:
            if self._is_to_be_captured(run):
                if not self.input_spill.may_try(run):
                    return None
                if self._host.checkpoints.hangs(run) or not self._host.checkpoints.capture(run, self.feeding):
                    self.status.missed += 1
                    self.input_spill.failed(run)
                    return None
            form = run.form(self.drops.due(run))
            self.input_spill.succeeded(run)
            if form is None:  # nothing has changed: that is as good as written
                self._host.checkpoints.committed(run)
            return form
        except Exception as error:
            self.status.failures += 1
            self._fault = self.status.error = f"flow {run.flow.name}: {error!r}"
            log.exception("the state of flow %s could not be captured; it is not acknowledged", run.flow.name)
            self.input_spill.failed(run, f"its state cannot be taken ({error!r})")
            return None

    async def write_stopped(self, run: FlowRun) -> None:
        """Commits the results and drops of a flow that was stopped for another plan. To be called with `busy` held.
        Raises `StoreError`; all of it stays pending then."""
        run.ended = True  # no more drops come from it
        try:
            form = await self._store(lambda: self._write_stopped(run))
        finally:
            run.ended = False
        if form is not None:
            run.progress.commit(form.position)
            self.status.commits += 1
            self._ingest.committed()
            self.on_committed()
            self.on_written([run])

    def _write_stopped(self, run: FlowRun) -> Checkpoint | None:
        """On the store thread."""
        form = run.form(self.drops.due(run))
        if form is not None:
            with self.id_table() as table:
                refused = self._database.commit([form], *table)
            if refused:
                raise StoreError("the outbox is full, and this flow keeps all of its results")
            run.committed(form)
            self.drops.said(run, form.drops)
        self._host.checkpoints.committed(run)
        return form

    @staticmethod
    def _is_to_be_captured(run: FlowRun) -> bool:
        """True if the flow is to be captured now. False while a pending capture is to be written first, unless input
        was spilled since, which that capture does not cover."""
        spilled = run.progress.spilled
        return not run.pending or (spilled is not None and run.pending[-1].position.index < spilled.index)

    def compact(self, run: FlowRun) -> None:
        """Merges stored changes. A failure costs room only; it must not be taken for a failure of the commit before
        it."""
        name = run.flow.name
        try:
            snapshot, merged = run.compact(self._database.state(name)), run.size.total
            self._database.compact_state(name, snapshot, self._database.last_state(name))
            run.size.compacted(merged, len(snapshot))
        except DamagedError as error:
            run.damaged(error)
        except Exception as error:  # noqa: BLE001 - the commit before it stands, whatever this was
            log.error("the state of flow %s could not be compacted: %r", name, error)

    @contextmanager
    def id_table(self) -> Iterator[tuple[dict[int, bytes], int]]:
        """The pages of the id table that have changed, and the next index, for the body to write in one transaction;
        where it raises the pages stay to be written. On the store thread."""
        inbox = self._ingest.inbox
        if dropped := self._ingest.drops.to_save():
            self._database.note("broker_drops", dropped)
        with self._ingest.lock:
            pages, next_index, releases = inbox.table.take_dirty(), inbox.next_index, inbox.releases
        try:
            yield {page: compressed(raw) for page, raw in pages.items()}, next_index
        except BaseException:
            with self._ingest.lock:
                inbox.table.give_back(pages)
            raise
        inbox.releases_written = releases
