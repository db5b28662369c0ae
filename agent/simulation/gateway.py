"""A gateway of a simulated board, as agents see it: the verbs of its control socket that they use.

It obeys the rules of `gateway.flows.parts` (which an agent cannot import): a coordinator with a smaller fencing number
is refused, and parts go from state to state by the one table of `edgert.flow.part_states`. What those rules need is on
the `Disk`, and survives the gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent.simulation.rows import Counted
from agent.simulation.shape import PlanShape, PlanShapes, SimulatedInstance
from edgert.core.clock import Clock
from edgert.core.errors import EdgertError, show
from edgert.core.ids import short
from edgert.flow.part_states import PartEvent, PartState, after, event_of, state_of

PATIENCE_S: Final = 60.0
"""The time that a stopped part waits, as in `gateway.flows.stopped`."""
LINK_PORT: Final = 8883
STOP_S: Final = 0.04
"""Until a part stands still at a committed checkpoint; measured with little state, as are the others."""
STEP_S: Final = 0.02
"""Duration of every other step that writes to the database."""
NOTHING: Final[Mapping[str, Any]] = {"states": [], "queue": b"", "pending": b""}
"""An export: state is not simulated."""


@dataclass(frozen=True, slots=True)
class BoardPart:
    """A part of a flow. `assignment`: operator copy -> gateway, of the whole flow."""

    document: Mapping[str, Any]
    assignment: Mapping[str, str]
    plan: int
    version: int = 1


@dataclass(slots=True)
class Disk:
    """The stored records of a gateway, by flow."""

    parts: dict[str, BoardPart] = field(default_factory=dict)
    prepared: dict[str, BoardPart] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    rules: dict[str, tuple[int, Mapping[str, Any]]] = field(default_factory=dict)
    guests_wait: bool = False
    """After a start, for the agent."""
    leases: str = ""
    """The file of the board's agent."""

    def store_leases(self, text: str) -> None:
        self.leases = text


@dataclass(slots=True)
class Run:
    """A part in memory, with its counters since this plan began here."""

    part: BoardPart
    shape: PlanShape
    counted: dict[str, Counted]
    """Counters by instance on this gateway."""
    stopped: bool = False
    began: float = 0.0
    """When it was stopped."""
    patience: asyncio.TimerHandle | None = None
    suspended: bool = False
    """Stopped by the agent of its board, until that one says otherwise."""

    def here(self, gateway: str) -> list[SimulatedInstance]:
        return [instance for instance in self.shape.instances if instance.gateway == gateway]


OF_COORDINATORS: Final = frozenset(
    f"part.{verb}"
    for verb in ("deploy", "remove", "stop", "copy", "ahead", "prepare", "commit", "abort", "rules", "fence")
)
"""Verbs with a fencing number."""


@dataclass(slots=True)
class ToldByAgent:
    """Orders of the board's agent, which end with this life of the gateway."""

    peers: dict[str, list[Any]] = field(default_factory=dict)
    """Gateway -> [host, port] of its links."""
    guests_end: asyncio.TimerHandle | None = None
    """When guests stop."""


