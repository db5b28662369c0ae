"""The flows of this gateway: started, replaced by a new version, removed; all of it survives a crash at any point."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from edgert.core.checkpoint import Checkpoint
from edgert.core.errors import DamagedError, DocumentError, EdgertError, MisfitError, StoreError, show
from edgert.core.ids import make_epoch
from edgert.core.position import Position
from edgert.flow.document import from_plain
from edgert.flow.graph import Flow
from edgert.flow.physical import Fusion
from edgert.flow.plan import Assignment, Location, Plan, uncopied
from edgert.flow.spec import Registry
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.progress import Progress
from edgert.store.database import Database
from edgert.store.records import StoredFlow
from gateway.back_in_time import successor
from gateway.checkpointer import AGAIN, Checkpointer, OnStore
from gateway.drop_counts import DropCounts
from gateway.fallback import last_checkpoint, resumption
from gateway.flow_writes import STORE_TRIES, FlowWrites
from gateway.gaps import put_instead_of_failed, say_gap, say_no_room, write_gap
from gateway.holding import held, stopped
from gateway.hosts import Host
from gateway.ingest import Ingest
from gateway.models import Models
from gateway.subscriptions import Source, sources_of
from gateway.tasks import Tasks

log = logging.getLogger(__name__)

GIVEN_UP = "the flow could not go on; what came in since, until it does, is missing"
LATE = "the database was damaged and begun anew; what waited in it, and came in until the flow could start, is missing"
SUBSCRIBED_S = 5.0
"""How long the answer to a new flow waits for the broker's to its subscriptions."""


