"""The flows of this gateway: started, replaced by a new version, removed; all of it survives a crash at any point."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.errors import DamagedError, DocumentError, EdgertError, MisfitError
from edgert.flow.document import from_plain
from edgert.flow.graph import Flow
from edgert.flow.physical import Fusion
from edgert.flow.plan import Assignment
from edgert.flow.spec import Registry
from edgert.flow.versions.kept_state import KeptState, kept_state
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.store import look_ups
from edgert.store.state.records import StoredFlow
from gateway.base.epochs import epoch_after
from gateway.checkpoint.checkpointer import Checkpointer
from gateway.flows.loop_checks import LoopChecks
from gateway.flows.losses import Losses
from gateway.flows.models import Models
from gateway.flows.plans import FLEET, Plans, succession_of
from gateway.flows.retire import Retirement
from gateway.flows.writes import STORE_TRIES, FlowChange, FlowWrites, NewVersion, RememberedFlow, Removal
from gateway.hosts.host import Host
from gateway.ingest.ingest import Ingest
from gateway.ingest.subscriptions import SubscribedSource, sources_of
from gateway.ledger.drop_counts import DropCounts
from gateway.ledger.gaps import say_gap, say_no_room, write_gap
from gateway.registry.recovery import resumption
from gateway.registry.registry import AGAIN, FlowRegistry

log = logging.getLogger(__name__)

GIVEN_UP = "the flow could not go on; what came in since, until it does, is missing"
NOT_HANDED = "the version before could not be brought to its end"
LATE = "the database was damaged and begun anew; what waited in it, and came in until the flow could start, is missing"


class Flows:
    """Changes what the registry says runs, one change after the other."""

    def __init__(
        self,
        registry: Registry,
        flow_registry: FlowRegistry,
        host: Host,
        ingest: Ingest,
        checkpointer: Checkpointer,
        fusion: Fusion = "full",
        fission: bool = True,
    ) -> None:
        """`registry`: of operators; `flow_registry`: of the flows that run."""
        self.registry, self.flow_registry, self.checkpointer = registry, flow_registry, checkpointer
        self._host = host
        self._ingest = ingest
        self.runs, self.failed = flow_registry.runs, flow_registry.failed
        self.models = Models(self.runs, host.offer_model)
        self.entering: dict[FlowRun, str] = {}
        """New versions that take input and are not in `runs` yet, and why they failed, if they did."""
        self.kept_state: dict[str, KeptState] = {}
        """The fate of the state of a flow when it was replaced last, by flow, since this process began."""
        self.leaving: FlowRun | None = None
        """A run that is brought to its end here: it needs its host no more."""
        self._stopped: dict[str, Flow] = {}
        """Failed flows that ran, and so go on with the next start, with their windows."""
        self.loops = LoopChecks(self.runs)
        self.losses = Losses(flow_registry, checkpointer.on_committed)
        self.gaps = self.losses.gaps
        self.dropped = DropCounts(host)
        self.retirement = Retirement(flow_registry, host, checkpointer, ingest.publishing.send)
        self._writes = FlowWrites(flow_registry, checkpointer)
        self.plans = Plans(
            registry, flow_registry, host, ingest, checkpointer, self.retirement, self.dropped, fusion, fission,
            self.models,
        )  # fmt: skip
        flow_registry.on_failed, flow_registry.on_restored = self.fail, ingest.read_limits.check
        ingest.known_session.on_unknown = self.losses.of_all

    async def checked(self, document: Mapping[str, Any], what: str = "flow") -> Flow:
        """The flow of a plain document. Raises `DocumentError`. Beside the loop: a large document takes long."""
        return await asyncio.to_thread(from_plain, document, self.registry, what=what)

    def version(self, name: str) -> int | None:
        """Version of the running flow `name`."""
        run = self.runs.get(name)
        return run.version if run else None

    def origin(self, name: str) -> str | None:
        """The origin of the flow's document: "mqtt" or "file"; None for an unknown or removed flow."""
        stored = self.flow_registry.stored.get(name)
        return stored.origin if stored and not stored.removed else None

    # -- start

    def load(self) -> None:
        """Resumes the flows of the database, before anything is read. Raises `EdgertError` where the database cannot be
        read or written: the messages of a flow that is only held up would be acknowledged else."""
        inbox = self._ingest.inbox
        for stored in self.flow_registry.database.flows():
            self.flow_registry.stored[stored.name] = stored
            if stored.removed:
                self._ingest.forget(stored.name)
                continue
            try:
                flow = from_plain(stored.document, self.registry, what=f"stored flow {stored.name}")
                at = resumption(self.flow_registry.database, stored)
                stored = self.flow_registry.stored[stored.name] = at.stored
                run = self.plans.resumed(flow, stored, at.blobs, at.queue)
                if run.schema is not None and not self.flow_registry.database.last_sequences(stored.name, stored.epoch):
                    # rescued: only now it is known what it ships
                    self._writes.put(NewVersion(stored, run, stored.position), None, {}, inbox.next_index)
                    say_gap(self.flow_registry.database, stored.name, LATE)
                    stored = self.flow_registry.stored[stored.name] = replace(stored, epoch=run.epoch)
                self.models.resumed(flow, at.blobs)
                self._host.begin(run, at.blobs, at.queue, stands=self.flow_registry.plan_changes.stands(stored.name))
            except Exception as error:
                if not _is_alone(error):
                    raise
                self._not_started(stored.name, error)
                say_gap(self.flow_registry.database, stored.name, f"{GIVEN_UP}: {self.failed[stored.name]}")
                continue
            inbox.flows.append(run.progress)
            self.flow_registry.sources[stored.name] = sources_of(run)
            with self._ingest.swap((), self.flow_registry.sources[stored.name]):
                self.runs[stored.name] = run
            log.info("flow %s version %d goes on", stored.name, stored.version)
            if at.gap:
                self.gaps[stored.name] = at.gap
            if at.lost:
                self.checkpointer.drops.lost_input[stored.name] += say_no_room(self.flow_registry.database, stored.name)
            if again := self.flow_registry.database.again.get(stored.name):
                log.warning(AGAIN, stored.name, again)
        for name, tokens in self.flow_registry.database.read(look_ups.of_all).items():
            self._ingest.subscriptions.look_ups.begun(name, tokens)
        self.losses.at_start()
        inbox.resume(doubtful_to=int(self.flow_registry.database.meta("doubtful_to", 0)))

    async def restore(self, rescued: Sequence[StoredFlow], why: str) -> None:
        """Starts the flows of a database that had to be set aside: their documents without state, in epochs that follow
        those that they had. A flow that cannot start now is recorded and starts when it can. Raises `StoreError` where
        that cannot be written; the next start does it again then."""
        log.error("%s", why)
        self.losses.begun_anew = why
        now = Position(self._ingest.inbox.next_index - 1)
        for stored in rescued:
            if stored.name in self.runs or stored.name in self.failed:
                continue  # a crash came between
            self.flow_registry.stored[stored.name] = replace(stored, removed=True)
            if stored.removed:
                continue
            try:
                await self.deploy(await self.checked(stored.document, f"flow {stored.name}"), stored.origin)
                self.gaps[stored.name] = why
            except Exception as error:  # noqa: BLE001 - as in `load`
                self._not_started(stored.name, error)
                kept = self.flow_registry.stored[stored.name] = replace(
                    stored, epoch=epoch_after(stored.epoch), position=now
                )
                await self._writes.write_alone(RememberedFlow(kept))
        gaps = {stored.name: why for stored in rescued if stored.name in self.runs}
        await self.flow_registry.store(lambda: self.flow_registry.database.restored(gaps))

    def _not_started(self, name: str, error: Exception) -> None:
        ours = isinstance(error, EdgertError)
        self.failed[name] = str(error) if ours else repr(error)
        again = "deploy it anew" if ours else "the next start tries again, or deploy it anew"
        log.error("flow %s cannot go on and is not started; %s: %s", name, again, error, exc_info=not ours)

    def fail(self, run: FlowRun, why: str) -> None:
        """Stops a flow that has begun and cannot go on: it is fed nothing more, and no call waits for it."""
        name = run.flow.name
        if run in self.entering:
            self.entering[run] = why  # `deploy` sees to it, when the old version has ended
            return
        if self.runs.get(name) is not run or run is self.leaving:
            return
        log.error(
            "flow %s cannot go on and is stopped; the gateway's next start brings it back with its windows, another "
            "document replaces it: %s", name, why,
        )  # fmt: skip
        self.failed[name], self._stopped[name] = why, run.flow
        del self.runs[name]
        with self._ingest.swap((), ()):
            _leave(self.flow_registry.sources[name])
        self.dropped.ends(run)
        self._host.remove(run)
        self.losses.telling.begin(self._give_up(run, f"{GIVEN_UP}: {why}"))

    async def stop(self) -> None:
        """Gives up gaps that are not written yet. The next start brings these flows back, with the messages that are
        not acknowledged."""
        await self.losses.telling.stop()
        await self.flow_registry.stop()

    async def _give_up(self, run: FlowRun, text: str) -> None:
        """Writes the gap of a failed flow, and then lets its messages be acknowledged. Until the gap is written a start
        brings the flow back, with them."""
        await write_gap(self.flow_registry.store, self.flow_registry.database, run.flow.name, text)
        self._let_go(run, self.flow_registry.sources.pop(run.flow.name))
        await self.flow_registry.changed()

    def _let_go(self, run: FlowRun, sources: Sequence[SubscribedSource] = ()) -> None:
        """Releases a run that is no longer needed, once its end is in the database."""
        with self._ingest.swap(sources, ()):
            self._ingest.inbox.remove_flow(run.progress)
        self._ingest.committed()
        self.checkpointer.on_committed()

    # -- changes

    async def deploy(self, flow: Flow, origin: str, assignment: Assignment | None = None, plan: int = 0) -> int:
        """Starts a flow, or replaces it by a new version. Returns its version when the broker has confirmed its
        subscriptions, or after some seconds. The same document changes nothing but the origin: brokers send retained
        documents with each connection. Raises `EdgertError` where it cannot be done. The old version goes on then,
        unless the new one failed after it had taken over: a flow that fails so late is stopped, as by `fail`."""
        async with self.flow_registry.changing:
            version = await self._deploy(flow, origin, assignment or {}, plan)
        await self.flow_registry.changed()
        await self._ingest.subscriber.subscribed()
        return version

    async def _deploy(self, flow: Flow, origin: str, assignment: Assignment, plan: int) -> int:
        self.kept_state.pop(flow.name, None)
        known = self.flow_registry.stored.get(flow.name)
        if origin != FLEET and known is not None and known.origin == FLEET and not known.removed:
            raise EdgertError(
                f"flow {flow.name} belongs to the fleet, and this board runs a part of it: use `edgert fleet remove` "
                "first, or `edgert fleet deploy`"
            )
        old = self.runs.get(flow.name)
        if old is not None and old.flow.document == flow.document and (not assignment or old.assignment == assignment):
            await self._now_from(flow.name, origin)
            return old.version
        self.flow_registry.plan_changes.check_free(flow.name)
        stopped = self._stopped.get(flow.name)
        if stopped is not None and stopped.document == flow.document:
            raise EdgertError(
                f"flow {flow.name} is stopped ({self.failed[flow.name]}) and its document is the same: the gateway's "
                "next start brings it back with its windows, another document replaces it, which gives them up"
            )
        await self.loops.refuse(flow)
        self.plans.check_copies(flow, assignment)
        stored = replace(self.plans.next_version(flow, origin), assignment=assignment, plan=plan)
        # compiling takes long for a large document; the broker's messages are taken in meanwhile
        run = await asyncio.to_thread(self.plans.run_of, flow, stored, Progress(Position()))
        for refused in await self.models.started(run):
            log.warning("flow %s begins without a model that came before it: %s", flow.name, refused)
        old = self.runs.get(flow.name)  # it may have failed meanwhile
        fault = ""
        if old is None:
            await self._start(stored, run)
        else:
            fault = await self._replace(stored, run, old)
        self.flow_registry.stored[flow.name] = replace(stored, epoch=run.epoch)
        self.failed.pop(flow.name, None)
        self._stopped.pop(flow.name, None)
        await self.losses.of_new(flow.name, stored.version)
        if fault:
            self.fail(run, fault)
            raise EdgertError(f"version {stored.version} of flow {flow.name} took over and cannot go on: {fault}")
        log.info("flow %s version %d runs", flow.name, stored.version)
        return stored.version

    async def _now_from(self, name: str, origin: str) -> None:
        """Records that the same document came over MQTT, too, and is retained: its file no longer counts."""
        if origin == "mqtt" and self.origin(name) != origin:
            await self.flow_registry.store(lambda: self.flow_registry.database.set_origin(name, origin))
            self.flow_registry.stored[name] = replace(self.flow_registry.stored[name], origin=origin)

    async def _start(self, stored: StoredFlow, run: FlowRun) -> None:
        change = NewVersion(stored, run)
        await self._write_alone(change, stored.name)
        self._ingest.subscriptions.look_ups.begun(stored.name, change.tokens)
        self._host.begin(run)
        self.plans.attach(run, ())
        self.runs[run.flow.name] = run

    async def _write_alone(self, change: FlowChange, name: str) -> None:
        """Writes a change of a flow that does not run; of a failed one, only after its gaps are written."""
        await self.losses.told(STORE_TRIES)
        await self._writes.write_alone(change, failed=name if name in self.failed else "")

    async def _replace(self, stored: StoredFlow, run: FlowRun, old: FlowRun) -> str:
        """Replaces a running flow. In one step arriving messages go to the new version; then the old one runs to its
        end, and its last results and the new epoch are one transaction. A crash before that brings the old version
        back, with its input. Returns the reason why the new version cannot go on, if it failed meanwhile."""
        name = run.flow.name
        async with self.retirement.held(old) as held:
            if held.failed:
                await self._start(stored, run)
                return ""
            self.entering[run] = ""
            found, fault = succession_of(old, run, self.registry)
            kept = found if found.kept and not (fault or held.gap) else None
            self._host.begin(run, stands=kept is not None)
            old.ended = True  # from here on its position says more than it is fed: no checkpoint may take it
            self.plans.attach(run, self.flow_registry.sources[name], old.progress)
            try:
                written = await self._end(old, NewVersion(stored, run, run.progress.committed, kept), held.gap)
                self.runs[name] = run
                if found.kept and not written.whole:
                    fault = fault or NOT_HANDED
                self.kept_state[name] = kept_state(found, fault)
                try:
                    if kept is not None:
                        self._host.go_on(run, written.deltas if written.whole else ())
                except EdgertError as error:
                    return self.entering[run] or str(error)
                return self.entering[run]
            finally:
                del self.entering[run]

    async def remove(self, name: str) -> bool:
        """Ships the open windows of a flow and stops it; false when there is none of that name."""
        async with self.flow_registry.changing:
            old = self.runs.get(name)
            self.flow_registry.plan_changes.check_free(name)
            if old is None and name not in self.failed:
                return False
            if old is None or not await self._end_alone(old):
                await self._write_alone(Removal(name), name)
                del self.failed[name]
                self._stopped.pop(name, None)
            self.flow_registry.stored[name] = replace(self.flow_registry.stored[name], removed=True)
            self._ingest.forget(name)
            self.models.removed(name)
            self._host.weights.forget(name)
            log.info("flow %s is removed; its results still leave", name)
            await self.flow_registry.changed()
            return True

    async def _end_alone(self, old: FlowRun) -> bool:
        """Ends a flow that no version follows; returns False if it failed meanwhile. Messages that arrive until the end
        is written are not acknowledged: they would be missing if a start brought the flow back."""
        name = old.flow.name
        async with self.retirement.held(old) as held:
            if held.failed:
                return False
            old.ended = True
            sources = self.flow_registry.sources[name]
            with self._ingest.swap((), ()):
                _leave(sources)
            await self._end(old, Removal(name), held.gap, sources)
            del self.flow_registry.sources[name], self.runs[name]
            return True

    async def _end(
        self, old: FlowRun, change: NewVersion | Removal, gap: str, sources: Sequence[SubscribedSource] = ()
    ) -> Checkpoint:
        """Runs a held flow, to which nothing is fed any more, to its end, and writes the last checkpoint with the
        change. Returns the checkpoint as it was written. `gap`: the flow has no end, for this reason. `sources`:
        sources that end with the flow. Nothing is awaited once the host has let the run go: the caller takes it out of
        `runs` in the same step, before a tick."""
        self.leaving = old
        try:
            last = await self.retirement.ending(old, gap, change.heirs)
            written, lost = await self._writes.write_ending(change, last)
        finally:
            self.leaving = None
        if lost:
            self.losses.telling.begin(self.losses.tell(old.flow.name, lost))
        self.checkpointer.drops.said(old, written.drops)
        self.checkpointer.outbox_room.forget(old.flow.name)
        if isinstance(change, NewVersion):  # retained messages are asked for again where it needs them
            self._ingest.subscriptions.look_ups.begun(old.flow.name, change.tokens)
        self.dropped.ends(old)
        self._host.remove(old)
        self._let_go(old, sources)
        return written

    def epoch_renamed(self, name: str, epoch: int) -> None:
        """The uplink learned that the tables held newer epochs."""
        if name in self.flow_registry.stored:
            self.flow_registry.stored[name] = replace(self.flow_registry.stored[name], epoch=epoch)
        if name in self.runs:
            self.runs[name].epoch = epoch


def _is_alone(error: Exception) -> bool:
    """True for a fault of one flow alone: of its document, its stored state, or an operator of a package, which may
    raise any exception. False for a database that cannot be read or written."""
    return isinstance(error, DocumentError | DamagedError | MisfitError) or not isinstance(error, EdgertError)


def _leave(sources: Sequence[SubscribedSource]) -> None:
    for source in sources:
        source.reader.leave()