class VirtualGateway:
    """One life of a gateway: from its start until the board dies. `changed` is called whenever what runs changes."""

    def __init__(self, name: str, disk: Disk, shapes: PlanShapes, clock: Clock, changed: Callable[[], None]) -> None:
        self.name, self.path = name, f"the control socket of {name}"
        self.disk, self._shapes, self._clock, self._changed = disk, shapes, clock, changed
        self._busy = asyncio.Lock()
        self.told = ToldByAgent()
        self._turn = asyncio.Lock()
        """Held while a coordinator's request is carried out: a later one is obeyed after it."""
        self.counted_at = clock.monotonic()
        """When counters were counted last."""
        self.runs: dict[str, Run] = {flow: self._run(part) for flow, part in disk.parts.items()}
        for run in self.runs.values():
            run.stopped = run.suspended = disk.guests_wait and self._is_guest(run)
        for flow in disk.prepared:
            if flow in self.runs:
                self.runs[flow].suspended = False
                self.runs[flow].stopped, self.runs[flow].began = True, clock.monotonic()
        self._verbs: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "status": self._status, "figures": self._figures, "peers": self._peers, "part.check": self._check,
            "part.status": self._parts, "part.deploy": self._deploy, "part.remove": self._remove,
            "part.stop": self._stop, "part.export": self._export, "part.prepare": self._prepare,
            "part.commit": self._commit, "part.abort": self._abort, "part.rules": self._put_rules,
            "part.fence": self._obey, "part.suspend": self._suspend, "part.resume": self._resume,
            "part.guests": self._let_guests_run, "part.copy": self._copy, "part.ahead": self._ahead,
        }  # fmt: skip

    async def call(self, verb: str, args: Mapping[str, Any] | None = None, timeout_s: float | None = None) -> Any:
        """Works as `edgert.control.client.ControlClient`. Raises `EdgertError`."""
        if verb not in self._verbs:
            raise EdgertError(f"expected a verb of a gateway, got {show(verb)}")
        if verb not in OF_COORDINATORS:
            return await self._verbs[verb](args or {})
        async with self._turn:
            return await self._verbs[verb](args or {})

    async def close(self) -> None:
        """Does nothing: there is nothing to close."""

    def end(self) -> None:
        """The board dies."""
        for run in self.runs.values():
            _wait_no_more(run)
        if self.told.guests_end is not None:
            self.told.guests_end.cancel()

    def _run(self, part: BoardPart) -> Run:
        shape = self._shapes.of(part.assignment)
        return Run(part, shape, {i.name: Counted() for i in shape.instances if i.gateway == self.name})

    # -- what it says

    async def _status(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"links": {"port": LINK_PORT, "waiting": []}}

    async def _peers(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        before, told = self.told.peers, self.told
        told.peers = {name: at for name, at in before.items() if name in args["keep"]} | args["peers"]
        return {"peers": sorted(told.peers)}

    async def _check(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        if args["document"] != self._shapes.flow.document:
            raise EdgertError(f"expected the document of {self._shapes.flow.name}: one flow is simulated")
        return {"operators": self._shapes.operators}

    async def _parts(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        found: dict[str, dict[str, Any]] = {}
        for flow, run in self.runs.items():
            fence, rules = self.disk.rules.get(flow, (0, {}))
            found[flow] = {
                "version": run.part.version, "plan": run.part.plan, "document": run.part.document,
                "assignment": _plain(run.part.assignment), "state": self._state(flow).told,
                "fence": self._fence_of(flow), "rules": dict(rules), "rules_fence": fence,
                "suspended": run.stopped and run.suspended, "guest": self._is_guest(run),
            }  # fmt: skip
        for flow, part in self.disk.prepared.items():
            told = found.setdefault(flow, {"state": "prepared", "fence": self._fence_of(flow)})
            told["prepared_plan"], told["prepared_assignment"] = part.plan, _plain(part.assignment)
        return found

    async def _figures(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        now = self.counted_at
        flows = {flow: self._flow_figures(run, now) for flow, run in self.runs.items()}
        return {"gateway": self.name, "wall": self._clock.wall(), "monotonic": now, "flows": flows, "threads": []}

    def _flow_figures(self, run: Run, now: float) -> Mapping[str, Any]:
        instances, edges = {}, []
        for instance in run.here(self.name):
            counted = run.counted[instance.name]
            instances[instance.name] = {
                "slot": -1, "operators": list(instance.operators), "kind": instance.kind, "at": now,
                "rows_in": int(counted.rows_in), "rows_out": int(counted.rows_out), "busy_s": counted.busy_s,
            }  # fmt: skip
            edges += [
                {"from": instance.name, "to": to, "rows": int(rows), "bytes": int(rows * self._shapes.row_bytes)}
                for to, rows in counted.sent.items()
            ]
        return {"version": run.part.version, "plan": run.part.plan, "instances": instances, "edges": edges}

    # -- changes

    def _fence_of(self, flow: str) -> int:
        return self.disk.fences.get(flow, 0)

    def fence(self, flow: str, fence: int) -> None:
        """Obeys coordinators with this fencing number, and greater ones, from now on."""
        known = self._fence_of(flow)
        if fence < known:
            raise EdgertError(f"flow {flow} obeys a coordinator with fencing number {known}, got {fence}")
        self.disk.fences[flow] = fence

    async def _obey(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        flow = args["flow"]
        self.fence(flow, max(args["fence"], self._fence_of(flow)))
        return {"fence": self._fence_of(flow)}

    def _rules(self, flow: str, args: Mapping[str, Any]) -> None:
        rules, fence = args.get("rules"), args.get("fence", 0)
        if rules is not None and fence >= self.disk.rules.get(flow, (0, {}))[0]:
            self.disk.rules[flow] = fence, dict(rules)

    async def _deploy(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        flow = args["document"]["name"]
        self.fence(flow, args["fence"])
        self._step(flow, PartEvent.CHANGE)
        self._rules(flow, args)
        await asyncio.sleep(STEP_S)
        version = self.disk.parts[flow].version + 1 if flow in self.disk.parts else 1
        self._put(flow, BoardPart(args["document"], _gateways(args["assignment"]), args["plan"], version))
        return {"flow": flow, "version": version, "plan": args["plan"]}

    async def _remove(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        flow = args["flow"]
        self.fence(flow, args["fence"])
        if self._state(flow) is not PartState.SUSPENDED:  # such a guest ships what it holds, and takes nothing more
            self._step(flow, PartEvent.CHANGE)
        await asyncio.sleep(STEP_S)
        removed = self.runs.pop(flow, None) is not None
        self.disk.parts.pop(flow, None)
        self._changed()
        return {"flow": flow, "removed": removed}

    def _state(self, flow: str) -> PartState:
        run = self.runs.get(flow)
        return state_of(
            part=run is not None, stands=run is not None and run.stopped, suspended=run is not None and run.suspended,
            prepared=flow in self.disk.prepared, committed=False,
        )  # fmt: skip

    def _step(self, flow: str, event: PartEvent, plan: int = 0) -> tuple[PartState, PartState]:
        """Works as that of `gateway.registry.plan_changes`."""
        prepared = self.disk.prepared[flow].plan if flow in self.disk.prepared else None
        runs_by, before = self.runs[flow].part.plan if flow in self.runs else None, self._state(flow)
        return before, after(flow, before, event_of(event, plan, prepared, runs_by), plan, prepared)

    async def _copy(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Operators have no state here."""
        self.fence(args["flow"], args["fence"])
        self._step(args["flow"], PartEvent.CHANGE)
        return {"token": "", "states": []}

    async def _ahead(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        self.fence(args["document"]["name"], args["fence"])
        return {"plan": args["plan"]}

    async def _stop(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        flow = args["flow"]
        self.fence(flow, args["fence"])
        async with self._busy:
            if flow in self.runs and self.runs[flow].part.plan >= args["fence"]:
                raise EdgertError(f"flow {flow} runs by plan {short(args['fence'])} already")
            before, then = self._step(flow, PartEvent.STOP)
            if before is not then:
                await asyncio.sleep(STOP_S)
                run = self.runs[flow]
                run.suspended = False
                run.stopped, run.began = True, self._clock.monotonic()
                loop = asyncio.get_running_loop()
                run.patience = loop.call_later(PATIENCE_S, self._impatient, flow, run)
                self._changed()
            return {"links": {}}

    async def _suspend(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        async with self._busy:
            before, then = self._step(args["flow"], PartEvent.SUSPEND)
            if before is not then:
                await asyncio.sleep(STOP_S)
                run = self.runs[args["flow"]]
                run.stopped = run.suspended = True
                self._changed()
            return {"suspended": then is PartState.SUSPENDED}

    async def _resume(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        async with self._busy:
            before, then = self._step(args["flow"], PartEvent.RESUME)
            if before is not then:
                self._go_on(self.runs[args["flow"]])
            return {}

    async def _let_guests_run(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        self.disk.guests_wait = True
        if self.told.guests_end is not None:
            self.told.guests_end.cancel()
        loop = asyncio.get_running_loop()
        self.told.guests_end = loop.call_later(args["for_s"], lambda: asyncio.ensure_future(self._stop_guests()))
        return {}

    async def _stop_guests(self) -> None:
        """Stops guests, as `gateway.flows.guests` does."""
        for flow, run in list(self.runs.items()):
            if self._is_guest(run) and self._state(flow) is PartState.RUNNING:
                await self._suspend({"flow": flow})

    def _is_guest(self, run: Run) -> bool:
        on = run.part.assignment
        return not any(told["source"] and on[name] == self.name for name, told in self._shapes.operators.items())

    def _impatient(self, flow: str, run: Run) -> None:
        if self.runs.get(flow) is run and self._step(flow, PartEvent.PATIENCE_ENDS)[1] is PartState.RUNNING:
            self._go_on(run)

    async def _export(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        run = self.runs.get(args["flow"])
        if run is None or not run.stopped:
            raise EdgertError(f"expected a flow that stands still here, got {show(args['flow'])}")
        await asyncio.sleep(STEP_S)
        return NOTHING

    async def _prepare(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        flow = args["document"]["name"]
        self.fence(flow, args["fence"])
        self._rules(flow, args)
        async with self._busy:
            self._step(flow, PartEvent.PREPARE, args["plan"])
            await asyncio.sleep(STEP_S)
            version = self.runs[flow].part.version if flow in self.runs else 1
            self.write_prepared(flow, BoardPart(args["document"], _gateways(args["assignment"]), args["plan"], version))
            self._changed()
        return {"plan": args["plan"]}

    def write_prepared(self, flow: str, part: BoardPart) -> None:
        """Makes a prepared plan durable."""
        self.disk.prepared[flow] = part

    async def _commit(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        flow, plan = args["flow"], args["plan"]
        self.fence(flow, args["fence"])
        async with self._busy:
            if self._step(flow, PartEvent.COMMIT, plan)[1] is not PartState.COMMITTED:
                return {"pause_s": 0.0}  # told twice
            await asyncio.sleep(STEP_S)
            run = self.runs.get(flow)
            self._put(flow, self.disk.prepared.pop(flow))
            return {"pause_s": self._clock.monotonic() - run.began if run else 0.0}

    async def _abort(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        flow = args["flow"]
        self.fence(flow, args["fence"])
        async with self._busy:
            before, then = self._step(flow, PartEvent.ABORT, args["plan"])
            if before is not then and before in (PartState.JOINING, PartState.PREPARED):
                await asyncio.sleep(STEP_S)
                del self.disk.prepared[flow]
            if before is not then is PartState.RUNNING:
                self._go_on(self.runs[flow])
            self._changed()
        return {"flow": flow}

    async def _put_rules(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        self.fence(args["flow"], args["fence"])
        self._rules(args["flow"], args)
        return {"flow": args["flow"]}

    def _put(self, flow: str, part: BoardPart) -> None:
        """The part runs; one without an instance here leaves the gateway."""
        if (before := self.runs.pop(flow, None)) is not None:
            _wait_no_more(before)
        run = self._run(part)
        if run.counted:
            self.runs[flow], self.disk.parts[flow] = run, part
        else:
            self.disk.parts.pop(flow, None)
        self._changed()

    def _go_on(self, run: Run) -> None:
        _wait_no_more(run)
        run.stopped = run.suspended = False
        self._changed()


def _wait_no_more(run: Run) -> None:
    if run.patience is not None:
        run.patience.cancel()


def _plain(assignment: Mapping[str, str]) -> dict[str, list[Any]]:
    return {operator: [gateway, -1] for operator, gateway in assignment.items()}


def _gateways(assignment: Mapping[str, Any]) -> dict[str, str]:
    return {operator: at[0] for operator, at in assignment.items()}
