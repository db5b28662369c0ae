"""This gateway's part of flows that run on several, and how it goes from one plan to the next.

A coordinator (an agent) changes the plan in four steps, each on all gateways of the old and the new plan before the
next. Before them it may have state sent ahead (`gateway.flows.precopy`).

    stop      the part stands still at a committed checkpoint, and takes no batches
    export    the state of operators that leave
    prepare   the part of the new plan is in the database, with the state of operators that come
    commit    it runs

Before `prepare` a gateway goes on by itself when it hears nothing; after it only the coordinator's word counts, across
a restart too. So the parts of a flow never run by two plans at a time.

What had left a gateway and was not taken at the other end is exported, too: it stands in the queues of the new plan
before anything that comes by it, wherever its operator runs then. See `edgert.store.plan_change` for what is durable.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.clock import Clock
from edgert.core.errors import EdgertError, PayloadError, show
from edgert.core.ids import short
from edgert.core.packing import pack, unpack_untrusted
from edgert.flow.graph import Flow
from edgert.flow.part_states import PartEvent, PartState
from edgert.flow.plan import Assignment
from edgert.operators.base.logic import Now
from edgert.runtime.checkpoint import restore
from edgert.runtime.checkpoint.packing import join_queues, pack_state
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.store import plan_change
from edgert.store.database import Database
from edgert.store.outbox import link_outbox
from edgert.store.plan_change import Prepared
from edgert.store.state.records import StoredFlow
from gateway.base.epochs import epoch_after
from gateway.base.tasks import OnStore
from gateway.flows.exports import pending, rows_in, states_of_operators, waiting_before, waiting_here
from gateway.flows.flows import Flows
from gateway.flows.precopy import Precopy, behind
from gateway.flows.stopped import StoppedParts
from gateway.hosts.host import Host
from gateway.registry.plan_changes import Committed
from gateway.registry.recovery import last_checkpoint

if TYPE_CHECKING:
    from gateway.links.flow_links import FlowLinks  # which costs memory, so only where it is wanted

log = logging.getLogger(__name__)
MAX_RULES_BYTES: Final = 1 << 16


class Parts:
    """Lives on the loop. Each method raises `EdgertError` where it cannot be done; nothing is changed then."""

    def __init__(
        self, gateway: str, flows: Flows, host: Host, database: Database, store: OnStore, clock: Clock,
        links: FlowLinks | None = None,
    ) -> None:  # fmt: skip
        self._gateway, self._flows, self._host, self._clock = gateway, flows, host, clock
        self._database, self._store = database, store
        self.precopy = Precopy(flows)
        self.stopped = StoppedParts(flows, host, self.precopy, links)
        self._changes = flows.flow_registry.plan_changes
        self.prepared = self._changes.prepared
        self._fences: dict[str, int] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locks by flow, held while a coordinator's request is carried out or waits for another one's."""
        self._rules: dict[str, tuple[int, Mapping[str, Any]]] = {}
        """Flow → fencing number of the coordinator that wrote its rules of placement, and these. They are the agents':
        a gateway only keeps them."""
        self._committed = self._changes.committed
        self._busy = asyncio.Lock()

    def load(self) -> None:
        """Loads fences, rules and prepared plans from the database; to be called before flows are loaded."""
        self._fences = self._database.read(plan_change.fences)
        self._changes.load(self._database)
        for flow, (fence, packed) in self._database.read(plan_change.rules).items():
            try:
                self._rules[flow] = fence, unpack_untrusted(packed, MAX_RULES_BYTES)
            except PayloadError as error:
                log.error("flow %s: the rules of its placement (edgert fleet rules) are lost here: %s", flow, error)

    def loaded(self) -> None:
        """Records the loaded flows that a start does not let run."""
        for name, run in self._flows.runs.items():
            if self._changes.stands(name):
                self.stopped.loaded(run, suspended=not (name in self.prepared or name in self._changes.damaged))

    def status(self) -> dict[str, Any]:
        """The parts of this gateway by flow; see docs/internals/plan-changes.md."""
        flows = self._flows
        found = {
            name: {
                "version": run.version,
                "plan": run.plan.number,
                "document": dict(run.flow.document),
                "assignment": {operator: list(at) for operator, at in run.assignment.items()},
                "state": self._changes.state(name).told,
                "fence": self._fences.get(name, 0),
                "guest": self._changes.is_guest(flows.flow_registry.stored[name]),
                "suspended": name in self.stopped.by_flow and self.stopped.by_flow[name].suspended,
                **self._told_rules(name),
            }
            for name, run in flows.runs.items()
        }
        for name, prepared in self.prepared.items():
            part = found.setdefault(name, {"state": "prepared", "fence": self._fences.get(name, 0)})
            part["prepared_plan"] = prepared.plan
            part["prepared_assignment"] = {operator: list(at) for operator, at in prepared.assignment.items()}
        return found

    def _told_rules(self, flow: str) -> dict[str, Any]:
        fence, rules = self._rules.get(flow, (0, {}))
        return {"rules": dict(rules), "rules_fence": fence}

    async def put_rules(self, flow: str, fence: int, rules: Mapping[str, Any]) -> None:
        """Keeps the rules of a flow's placement, unless it has newer ones."""
        if fence < self._rules.get(flow, (0, {}))[0]:
            return
        packed = pack(dict(rules))
        if len(packed) > MAX_RULES_BYTES:
            raise EdgertError(f"rules of flow {flow}: expected at most {MAX_RULES_BYTES} bytes, got {len(packed)}")
        await self._store(lambda: self._database.write(plan_change.put_rules, flow, fence, packed))
        self._rules[flow] = fence, dict(rules)

    # -- state that is sent ahead

    async def copy(self, flow: str, operators: Iterable[str], most: int) -> dict[str, Any]:
        """The state of operator copies that are to leave, as of a checkpoint of now; the flow runs on. `most`: bytes
        that the coordinator can take."""
        run = self._run(flow)
        self._changes.check_free(flow)
        await self._flows.checkpointer.checkpoint([run])
        blobs, _ = await self._checkpoint(flow)
        return await self.precopy.copy(flow, blobs, set(operators), most)

    async def ahead(
        self, document: Mapping[str, Any], assignment: Assignment, plan: int, copies: Mapping[str, Any]
    ) -> None:
        """Builds this gateway's part of a plan while the flow runs by the one before. `copies`: source gateway → its
        copied state (`copy`)."""
        flow = await self._flows.checked(dict(document))
        self._flows.plans.check_copies(flow, assignment)
        run = self._flows.runs.get(flow.name)
        if run is not None and run.flow.document != flow.document:
            raise EdgertError(f"flow {flow.name} is of another version here: deploy it before its plan is changed")
        own, _ = await self._checkpoint(flow.name) if run else ([], b"")
        await self.precopy.take(flow, assignment, plan, own, copies)

    # -- the steps

    @asynccontextmanager
    async def obeying(self, flow: str, fence: int) -> AsyncIterator[None]:
        """Obeys coordinators with this fencing number, and greater ones, from now on. What this one asks is to be done
        inside: a greater number is obeyed after it, so that a later coordinator sees what an earlier one did."""
        async with self._lock(flow):
            if fence < (known := await self._obey(flow, fence)):
                raise EdgertError(f"flow {flow} obeys a coordinator with fencing number {known}, got {fence}")
            yield

    async def obey(self, flow: str, fence: int) -> int:
        """The fencing number that the flow obeys here from now on: the given one, unless it obeys a greater one. It is
        told of flows without a part here, too: they may have had one."""
        async with self._lock(flow):
            return await self._obey(flow, fence)

    def _lock(self, flow: str) -> asyncio.Lock:
        return self._locks.setdefault(flow, asyncio.Lock())

    async def _obey(self, flow: str, fence: int) -> int:
        if fence > self._fences.get(flow, 0):
            await self._store(lambda: self._database.write(plan_change.put_fence, flow, fence))
            self._fences[flow] = fence
        return self._fences.get(flow, 0)

    async def stop(self, flow: str, fence: int | None = None) -> dict[str, Any]:
        """The part stands still at a committed checkpoint. Returns how far it took the batches of other gateways.
        `fence`: the coordinator's number of the change. Where the part runs by the plan of that change already, the
        request was passed on by another board before, and comes late."""
        async with self._busy:
            if fence is not None and self._run(flow).plan.number >= fence:
                raise EdgertError(f"flow {flow} runs by plan {short(fence)} already: it is not stopped for it again")
            before, after = self._changes.step(flow, PartEvent.STOP)
            stopped = await self.stopped.stop(self._run(flow)) if before is PartState.RUNNING else self.stopped[flow]
            if before is not after:  # a coordinator that reaches a suspended part belongs to the fleet
                stopped.suspended = False
                self.stopped.have_patience(flow)
            return {"links": {origin: list(at) for origin, at in stopped.run.progress.committed.links.items()}}

    async def suspend(self, flow: str) -> bool:
        """The part stands still at a committed checkpoint until `resume`. False where its plan is being changed, which
        its coordinator ends."""
        async with self._busy:
            before, after = self._changes.step(flow, PartEvent.SUSPEND)
            if before is not after:
                (await self.stopped.stop(self._run(flow))).suspended = True
            return after is PartState.SUSPENDED

    async def resume(self, flow: str) -> None:
        """A suspended part goes on."""
        async with self._busy:
            before, after = self._changes.step(flow, PartEvent.RESUME)
            if before is not after:
                self.stopped.go_on(flow)

    async def export(
        self, flow: str, operators: Iterable[str], taken: Mapping[str, Sequence[int]], since: str = ""
    ) -> dict[str, Any]:
        """Exports from a stopped part the state and queue entries of operator copies that leave, and the batches that
        wait for other gateways. `taken`: gateway → (epoch, sequence) of the last batch that it took from here. `since`:
        the token of a `copy`, behind which the state is wanted; the answer has it where it is behind that copy."""
        run, wanted = self.stopped[flow].run, set(operators)
        blobs, queue = await self._checkpoint(flow, self.precopy.known(flow))
        behind = self.precopy.since(flow, since, blobs) if since else None
        states = states_of_operators(blobs if behind is None else behind, wanted)
        return {
            "gateway": self._gateway,
            "since": "" if behind is None else since,
            "states": states,
            "queue": waiting_before(run.flow, self._flows.registry, queue, wanted),
            "pending": await pending(self._database, self._store, flow, taken, self._clock.monotonic()),
        }

    async def prepare(
        self,
        document: Mapping[str, Any],
        assignment: Assignment,
        plan: int,
        imports: Sequence[Mapping[str, Any]],
    ) -> None:
        """Makes this gateway's part of the next plan durable. `imports`: the exports of all gateways, this one
        included."""
        flow = await self._flows.checked(dict(document))
        self._flows.plans.check_copies(flow, assignment)
        # no other change begins a run of the flow meanwhile
        async with self._busy, self._flows.flow_registry.changing:
            # refused where another plan is prepared and a part stands: that has left the flow, was not told so, and
            # what it holds is not what the flow has now
            self._changes.step(flow.name, PartEvent.PREPARE, plan)
            old = self.stopped.by_flow.get(flow.name)
            if old is not None and old.run.flow.document != flow.document:
                raise EdgertError(f"flow {flow.name} is of another version here: deploy it before its plan is changed")
            if old is not None:
                self._flows.plans.check_sources(old.run, assignment)
            ahead = self.precopy.found(flow, assignment, plan, imports)
            with self.stopped.not_going_on(flow.name):
                blobs, queue = await self._checkpoint(flow.name, ahead.own if ahead else ()) if old else ([], b"")
                # its own export has nothing that stays here, but stages of several operators of which one leaves
                others = [one for one in imports if one.get("gateway") != self._gateway]
                changes = [state for one in others for state in one["states"]]
                # batches that a gateway took stand before those it had not taken yet
                queues = join_queues([queue, *(o["queue"] for o in imports), *(o["pending"] for o in imports)])
                own = behind(blobs, ahead.own) if ahead else None
                if ahead is not None and own is not None:
                    form = await asyncio.to_thread(self.precopy.form, ahead, [*own, *changes], queues)
                else:
                    states = [*blobs, *(ahead.imported if ahead else ()), *changes]
                    form = await asyncio.to_thread(self._form, flow, assignment, plan, states, queues)
                await self._store(lambda: self._database.write(plan_change.prepare, flow.name, form))
                self.prepared[flow.name] = form
                self._changes.damaged.discard(flow.name)
                if ahead is not None and own is not None:
                    self.precopy.ready[flow.name] = form, ahead.run

    async def commit(self, flow: str, plan: int) -> dict[str, Any]:
        """The part runs by the next plan. Returns for how long it stood still, and how many rows waited meanwhile."""
        async with self._busy:
            _, after = self._changes.step(flow, PartEvent.COMMIT, plan)
            if after is not PartState.COMMITTED:
                return {"pause_s": 0.0, "rows_delayed": 0}  # told twice, or of a change before the last one
            prepared, stopped = self.prepared[flow], self.stopped.by_flow.get(flow)
            if flow not in self._committed:
                self._committed[flow] = await self._write(flow, prepared, stopped.run if stopped else None)
            stored, run, old = self._committed[flow]
            fed = self._host.waiting(old) if old else 0
            await self._flows.plans.go_on_by(stored, run, old, prepared.states, prepared.queue)
            del self._committed[flow], self.prepared[flow]  # first: a second switch would take what waited once more
            self.stopped.forget(flow)
            await self._flows.plans.changed(run)
            pause_s = time.monotonic() - stopped.began if stopped else 0.0
            return {"pause_s": pause_s, "rows_delayed": fed + rows_in(prepared.queue)}

    async def abort(self, flow: str, plan: int) -> None:
        """The part goes on by the plan that it had."""
        async with self._busy:
            before, after = self._changes.step(flow, PartEvent.ABORT, plan)
            damaged = flow in self._changes.damaged
            if before is after and not damaged:
                return
            if damaged or before in (PartState.JOINING, PartState.PREPARED):
                await self._store(lambda: self._database.write(plan_change.prepare, flow, None))
                self.prepared.pop(flow, None)
                self._changes.damaged.discard(flow)
                self.precopy.forget(flow)
            if after is PartState.RUNNING and before is not after:
                self.stopped.go_on(flow)

    # -- below

    def _run(self, flow: str) -> FlowRun:
        run = self._flows.runs.get(flow)
        if run is None:
            raise EdgertError(f"expected a flow that runs here, got {show(flow)}")
        return run

    async def _checkpoint(self, flow: str, whole: Sequence[bytes] = ()) -> tuple[list[bytes], bytes]:
        found: tuple[list[bytes], bytes] = await self._store(lambda: last_checkpoint(self._database, flow, whole))
        return found

    def _form(self, flow: Flow, assignment: Assignment, plan: int, blobs: Sequence[bytes], queue: bytes) -> Prepared:
        """Builds this gateway's part of the next plan from all state that concerns it. On a thread of its own.

        Queues stay as they were stored. What this run makes of them does not count: the run that goes on works off what
        waited in the midst of a chain, counts what it drops and sends dead letters."""
        run = self._flows.plans.planned(flow, assignment, plan, Progress(Position()))
        run.restore(blobs, queue, Now(self._clock.monotonic(), self._clock.wall()))  # takes what is for operators here
        state = pack_state({restore.WHOLE: True, **run.snapshot(run.built, run.mine)})
        return Prepared(dict(flow.document), plan, dict(assignment), [state], waiting_here(run, queue))

    async def _write(self, name: str, prepared: Prepared, old: FlowRun | None) -> Committed:
        """Makes the prepared part the flow's plan, in the database."""
        flow = await self._flows.checked(dict(prepared.document))
        progress = old.progress if old else Progress(Position())
        run = self.precopy.run_of(name, prepared)
        if run is None:
            run = await asyncio.to_thread(self._flows.plans.planned, flow, prepared.assignment, prepared.plan, progress)
        run.progress = progress
        stored = self._flows.plans.next_part(flow, prepared.assignment, prepared.plan, progress.position())
        run.version, run.epoch = stored.version, stored.epoch
        # by the assignment, as coordinators see it: one that names this gateway for a key only still asks for its part
        leaves = self._gateway not in {location.gateway for location in prepared.assignment.values()}
        streams = await self._store(lambda: self._database.read(link_outbox.streams))
        others = {gateway: last.epoch for (flow_name, gateway), last in streams.items() if flow_name == name}
        others |= {gateway: others.get(gateway, 0) for gateway in run.neighbours()[1]}
        epochs = {gateway: epoch_after(max(epoch, stored.epoch)) for gateway, epoch in others.items()}
        commit = Checkpoint(name, progress.committed, prepared.states, prepared.queue, whole=True)

        def write() -> StoredFlow:
            """On the store thread, so that an epoch which the uplink renamed a moment ago is known."""
            known = replace(stored, position=progress.committed, removed=leaves)
            if (greatest := max(self._database.epochs(name), default=0)) > known.epoch:
                known = replace(known, epoch=epoch_after(greatest))
            self._database.change_plan(known, run.schema, None if leaves else commit, epochs)
            return known

        stored = await self._store(write)
        run.epoch = stored.epoch
        return Committed(stored, run, old)
