"""Flows of the whole fleet: deployed over several boards, moved between them, removed. Without a master.

The agent that is asked hands the request to the flow's coordinator (`agent.placement.rendezvous`). The coordinator
takes a lease (`agent.lease`) and speaks to every gateway through the agent of its board; the gateways obey the greatest
fencing number that they have seen, so of two that take themselves for the coordinator only one gets anything done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from agent.fleet.history import MoveHistory, Why
from agent.fleet.local_gateway import LocalGateway
from agent.fleet.movable import with_keys
from agent.fleet.requests import GATEWAY
from agent.fleet.status import check_links, flows_untrusted, overview, section_untrusted
from agent.lease.fences import next_fence
from agent.lease.leases import AskBoard, Lease, Leases
from agent.membership.members import State
from agent.membership.roster import Roster
from agent.migration.plan_change import Change, UnfinishedError, change_plan, participants
from agent.network.transport import UnansweredError
from agent.placement.rendezvous import coordinator
from agent.placement.rules import Rules, newest
from edgert.control.server import Handler
from edgert.core.errors import EdgertError, show
from edgert.core.ids import short
from edgert.flow.plan import uncopied

log = logging.getLogger(__name__)


VERBS: Final = frozenset({
    "status", "figures", "part.figures", "part.check", "part.status", "part.deploy", "part.remove", "part.stop",
    "part.export", "part.prepare", "part.commit", "part.abort", "part.rules", "part.fence", "part.copy", "part.ahead",
})  # fmt: skip
"""Verbs of a gateway that other boards may use, through its agent."""
ASK_S: Final = 75.0
"""Longest wait for a gateway: a flow has a minute to come to a batch boundary."""
STATUS_S: Final = 10.0
"""Longest wait for a gateway that tells of itself. A look at all boards must not wait for one that just died."""
TAKING: Final = frozenset({"part.deploy", "part.ahead", "part.prepare"})
"""Verbs by which a board gets a part of a flow."""
VOTER: Final = "voter"
"""The section in which a board tells of its vote (`agent.fleet.presence`)."""
AWAY_S: Final = 1.0
"""Longest wait for a gateway that is away, as its agent says. It may be back; one that hangs is not waited for."""
STATUS_VERBS: Final = frozenset({"status", "figures", "part.figures", "part.status"})
AGAIN: Final = "try again in a moment"
JOINS: Final = f"(there, but not in this fleet yet): {AGAIN}; if it stays so, stop the agent there"


class FleetFlows:
    """The agent's part that places flows."""

    def __init__(
        self, name: str, roster: Roster, gateway: LocalGateway, request: AskBoard, leases: Leases, history: MoveHistory
    ) -> None:
        self.name, self._roster, self._gateway, self._request = name, roster, gateway, request
        self.leases, self.history = leases, history
        self.control: dict[str, Handler] = {"fleet.flows": self._flows, "fleet.figures": self._figures}
        self._do: dict[str, Handler] = {}
        self.add("move", self._move)
        self.leaves = False
        """True if this board leaves the fleet: it takes no part of a flow any more."""
        self.taking = 0
        """Count of requests by which this board gets a part now."""
        self._busy: dict[str, asyncio.Lock] = {}
        """Flow → lock, held while this agent changes the flow."""
        self._held: dict[str, Lease] = {}
        """Flow → lease, while `changing`."""
        self._heard: set[str] = set()
        """Flows that members tell of, or had when all boards were asked last."""
        self._told: dict[str, tuple[int, int]] = {}
        """Member -> version of its flows that `_heard` has."""
        self._has: dict[str, frozenset[str]] = {}
        """Member -> flows that it tells of, or had when it was asked last."""

    def add(self, verb: str, do: Handler) -> None:
        """A verb `fleet.<verb>` that the coordinator of the flow carries out, whichever agent is asked."""
        self._do[verb] = do
        self.control[f"fleet.{verb}"] = self._by_coordinator(verb)

    # -- between agents

    async def serve_gateway(self, sender: str, args: Mapping[str, Any]) -> Any:
        """Asks this board's gateway for another agent."""
        verb, arguments = args.get("verb"), args.get("args")
        if verb not in VERBS or not isinstance(arguments, Mapping):
            raise EdgertError(f"expected one of {', '.join(sorted(VERBS))} and its arguments, got {show(verb)}")
        return await self._ask_own(verb, arguments, ASK_S)

    async def serve_coordinator(self, sender: str, args: Mapping[str, Any]) -> Any:
        """Does what another agent asks, which takes this one for the coordinator of a flow."""
        verb, arguments = args.get("verb"), args.get("args")
        if verb not in self._do or not isinstance(arguments, Mapping):
            raise EdgertError(f"expected one of {', '.join(self._do)} and its arguments, got {show(verb)}")
        return await self._do[verb](arguments)

    async def ask(self, gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        """The answer of a gateway of the fleet. Raises `EdgertError`."""
        wait_s = ASK_S
        if verb in STATUS_VERBS:
            wait_s = AWAY_S if gateway in self._away() else STATUS_S
        if gateway == self.name:
            return await self._ask_own(verb, args, wait_s)
        return await self._request(gateway, GATEWAY, {"verb": verb, "args": args}, wait_s)

    async def _ask_own(self, verb: str, args: Mapping[str, Any], wait_s: float) -> Any:
        takes = verb in TAKING
        if takes and self.leaves:
            raise EdgertError(f"{self.name} leaves the fleet")
        self.taking += takes
        try:
            return await self._gateway.client.call(verb, args, wait_s)
        finally:
            self.taking -= takes

    def _by_coordinator(self, verb: str) -> Handler:
        async def handler(args: Mapping[str, Any]) -> Any:
            args = {**args, "asked": self.name}
            chosen = self.coordinator_of(_flow_of(args))
            if chosen == self.name:
                return await self._do[verb](args)
            try:
                return await self._request(chosen, "fleet.coordinate", {"verb": verb, "args": args}, 2 * ASK_S)
            except UnansweredError as error:
                again = "The request may still be carried out; another board may reach the coordinator: ask there"
                raise UnansweredError(f"{error}. {again}") from error

        return handler

    def coordinates(self, flow: str) -> bool:
        """True if this agent is the flow's coordinator."""
        return self.coordinator_of(flow) == self.name

    def coordinator_of(self, flow: str) -> str:
        """The voter that coordinates a flow."""
        return coordinator(flow, self.able())

    def able(self) -> list[str]:
        """The living voters that can coordinate flows: of a gateway that is away nothing could be asked there, and a
        board that has told that it reaches no majority gets no lease. One that reaches none itself leaves none out."""
        cut_off = {m.name for m in self._roster if section_untrusted(m, VOTER).get("majority") is False}
        away = self._away()
        found = [name for name in self.alive() if name not in away] or self.alive()
        return [name for name in found if name not in cut_off or self.name in cut_off] or found

    def _away(self) -> set[str]:
        """The boards whose agents have told that their gateway is away. It may be there again for a moment already."""
        return {m.name for m in self._roster if section_untrusted(m, "flows").get("gateway") is False}

    def concerned(self) -> bool:
        """True if this agent coordinates a flow that it has heard of."""
        for member in self._roster:
            section = member.sections.get("flows")
            if section is not None and self._told.get(member.name) != (section.epoch, section.version):
                self._told[member.name] = section.epoch, section.version
                told = frozenset(flows_untrusted(member))
                self._has[member.name] = self._has.get(member.name, frozenset()) | told  # its answer may be newer
                self._heard |= told
        able = self.able()
        return any(coordinator(flow, able) == self.name for flow in self._heard)

    def tellers(self) -> list[str]:
        """The boards that have parts of flows that this agent coordinates, as far as they have told. `concerned` takes
        in what they tell."""
        able = self.able()
        mine = {flow for flow in self._heard if coordinator(flow, able) == self.name}
        return [board for board in self.alive() if not mine.isdisjoint(self._has.get(board, ()))]

    def alive(self) -> list[str]:
        """The boards that are alive and vote, by name. Others may belong to a fleet of their own still."""
        members = self.leases.members
        found = (member.name for member in self._roster if member.state is State.ALIVE and member.name in members)
        return sorted(found) or [self.name]

    async def ask_all(
        self, gateways: Iterable[str], verb: str, args: Mapping[str, Any] | None = None
    ) -> dict[str, dict[str, Any]]:
        """The answers of those that answer."""
        names = list(gateways)
        answers = await asyncio.gather(*(self.ask(name, verb, args or {}) for name in names), return_exceptions=True)
        return {name: answer for name, answer in zip(names, answers, strict=True) if isinstance(answer, dict)}

    async def check(self, document: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        """The operator copies of a document in topological order."""
        found: Mapping[str, Mapping[str, Any]] = (await self.ask(self.name, "part.check", {"document": document}))[
            "operators"
        ]
        return found

    async def parts(self, flow: str = "", of: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """Gateway -> what it says of its parts of flows (of one flow, where `flow` is given); of all that answer. `of`:
        of these gateways only."""
        found = await self.ask_all(self.alive() if of is None else of, "part.status")
        self._heard.update(*found.values())
        self._has.update({name: frozenset(parts) for name, parts in found.items()})
        return {name: parts[flow] for name, parts in found.items() if flow in parts} if flow else found

    # -- what can be asked for

    async def _move(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name, "moves": {operator: gateway}}`; of an operator all copies, or a copy."""
        flow, moves = _flow_of(args), args.get("moves")
        if not isinstance(moves, Mapping) or not moves or not all(isinstance(to, str) for to in moves.values()):
            raise EdgertError(f"expected moves: {{operator: gateway}}, got {show(moves)}")
        async with self.changing(flow):
            parts = await self.running(flow)
            before = placed(parts)
            copies = {name: [copy for copy in before if name in (copy, uncopied(copy)[0])] for name in moves}
            for operator, of in copies.items():
                if not of:
                    raise EdgertError(
                        f"expected an operator of flow {flow}, one of {listed(before)}, got {show(operator)}"
                    )
            moves = {copy: to for operator, to in moves.items() for copy in copies[operator]}
            operators = await self.check(next(iter(parts.values()))["document"])
            rules = newest(parts.values())
            after = with_keys({**before, **moves}, moves, operators, rules)
            along = [name for name, at in after.items() if at != before[name] and name not in moves]
            and_more = f", and with it {listed(along)}" if along else ""
            self.check_boards({name + and_more: to for name, to in moves.items()}, await self.parts())
            check_links(self._roster, after)
            why = Why("person", f"asked for at {args.get('asked')}")
            return await self.change_by_rules(flow, parts, rules.pinned(moves), after, why)

    async def _flows(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Flow -> coordinator, plan, state and where its operators run, of flows that were deployed for the fleet. With
        `conditions`: also, by board, what its status says of a part that is not well."""
        alive = self.alive()
        statuses = await self.ask_all(alive, "status") if args.get("conditions") else {}
        flows = overview(await self.parts(), statuses, self.coordinator_of, self.leases.members | self.joining())
        return {"flows": flows, "alive": alive}

    async def _figures(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        """Gateway -> its raw figures, of all that answer."""
        return {"boards": await self.ask_all(self.alive(), "figures")}

    # -- changes of plan

    async def change(
        self, flow: str, parts: Mapping[str, Mapping[str, Any]], after: Mapping[str, str], why: Why
    ) -> Mapping[str, Any]:
        before = placed(parts)
        if after == before:
            plan = max(part["plan"] for part in parts.values())
            return {"flow": flow, "plan": plan, "assignment": before, "pause_s": 0.0, "coordinator": self.name}
        known = await self.parts()
        self.check_boards({**before, **after}, known)
        self.check_boards(before, known)
        fence = self.next_fence(part for found in known.values() if (part := found.get(flow)))
        document = next(iter(parts.values()))["document"]
        rules = newest(parts.values()).plain()
        change = Change(document, before, dict(after), fence, rules)
        lease = self._held[flow]
        others = set(lease.record.boards) - set(before.values())
        await lease.write("runs", {*before.values(), *after.values(), *others})
        try:
            made = (await change_plan(change, self.ask)).plain()
        except UnfinishedError:
            self.history.unfinished[flow] = change.plan, before, why
            raise
        await lease.note("runs", {*after.values(), *others})
        log.info("flow %s runs by plan %d; it stood still for %.0f ms", flow, short(fence), 1e3 * made["pause_s"])
        told = {"flow": flow, "plan": change.plan, "assignment": dict(after), "coordinator": self.name, **made}
        self.history.note(before, why, told)
        return told

    async def change_by_rules(
        self, flow: str, parts: Mapping[str, Mapping[str, Any]], rules: Rules, after: Mapping[str, str], why: Why
    ) -> Mapping[str, Any]:
        """Makes a change by new rules. They are written first: else another placement could undo the change. Where it
        is refused or undone, the old ones are written back."""
        try:
            return await self.change(flow, await self.write_rules(flow, parts, rules), after, why)
        except EdgertError as error:
            if not isinstance(error, UnfinishedError):
                of_rules = self.next_fence(parts.values())
                of_change = self.next_fence([{"fence": of_rules}])
                fence = self.next_fence([{"fence": of_change}])  # a later coordinator has a greater one: its rules stay
                told = {"flow": flow, "rules": newest(parts.values()).plain(), "fence": fence}
                await self.ask_all(parts, "part.rules", told)
            raise

    async def write_rules(
        self, flow: str, parts: Mapping[str, Mapping[str, Any]], rules: Rules
    ) -> dict[str, dict[str, Any]]:
        """Has every gateway with a part of the flow keep the rules of its placement; returns the parts with them."""
        rules.check(placed(parts))
        fence = self.next_fence(parts.values())
        told = {"flow": flow, "rules": rules.plain(), "fence": fence}
        await asyncio.gather(*(self.ask(gateway, "part.rules", told) for gateway in parts))
        new = {"rules": rules.plain(), "rules_fence": fence, "fence": fence}
        return {gateway: {**part, **new} for gateway, part in parts.items()}

    async def running(self, flow: str) -> dict[str, dict[str, Any]]:
        """The parts of a flow that runs, all of it by one plan."""
        joining = self.joining()  # a board that joins meanwhile is not asked
        known = await self.parts()
        parts = {name: part for name, told in known.items() if (part := told.get(flow, {})).get("assignment")}
        self.check_known(flow, parts)
        lacking = set().union(*map(participants, parts.values())) - parts.keys()
        if lost := {board for board in placed(parts).values() if board in known and flow not in known[board]}:
            raise EdgertError(f"flow {flow} has no part on {listed(lost)}, as with a new card: deploy the flow again")
        if silent := lacking - known.keys():
            self.check_joined(flow, silent, joining)
            if away := {member.name for member in self._roster if member.present} & silent:
                raise EdgertError(f"flow {flow} has a part on {listed(away)}, whose gateway does not answer: {AGAIN}")
            raise EdgertError(silence(self.leases, flow, silent))
        plans, states = {part["plan"] for part in parts.values()}, {part["state"] for part in parts.values()}
        if lacking or len(plans) > 1 or states != {"running"}:
            raise EdgertError(f"the plan of flow {flow} is being changed, or a part of it stands still: {AGAIN}")
        return parts

    def next_fence(self, parts: Iterable[Mapping[str, Any]]) -> int:
        """A fencing number of this agent's for a flow with these parts."""
        return next_fence((int(part.get("fence", 0)) for part in parts), self.name)

    def check_boards(self, on: Mapping[str, str], known: Iterable[str]) -> None:
        """Raises `EdgertError` where an operator would run on a gateway that does not answer."""
        for operator, gateway in on.items():
            if gateway not in known:
                raise EdgertError(
                    f"{operator}: expected a gateway that answers, one of {listed(known)}, got {show(gateway)}"
                )

    def check_known(self, flow: str, parts: Collection[str]) -> None:
        """Raises `EdgertError` where no board that votes has a part of the flow."""
        if not parts:
            told = f"expected a flow of the fleet, got {show(flow)}"
            if joining := self.joining():
                told += f". It may be on {listed(joining)} {JOINS}"
            raise EdgertError(told)

    def check_joined(self, flow: str, boards: Iterable[str], joined: Collection[str] = ()) -> None:
        """Raises `EdgertError` where one of the boards that have parts of a flow only joins this fleet. `joined`: those
        that did when all were asked, and were left out."""
        if joining := {*self.joining(), *joined}.intersection(boards):
            raise EdgertError(f"flow {flow} has a part on {listed(joining)} {JOINS}")

    def check_new(self, flow: str) -> None:
        """Raises `EdgertError` where a board that only joins this fleet tells that it has a part of the flow."""
        self.check_joined(flow, (member.name for member in self._roster if flow in flows_untrusted(member)))

    def joining(self) -> set[str]:
        """The boards that are there and do not vote in this fleet yet."""
        return {member.name for member in self._roster if member.present} - self.leases.members

    def lock(self, flow: str) -> asyncio.Lock:
        self._heard.add(flow)
        return self._busy.setdefault(flow, asyncio.Lock())

    @asynccontextmanager
    async def changing(self, flow: str) -> AsyncIterator[Lease]:
        """Holds the flow's lock and its lease: to be held for all that changes it. Raises `LeaseError`."""
        async with self.lock(flow), self.leases.held(flow) as lease:
            self._held[flow] = lease
            try:
                yield lease
            finally:
                del self._held[flow]

    def forget_heard(self) -> None:
        """Drops the names of flows that members told: they are heard anew, and by the next look at all boards."""
        self._heard, self._told, self._has = set(), {}, {}


def placed(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Operator copy -> gateway, by the newest plan of a flow's parts."""
    newest = max(parts.values(), key=lambda part: part["plan"])
    return {operator: at[0] for operator, at in newest["assignment"].items()}


def _flow_of(args: Mapping[str, Any]) -> str:
    document = args.get("document")
    flow = document.get("name") if isinstance(document, Mapping) else args.get("flow")
    if not isinstance(flow, str) or not flow:
        raise EdgertError(f"expected the name of a flow, got {show(flow)}")
    return flow


def silence(leases: Leases, flow: str, silent: Collection[str]) -> str:
    """Says what to do for a flow with parts on boards that do not answer. That they may be gone for good is said once
    people can forget them, or have."""
    counted, told = leases.members.intersection(silent), f"flow {flow} has a part on {listed(silent)}"
    told += ", which does not answer" + (": start it, or mend the network" if counted else "")
    if counted - set(gone := leases.long_gone(counted)):
        return told
    forget = "".join(f"edgert fleet forget {board}, then " for board in gone)
    return f"{told}. Where it is gone for good: {forget}edgert fleet remove {flow}"


def listed(names: Iterable[str]) -> str:
    """Names in order, as a message lists them."""
    return ", ".join(sorted(names)) or "none"