class Flows:
    """Owns the runs. Changes are made one after the other."""

    def __init__(
        self,
        registry: Registry,
        database: Database,
        store: OnStore,
        host: Host,
        ingest: Ingest,
        checkpointer: Checkpointer,
        fusion: Fusion = "full",
        fission: bool = True,
    ) -> None:
        self.registry = registry
        self.checkpointer = checkpointer
        self._database, self._store, self._host, self._ingest = database, store, host, ingest
        self._fusion, self._fission = fusion, fission
        self._stored: dict[str, StoredFlow] = {}
        self._sources: dict[str, list[Source]] = {}
        self._changing = asyncio.Lock()
        self.models = Models(self.runs, host.offer_model)
        self._entering: dict[FlowRun, str] = {}
        """New versions that take input and are not in `runs` yet, and why they failed, if they did."""
        self._leaving: FlowRun | None = None
        """A run that is brought to its end here: it needs its host no more."""
        self.failed: dict[str, str] = {}
        """Stored flows that could not be started, and why; a new document for them takes them out."""
        self._stopped: dict[str, Flow] = {}
        """Those of them that ran, and so go on with the next start, with their windows."""
        self.gaps: dict[str, str] = {}
        """Flows that went back to an older checkpoint at this start, or lost input, and what is missing."""
        self.dropped = DropCounts(host)
        self._writes = FlowWrites(database, store, host, ingest.publishing.send, checkpointer)
        self.on_change: Callable[[Mapping[str, FlowRun]], Coroutine[Any, Any, None]] = _nothing
        """Told of the flows that run when these have changed."""
        self.stands: Callable[[str], bool] = lambda name: False
        """Whether a stored flow must not run when it is loaded."""
        self.check_free: Callable[[str], None] = lambda name: None
        """Raises `EdgertError` for a flow that nothing may change now."""
        self._telling = Tasks(lambda error: log.error("a flow's gap could not be told", exc_info=error))

    @property
    def runs(self) -> dict[str, FlowRun]:
        return self.checkpointer.runs

    def version(self, name: str) -> int | None:
        """Version of the running flow `name`."""
        run = self.runs.get(name)
        return run.version if run else None

    def origin(self, name: str) -> str | None:
        """Where the flow's document came from, "mqtt" or "file"; None when there is none, or it was removed."""
        stored = self._stored.get(name)
        return stored.origin if stored and not stored.removed else None

    # -- start

    def load(self) -> None:
        """Resumes what the database knows. Before anything is read. Raises `EdgertError` where it cannot be read or
        written: what came then would be acknowledged without a flow that is only held up."""
        inbox = self._ingest.inbox
        for stored in self._database.flows():
            self._stored[stored.name] = stored
            if stored.removed:
                self._ingest.forget(stored.name)
                continue
            try:
                flow = from_plain(stored.document, self.registry, what=f"stored flow {stored.name}")
                at = resumption(self._database, stored)
                stored = self._stored[stored.name] = at.stored
                run = self._run(flow, stored, stored.position)
                if run.schema is not None and not self._database.last_sequences(stored.name, stored.epoch):
                    # rescued: only now it is known what it ships
                    self._writes.put(stored, run, None, {}, inbox.next_index)
                    say_gap(self._database, stored.name, LATE)
                    stored = self._stored[stored.name] = replace(stored, epoch=run.epoch)
                self.models.resumed(flow, at.blobs)
                self._host.begin(run, at.blobs, at.queue, stands=self.stands(stored.name))
            except Exception as error:
                if not _is_alone(error):
                    raise
                self._not_started(stored.name, error)
                say_gap(self._database, stored.name, f"{GIVEN_UP}: {self.failed[stored.name]}")
                continue
            inbox.flows.append(run.progress)
            self._sources[stored.name] = sources_of(run)
            self._ingest.swap((), self._sources[stored.name])
            self.runs[stored.name] = run
            log.info("flow %s version %d goes on", stored.name, stored.version)
            if at.gap:
                self.gaps[stored.name] = at.gap
            if at.lost:
                self.checkpointer.drops.lost_input[stored.name] += say_no_room(self._database, stored.name)
            if again := self._database.again.get(stored.name):
                log.warning(AGAIN, stored.name, again)
        inbox.resume(doubtful_to=int(self._database.meta("doubtful_to", 0)))

    async def restore(self, rescued: Sequence[StoredFlow], why: str) -> None:
        """Starts the flows of a database that had to be set aside, with nothing but their documents; their epochs go
        on from those that they had. One that cannot start is known all the same, and starts when it can. Raises
        `StoreError` where that cannot be written: then the next start does it again."""
        log.error("%s", why)
        now = Position(self._ingest.inbox.next_index - 1)
        for stored in rescued:
            if stored.name in self.runs or stored.name in self.failed:
                continue  # a crash came between
            self._stored[stored.name] = replace(stored, removed=True)
            if stored.removed:
                continue
            try:
                await self.deploy(from_plain(stored.document, self.registry, what=f"flow {stored.name}"), stored.origin)
                self.gaps[stored.name] = why
            except Exception as error:  # noqa: BLE001 - as in `load`
                self._not_started(stored.name, error)
                kept = self._stored[stored.name] = replace(stored, epoch=successor(stored.epoch), position=now)
                await self._writes.write(partial(self._database.put_flow, kept, None, None))
        gaps = {stored.name: why for stored in rescued if stored.name in self.runs}
        await self._store(lambda: self._database.restored(gaps))

    def _not_started(self, name: str, error: Exception) -> None:
        ours = isinstance(error, EdgertError)
        self.failed[name] = str(error) if ours else repr(error)
        again = "deploy it anew" if ours else "the next start tries again, or deploy it anew"
        log.error("flow %s cannot go on and is not started; %s: %s", name, again, error, exc_info=not ours)

    def fail(self, run: FlowRun, why: str) -> None:
        """A flow that began could not go on after all: nothing is fed to it, and nobody waits for it."""
        name = run.flow.name
        if run in self._entering:
            self._entering[run] = why  # `deploy` sees to it, when the old version has ended
            return
        if self.runs.get(name) is not run or run is self._leaving:
            return
        log.error(
            "flow %s cannot go on and is stopped; the gateway's next start brings it back with its windows, another "
            "document replaces it: %s", name, why,
        )  # fmt: skip
        self.failed[name], self._stopped[name] = why, run.flow
        del self.runs[name]
        self._ingest.swap((), (), lambda: _leave(self._sources[name]))
        self.dropped.ends(run)
        self._host.remove(run)
        self._telling.begin(self._give_up(run, f"{GIVEN_UP}: {why}"))

    async def settled(self, timeout_s: float) -> None:
        """Waits for the change that is under way, no longer than that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._changing:
                pass

    async def stop(self) -> None:
        """Gives up what is still to be said: a start brings the flow back, with what is not acknowledged."""
        await self._telling.stop()

    async def _give_up(self, run: FlowRun, text: str) -> None:
        """Only what is said to be missing may be acknowledged: until then a start brings the flow back, with it."""
        await write_gap(self._store, self._database, run.flow.name, text)
        self._let_go(run, self._sources.pop(run.flow.name))
        await self.on_change(self.runs)

    async def _tell_gap(self, name: str, text: str) -> None:
        await write_gap(self._store, self._database, name, text)
        self.checkpointer.on_committed()

    def _let_go(self, run: FlowRun, sources: Sequence[Source] = ()) -> None:
        """Its end is in the database: nobody waits for it any more."""
        self._ingest.swap(sources, (), lambda: self._ingest.inbox.remove_flow(run.progress))
        self._ingest.committed()
        self.checkpointer.on_committed()

    def _run(self, flow: Flow, stored: StoredFlow, at: Position) -> FlowRun:
        return self._planned(flow, stored, Progress(at))

    def _planned(self, flow: Flow, stored: StoredFlow, progress: Progress) -> FlowRun:
        return FlowRun(
            flow, self.registry, stored.version, stored.epoch, progress, self._fusion, self._fission,
            self._database.gateway, stored.assignment, stored.plan,
        )  # fmt: skip

    # -- changes

    async def deploy(self, flow: Flow, origin: str, assignment: Assignment | None = None, plan: int = 0) -> int:
        """Starts a flow or replaces it by a new version; returns its version, when the broker knows what it reads (or
        after `SUBSCRIBED_S`). The same document changes nothing but the origin: brokers send what they retain with
        each connection.

        Raises `EdgertError` where that cannot be done: the old version goes on then, but where the new one failed when
        it had taken over already; that one is stopped, as in `fail`."""
        async with self._changing:
            version = await self._deploy(flow, origin, assignment or {}, plan)
        await self.on_change(self.runs)
        await self._ingest.subscribed(SUBSCRIBED_S)
        return version

    async def _deploy(self, flow: Flow, origin: str, assignment: Assignment, plan: int) -> int:
        old = self.runs.get(flow.name)
        if old is not None and old.flow.document == flow.document and (not assignment or old.assignment == assignment):
            await self._now_from(flow.name, origin)
            return old.version
        self.check_free(flow.name)
        stopped = self._stopped.get(flow.name)
        if stopped is not None and stopped.document == flow.document:
            raise EdgertError(
                f"flow {flow.name} is stopped ({self.failed[flow.name]}) and its document is the same: the gateway's "
                "next start brings it back with its windows, another document replaces it, which gives them up"
            )
        stored = replace(self._next(flow, origin), assignment=assignment, plan=plan)
        run = self._run(flow, stored, Position())
        for refused in self.models.started(run):
            log.warning("flow %s begins without a model that came before it: %s", flow.name, refused)
        fault = ""
        if old is None:
            await self._start(stored, run)
        else:
            fault = await self._replace(stored, run, old)
        self._stored[flow.name] = replace(stored, epoch=run.epoch)
        self.failed.pop(flow.name, None)
        self._stopped.pop(flow.name, None)
        self.gaps.pop(flow.name, None)
        if fault:
            self.fail(run, fault)
            raise EdgertError(f"version {stored.version} of flow {flow.name} took over and cannot go on: {fault}")
        log.info("flow %s version %d runs", flow.name, stored.version)
        return stored.version

    async def _now_from(self, name: str, origin: str) -> None:
        """The same document came over MQTT as well, and is retained: from now on its file counts no more."""
        if origin == "mqtt" and self.origin(name) != origin:
            await self._store(lambda: self._database.set_origin(name, origin))
            self._stored[name] = replace(self._stored[name], origin=origin)

    def _next(self, flow: Flow, origin: str) -> StoredFlow:
        before = self._stored.get(flow.name)
        version = before.version + 1 if before else 1
        epoch = successor(before.epoch) if before else make_epoch(1, secrets.randbits(32))
        return StoredFlow(flow.name, flow.document, version, origin, False, epoch, Position())

    async def _start(self, stored: StoredFlow, run: FlowRun) -> None:
        def put(last: Checkpoint | None, pages: dict[int, bytes], index: int) -> None:
            self._writes.put(replace(stored, position=Position(index - 1)), run, last, pages, index)

        await self._write_alone(stored.name, put)
        self._host.begin(run)
        self._attach(run, ())
        self.runs[run.flow.name] = run

    async def _write_alone(self, name: str, put: Callable[[Checkpoint | None, dict[int, bytes], int], None]) -> None:
        """Writes a change of a flow that does not run; of one that failed, when what it lacks is said."""
        telling = self._telling.running
        if telling and (await asyncio.wait(telling, timeout=STORE_TRIES))[1]:
            raise StoreError("that something of a flow is missing cannot be written, see the log; try again")

        def commit(pages: dict[int, bytes], index: int) -> None:
            if name in self.failed:
                put_instead_of_failed(self._database, name, lambda last: put(last, pages, index))
            else:
                put(None, pages, index)

        await self._writes.write(commit)

    def _attach(self, run: FlowRun, instead_of: Sequence[Source], old: Progress | None = None) -> None:
        """`old`: whose holes the new version takes over, since a redelivery that is to fill them may still come."""
        sources = sources_of(run)

        def enter() -> None:
            run.progress.missing = set(old.missing) if old else set()
            run.progress.links = dict(old.links) if old else {}
            self._ingest.inbox.add_flow(run.progress)
            run.progress.committed = run.progress.position()

        self._ingest.swap(instead_of, sources, enter)
        self._sources[run.flow.name] = sources

    async def _replace(self, stored: StoredFlow, run: FlowRun, old: FlowRun) -> str:
        """In one step what arrives goes to the new version; then the old one is run to its end, and its last words and
        the new epoch are one transaction. A crash before that brings the old version back, with its input.

        Returns why the new version cannot go on, if it failed meanwhile."""
        async with held(old, self._host, self.checkpointer) as gap:
            if gap is None:
                await self._start(stored, run)
                return ""
            self._entering[run] = ""
            self._host.begin(run)
            old.ended = True  # from here on its position says more than it is fed: no checkpoint may take it
            self._attach(run, self._sources[run.flow.name], old.progress)
            placed = replace(stored, position=run.progress.committed)

            def put(last: Checkpoint, pages: dict[int, bytes], index: int) -> None:
                self._writes.put(placed, run, last, pages, index)

            try:
                await self._end(old, put, gap)
                self.runs[run.flow.name] = run
                return self._entering[run]
            finally:
                del self._entering[run]

    async def remove(self, name: str) -> bool:
        """Ships the open windows of a flow and stops it; false when there is none of that name."""
        async with self._changing:
            old = self.runs.get(name)
            self.check_free(name)
            if old is None and name not in self.failed:
                return False

            def put(last: Checkpoint | None, pages: dict[int, bytes], index: int) -> None:
                self._database.remove_flow(name, last, pages, index)

            if old is None or not await self._end_alone(old, put):
                await self._write_alone(name, put)
                del self.failed[name]
                self._stopped.pop(name, None)
            self._stored[name] = replace(self._stored[name], removed=True)
            self._ingest.forget(name)
            self.models.removed(name)
            self._host.weights.forget(name)
            log.info("flow %s is removed; its results still leave", name)
            await self.on_change(self.runs)
            return True

    async def _end_alone(self, old: FlowRun, put: Callable[[Checkpoint, dict[int, bytes], int], None]) -> bool:
        """Of a flow that nothing follows. What comes until that is written would be missing if a start brought the flow
        back, so it is not acknowledged. False when it failed meanwhile."""
        name = old.flow.name
        async with held(old, self._host, self.checkpointer) as gap:
            if gap is None:
                return False
            old.ended = True
            sources = self._sources[name]
            self._ingest.swap((), (), lambda: _leave(sources))
            await self._end(old, put, gap, sources)
            del self._sources[name], self.runs[name]
            return True

    async def _end(
        self,
        old: FlowRun,
        put: Callable[[Checkpoint, dict[int, bytes], int], None],
        gap: str,
        sources: Sequence[Source] = (),
    ) -> None:
        """Runs a held flow, to which nothing is fed any more, to its end, and writes that. With `gap` it has none.
        `sources`: those that go with it."""
        self._leaving = old
        try:
            drops, lost = await self._writes.end(old, put, gap)
        finally:
            self._leaving = None
        if lost:
            self._telling.begin(self._tell_gap(old.flow.name, lost))
        self.checkpointer.drops.said(old, drops)
        self.checkpointer.outbox.forget(old.flow.name)
        self.dropped.ends(old)
        self._host.remove(old)
        self._let_go(old, sources)

    # -- plans

    async def place(self, name: str, moves: Mapping[str, Location]) -> Plan:
        """Lets a running flow go on by another plan, in which the operators (or copies, `minute#2`) of `moves` run at
        these locations: it stops at a checkpoint and goes on from there. Raises `EdgertError` where it cannot be done;
        the flow goes on as before then."""
        async with self._changing:
            old = self.runs.get(name)
            if old is None:
                raise EdgertError(f"expected a running flow, one of {_list(self.runs)}, got {show(name)}")
            self.check_free(name)
            assignment = moved(old.plan, moves)
            if assignment == old.plan.assignment():
                return old.plan
            async with stopped(old, self._host, self.checkpointer):
                await self.checkpointer.write_stopped(old)
                new = await self._succeed(old, assignment)
            self.dropped.ends(old)
            self.checkpointer.on_committed()
            await self.on_change(self.runs)
            log.info("flow %s goes on by plan %d", name, new.plan.number)
            return new.plan

    async def stop_for_plan(self, run: FlowRun) -> None:
        """The flow stands still, all that it has is committed, and no checkpoint takes it until `host.go_on` or
        `go_on_by`."""
        async with self._changing, stopped(run, self._host, self.checkpointer):
            await self.checkpointer.write_stopped(run)
            run.ended = True

    def planned(self, flow: Flow, assignment: Assignment, plan: int, progress: Progress) -> FlowRun:
        """This gateway's part of a flow, as it would run by a plan."""
        stored = self._stored.get(flow.name) or self._next(flow, "fleet")
        return self._planned(flow, replace(stored, assignment=assignment, plan=plan), progress)

    def next_part(self, flow: Flow, assignment: Assignment, plan: int, at: Position) -> StoredFlow:
        """What is to be stored of a flow that goes on by a plan; of one that comes to this gateway a new version."""
        stored = self._stored.get(flow.name)
        if stored is None or stored.removed or stored.document != flow.document:
            stored = self._next(flow, "fleet")
        return replace(stored, assignment=assignment, plan=plan, position=at)

    async def go_on_by(
        self, stored: StoredFlow, run: FlowRun, old: FlowRun | None, blobs: Sequence[bytes], queue: bytes
    ) -> None:
        """A flow that stands still (or comes to this gateway) goes on by another plan, from this state. Without an
        instance here it leaves the gateway."""
        name = stored.name
        async with self._changing:
            if old is not None:
                self.dropped.ends(old)
                before = self._sources.pop(name)
            if stored.removed:
                if old is not None:
                    self._ingest.swap(before, (), lambda: self._ingest.inbox.remove_flow(old.progress))
                    self._host.remove(old)
                    del self.runs[name]
            elif old is not None:
                switch = self._host.succeed(old, run, blobs, queue)  # which may make its instances anew
                self._sources[name] = sources_of(run)
                self._ingest.swap(before, self._sources[name], switch)
                run.latest, run.rows_shipped = old.latest, old.rows_shipped
                self.runs[name] = run
            else:
                self._host.begin(run, blobs, queue)
                self._attach(run, ())
                self.runs[name] = run
            self._stored[name] = stored
            self.failed.pop(name, None)
        self.checkpointer.on_committed()
        await self.on_change(self.runs)

    async def _succeed(self, old: FlowRun, assignment: Assignment) -> FlowRun:
        """A flow that stands still, all of it committed, goes on by another plan."""
        name = old.flow.name
        stored = replace(self._stored[name], plan=old.plan.number + 1, assignment=assignment)
        new = self._planned(old.flow, stored, old.progress)
        blobs, queue = await self._store(lambda: last_checkpoint(self._database, name))
        switch = self._host.succeed(old, new, blobs, queue)
        await self._store(lambda: self._database.put_plan(name, stored.plan, assignment))
        sources = sources_of(new)
        self._ingest.swap(self._sources[name], sources, switch)
        new.latest, new.rows_shipped = old.latest, old.rows_shipped
        self._stored[name], self._sources[name], self.runs[name] = stored, sources, new
        return new

    def epoch_renamed(self, name: str, epoch: int) -> None:
        """The uplink learned that the tables held newer epochs."""
        if name in self._stored:
            self._stored[name] = replace(self._stored[name], epoch=epoch)
        if name in self.runs:
            self.runs[name].epoch = epoch


def _is_alone(error: Exception) -> bool:
    """Whether it is one flow's that cannot be started: of its document, what is stored of it, or an operator of a
    package, which may raise anything; not that of a database which cannot be read or written."""
    return isinstance(error, DocumentError | DamagedError | MisfitError) or not isinstance(error, EdgertError)


async def _nothing(_: Mapping[str, FlowRun]) -> None:
    """For a gateway without links."""


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def moved(plan: Plan, moves: Mapping[str, Location]) -> dict[str, Location]:
    """The assignment of a plan with these moves. Raises `EdgertError` for an operator that it does not have."""
    assignment = plan.assignment()
    for name, location in moves.items():
        copies = [copy for copy in assignment if name in (copy, uncopied(copy)[0])]
        if not copies:
            raise EdgertError(
                f"expected an operator of flow {plan.flow.name}, one of {_list(assignment)}, got {show(name)}"
            )
        assignment |= dict.fromkeys(copies, location)
    return assignment


def _leave(sources: Sequence[Source]) -> None:
    for source in sources:
        source.reader.leave()
