"""The plan by which a flow runs: where its operators are, and how it goes on by another plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from edgert.core.checkpoint.position import Position
from edgert.core.errors import EdgertError, show
from edgert.core.ids import short
from edgert.flow.graph import Flow
from edgert.flow.physical import Fusion, plan
from edgert.flow.plan import Assignment, Location, Plan, copy_name, operator_copies, uncopied
from edgert.flow.spec import Registry
from edgert.flow.versions.heirs import Succession, succession
from edgert.flow.versions.kept_state import NOTHING_REPLACED, KeptState, kept_state
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.checkpoint.restore import names_of, was_split
from edgert.runtime.flow_run import FlowRun
from edgert.scheduling.locality_fairness import PLACEMENTS
from edgert.store.state.records import StoredFlow
from gateway.base.epochs import epoch_after, first_epoch
from gateway.checkpoint.checkpointer import Checkpointer
from gateway.flows.models import Models
from gateway.flows.retire import Retirement
from gateway.hosts.host import Host
from gateway.hosts.slotted_flow import scheduled
from gateway.ingest.ingest import Ingest
from gateway.ingest.subscriptions import SubscribedSource, sources_of
from gateway.ledger.drop_counts import DropCounts
from gateway.registry.registry import FlowRegistry

log = logging.getLogger(__name__)
FLEET: Final = "fleet"
"""Origin of a flow that agents deployed over several gateways."""


class Plans:
    """Makes the runs of flows, and lets running flows go on by other plans."""

    def __init__(
        self,
        operators: Registry,
        flow_registry: FlowRegistry,
        host: Host,
        ingest: Ingest,
        checkpointer: Checkpointer,
        retirement: Retirement,
        dropped: DropCounts,
        fusion: Fusion,
        fission: bool,
        models: Models,
    ) -> None:
        self._operators, self._fusion, self._fission = operators, fusion, fission
        self._flow_registry, self._host, self._ingest = flow_registry, host, ingest
        self._checkpointer, self._retirement, self._dropped = checkpointer, retirement, dropped
        self._models = models

    def resumed(self, flow: Flow, stored: StoredFlow, blobs: Sequence[bytes], queue: bytes) -> FlowRun:
        """The run of a flow that goes on from what is stored of it, in the copies in which it was stored. Raises as
        `run_of`."""
        in_copies = any(node.instances > 1 for node in flow.nodes.values())
        run = self.run_of(flow, stored, Progress(stored.position), names_of(blobs, queue) if in_copies else ())
        if run.fission != self._fission:
            log.warning(
                "flow %s goes on %s copies, as it is stored: pool.fission = %s counts from its next version on",
                flow.name, "in" if run.fission else "without", str(self._fission).lower(),
            )  # fmt: skip
        return run

    def run_of(self, flow: Flow, stored: StoredFlow, progress: Progress, kept: Iterable[str] = ()) -> FlowRun:
        """A run of the flow by its stored plan; in copies if its plan is, or `kept`, the stages with stored state; by
        the setting if these do not tell. Raises `EdgertError` where it cannot be built."""
        fission = was_split(flow, [*stored.assignment, *kept], self._fission)
        return FlowRun(
            flow, self._operators, stored.version, stored.epoch, progress, self._fusion, fission,
            self._flow_registry.database.gateway, stored.assignment, stored.plan,
        )  # fmt: skip

    def next_version(self, flow: Flow, origin: str) -> StoredFlow:
        """The record to store for the next version of a flow."""
        before = self._flow_registry.stored.get(flow.name)
        version = before.version + 1 if before else 1
        epoch = epoch_after(before.epoch) if before else first_epoch()
        return StoredFlow(flow.name, flow.document, version, origin, False, epoch, Position())

    def attach(self, run: FlowRun, instead_of: Sequence[SubscribedSource], old: Progress | None = None) -> None:
        """Feeds arriving messages to this run from now on. `old`: the progress of the run before; its missing message
        numbers are taken over, since a redelivery that fills them may still come."""
        sources = sources_of(run)
        with self._ingest.swap(instead_of, sources):
            run.progress.missing = set(old.missing) if old else set()
            run.progress.links = dict(old.links) if old else {}
            self._ingest.inbox.add_flow(run.progress)
            run.progress.committed = run.progress.position()
        self._flow_registry.sources[run.flow.name] = sources

    async def place(self, name: str, moves: Mapping[str, Location]) -> Plan:
        """Lets a running flow go on by another plan, in which the operators (or copies, `minute#2`) of `moves` run at
        these locations: it stops at a checkpoint and goes on from there. Raises `EdgertError` where it cannot be done;
        the flow goes on as before then."""
        async with self._flow_registry.changing:
            return await self._place(self._running(name), moves)

    async def place_by(self, name: str, by: str, slots: Callable[[], Sequence[int]]) -> Plan:
        """Places the operators where a scheduler (one of `PLACEMENTS`) wants them. `slots` gives them in the order in
        which they are to be taken, when the flow can be changed."""
        if by not in PLACEMENTS:
            raise EdgertError(f"expected a scheduler, one of {_list(PLACEMENTS)}, got {show(by)}")
        async with self._flow_registry.changing:
            run = self._running(name)
            return await self._place(run, self._scheduled(run, by, slots()))

    async def _place(self, old: FlowRun, moves: Mapping[str, Location]) -> Plan:
        """To be called with `changing` held."""
        name = old.flow.name
        self._flow_registry.plan_changes.check_free(name)
        if self._flow_registry.stored[name].origin == FLEET:
            raise EdgertError(
                f"flow {name} belongs to the fleet, whose boards change its plan together: use `edgert fleet move`"
            )
        self._check_markers(old.flow, moves)
        placeable = [o for o in old.plan.assignment() if not self._is_marker(old.flow, o)]
        assignment = moved(old.plan, moves, placeable)
        if assignment == old.plan.assignment():
            return old.plan
        async with self._retirement.stopped(old):
            await self._checkpointer.write_stopped(old)
            new = await self._succeed(old, assignment)
        await self.changed(new)
        log.info("flow %s goes on by plan %d", name, short(new.plan.number))
        return new.plan

    def _scheduled(self, run: FlowRun, by: str, slots: Sequence[int]) -> dict[str, Location]:
        """Returns the locations that a scheduler gives to the operators of a running flow, except those that the
        document assigns to a slot. The operators are placed one by one; then those that share a slot are fused."""
        sets = plan(run.flow, self._operators, "none", fission=run.fission).sets()
        at = scheduled(run.flow.name, sets, PLACEMENTS[by], slots)
        return {
            copy_name(operator, copy.copy): Location(run.gateway, at[copy.name])
            for copies in sets
            for copy in copies
            for operator in copy.operators
        }

    def _running(self, name: str) -> FlowRun:
        run = self._flow_registry.runs.get(name)
        if run is None:
            raise EdgertError(f"expected a running flow, one of {_list(self._flow_registry.runs)}, got {show(name)}")
        return run

    def _check_markers(self, flow: Flow, moves: Iterable[str]) -> None:
        for name in moves:
            if self._is_marker(flow, name):
                node = flow.nodes[uncopied(name)[0]]
                raise EdgertError(
                    f"operator {node.name} ({node.type}) only names keys, so it runs nowhere itself: place the "
                    "operators that read it"
                )

    def _is_marker(self, flow: Flow, name: str) -> bool:
        """True for an operator that only names keys."""
        node = flow.nodes.get(uncopied(name)[0])
        return node is not None and self._operators[node.type].keys is not None

    async def stop_for_plan(self, run: FlowRun) -> None:
        """The flow stands still, all that it has is committed, and no checkpoint takes it until `host.go_on` or
        `go_on_by`."""
        async with self._flow_registry.changing, self._retirement.stopped(run):
            await self._checkpointer.write_stopped(run)
            run.ended = True

    def check_copies(self, flow: Flow, assignment: Assignment) -> None:
        """Raises `EdgertError` where a coordinator's assignment names copies of operators that there are not. Whether
        there are copies is told by the assignment, so that all boards of a flow have the same."""
        fission = was_split(flow, assignment, self._fission)
        copies = {copy for node in flow.nodes.values() for copy in operator_copies(node, fission)}
        if unknown := assignment.keys() - copies:
            raise EdgertError(
                f"flow {flow.name}: expected a location for each of {_list(copies)}, got one for {_list(unknown)}"
            )

    def check_sources(self, run: FlowRun, assignment: Assignment) -> None:
        """Raises `EdgertError` where an assignment takes a source away from this gateway: its position in the session
        with the sensors' broker stays here, and what comes after the last checkpoint would be lost."""
        for name, location in run.plan.assignment().items():
            to = assignment.get(name, location).gateway
            if not run.flow.nodes[uncopied(name)[0]].inputs and location.gateway == run.gateway != to:
                raise EdgertError(
                    f"flow {run.flow.name}: expected {name} on {run.gateway}, got {to}: a source stays with the "
                    "session of its broker; to have it elsewhere remove the flow and deploy it there"
                )

    def planned(self, flow: Flow, assignment: Assignment, plan: int, progress: Progress) -> FlowRun:
        """This gateway's part of a flow, as it would run by a plan."""
        stored = self._flow_registry.stored.get(flow.name) or self.next_version(flow, FLEET)
        return self.run_of(flow, replace(stored, assignment=assignment, plan=plan), progress)

    def next_part(self, flow: Flow, assignment: Assignment, plan: int, at: Position) -> StoredFlow:
        """The record to store for a flow that goes on by a plan; a new version if the flow is new to this gateway."""
        stored = self._flow_registry.stored.get(flow.name)
        if stored is None or stored.removed or stored.document != flow.document:
            stored = self.next_version(flow, FLEET)
        return replace(stored, assignment=assignment, plan=plan, position=at)

    async def go_on_by(
        self, stored: StoredFlow, run: FlowRun, old: FlowRun | None, blobs: Sequence[bytes], queue: bytes
    ) -> None:
        """A flow that stands still (or comes to this gateway) goes on by another plan, from this state; one that is
        removed from this gateway leaves it. Where it raises it may be called again: nothing is changed then. The
        caller calls `changed` next."""
        name = stored.name
        async with self._flow_registry.changing:
            if stored.removed:
                if old is not None:
                    self._leave(old)
            elif old is not None:
                self._switch(old, run, self._host.successor(old, run, blobs, queue))
            else:
                self._host.begin(run, blobs, queue)
                self.attach(run, ())
                self._flow_registry.runs[name] = run
            self._flow_registry.stored[name] = stored
            self._flow_registry.failed.pop(name, None)

    async def changed(self, run: FlowRun) -> None:
        """A flow goes on by the plan of `run`, or has left, even if this raises: it gets the models that are here, and
        others are told."""
        await self._models.go_on(run)
        self._checkpointer.on_committed()
        await self._flow_registry.changed()

    async def _succeed(self, old: FlowRun, assignment: Assignment) -> FlowRun:
        """A flow that stands still, all of it committed, goes on by another plan."""
        name = old.flow.name
        stored = replace(self._flow_registry.stored[name], plan=old.plan.number + 1, assignment=assignment)
        new = self.run_of(old.flow, stored, old.progress)
        blobs, queue = await self._flow_registry.store(lambda: self._flow_registry.read_checkpoint(name))
        take_over = self._host.successor(old, new, blobs, queue)
        await self._flow_registry.store(lambda: self._flow_registry.database.put_plan(name, stored.plan, assignment))
        self._switch(old, new, take_over)
        self._flow_registry.stored[name] = stored
        return new

    def _switch(self, old: FlowRun, new: FlowRun, take_over: Callable[[], None]) -> None:
        """Puts `new` in the place of `old`, in one step for all input."""
        name, sources = old.flow.name, sources_of(new)
        with self._ingest.swap(self._flow_registry.sources[name], sources):
            self._dropped.ends(old)  # takes the figures of the host before the host forgets them
            take_over()
        new.latest, new.rows_shipped = old.latest, old.rows_shipped
        self._flow_registry.sources[name], self._flow_registry.runs[name] = sources, new

    def _leave(self, old: FlowRun) -> None:
        """Removes a flow without an instance here."""
        name = old.flow.name
        self._dropped.ends(old)
        sources = self._flow_registry.sources.pop(name)
        with self._ingest.swap(sources, ()):
            self._ingest.inbox.remove_flow(old.progress)
        self._host.remove(old)
        del self._flow_registry.runs[name]


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def moved(plan: Plan, moves: Mapping[str, Location], placeable: Iterable[str]) -> dict[str, Location]:
    """The assignment of a plan with these moves. Raises `EdgertError` for an operator that it does not have, and names
    the `placeable` ones. A move of one copy counts more than that of its operator."""
    assignment = plan.assignment()
    for name, location in sorted(moves.items(), key=lambda move: uncopied(move[0])[0] != move[0]):
        copies = [copy for copy in assignment if name in (copy, uncopied(copy)[0])]
        if not copies:
            raise EdgertError(
                f"expected an operator of flow {plan.flow.name}, one of {_list(placeable)}, got {show(name)}"
            )
        if away := [copy for copy in copies if assignment[copy].gateway != location.gateway]:
            raise EdgertError(
                f"{away[0]} of flow {plan.flow.name} runs on gateway {assignment[away[0]].gateway}, and here operators "
                "are moved between slots of one gateway: move it with edgert fleet move"
            )
        assignment |= dict.fromkeys(copies, location)
    return assignment


def succession_of(old: FlowRun, run: FlowRun, operators: Registry) -> tuple[Succession, str]:
    """Returns (the fate of the operators of `old` in the next version, why none of them can hand over its state or
    "")."""
    found, fault = succession(old.flow, run.flow, operators), ""
    if old.mine is not None or run.mine is not None:
        fault = "operators of it run on other boards"
    elif old.fission != run.fission and any(node.instances > 1 for node in run.flow.nodes.values()):
        fault = "pool.fission is changed"
    return found, fault


def compared(flow: Flow, runs: Mapping[str, FlowRun], operators: Registry) -> KeptState:
    """The fate of the state of the running version, if this one replaced it."""
    old = runs.get(flow.name)
    return kept_state(succession(old.flow, flow, operators)) if old else NOTHING_REPLACED
