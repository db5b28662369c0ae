"""Flows of the whole fleet: deployed over several boards, moved between them, removed. Without a master.

The agent that is asked hands the request to the flow's coordinator (`agent.placement.rendezvous`). The coordinator
speaks to every gateway through the agent of its board; the gateways obey the greatest fencing number that they have
seen, so of two that take themselves for the coordinator only one gets anything done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from agent.fleet.fences import next_fence
from agent.fleet.local_gateway import LocalGateway
from agent.fleet.movable import with_keys
from agent.fleet.status import section_untrusted
from agent.membership.members import State
from agent.membership.roster import Roster
from agent.migration.plan_change import (
    Change,
    UnfinishedError,
    abort,
    change_plan,
    commit,
    decision,
    participants,
    staying,
)  # fmt: skip
from agent.placement.rendezvous import coordinator
from agent.placement.rules import Rules, newest
from edgert.core.errors import EdgertError, show

log = logging.getLogger(__name__)

Handler = Callable[[Mapping[str, Any]], Awaitable[Any]]
Request = Callable[[str, str, Mapping[str, Any], float], Awaitable[Any]]
"""(gateway, verb, arguments, time-out in seconds) -> the answer of that board's agent."""

VERBS: Final = frozenset({
    "status", "figures", "part.check", "part.status", "part.deploy", "part.remove", "part.stop", "part.export",
    "part.prepare", "part.commit", "part.abort", "part.rules", "part.fence", "part.copy", "part.ahead",
})  # fmt: skip
"""Verbs of a gateway that other boards may use, through its agent."""
LOOK_S: Final = 2.0
ALL_S: Final = 15.0
"""Time between two looks at all boards of an agent that coordinates no flow it has heard of. In a fleet of 100, each
asking all others every `LOOK_S`, an agent would answer 50 requests per second that are about nothing."""
MEND_S: Final = 10.0
"""A change of plan that no coordinator goes on with is ended after so long by the flow's coordinator of then."""
ASK_S: Final = 75.0
"""Longest wait for a gateway: a flow has a minute to come to a batch boundary."""
DRAIN_S: Final = 30.0


class FleetFlows:
    """The agent's part that places flows. `run` keeps the gateway's peers and ends changes that were left."""

    def __init__(self, name: str, roster: Roster, gateway: LocalGateway, request: Request) -> None:
        self.name, self._roster, self._gateway, self._request = name, roster, gateway, request
        self.control: dict[str, Handler] = {"fleet.flows": self._flows, "fleet.figures": self._figures}
        self._do: dict[str, Handler] = {}
        for verb, do in (("move", self._move), ("remove", self._remove)):
            self.add(verb, do)
        self._busy: dict[str, asyncio.Lock] = {}
        """By flow: held while this agent changes it."""
        self._left: dict[str, int] = {}
        """Flows whose change of plan no coordinator goes on with, and for how many looks."""
        self._heard: set[str] = set()
        """Flows that members tell of, or had when all boards were asked last."""
        self._told: dict[str, tuple[int, int]] = {}
        """Member -> version of its flows that `_heard` has."""
        self._all_at = float("-inf")

    def add(self, verb: str, do: Handler) -> None:
        """A verb `fleet.<verb>` that the coordinator of the flow carries out, whichever agent is asked."""
        self._do[verb] = do
        self.control[f"fleet.{verb}"] = self._by_coordinator(verb)

    # -- between agents

    async def serve_gateway(self, sender: str, args: Mapping[str, Any]) -> Any:
        """Another agent asks this board's gateway."""
        verb, arguments = args.get("verb"), args.get("args")
        if verb not in VERBS or not isinstance(arguments, Mapping):
            raise EdgertError(f"expected one of {', '.join(sorted(VERBS))} and its arguments, got {show(verb)}")
        return await self._gateway.client.call(verb, arguments, ASK_S)

    async def serve_coordinator(self, sender: str, args: Mapping[str, Any]) -> Any:
        """Another agent takes this one for the coordinator of a flow."""
        verb, arguments = args.get("verb"), args.get("args")
        if verb not in self._do or not isinstance(arguments, Mapping):
            raise EdgertError(f"expected one of {', '.join(self._do)} and its arguments, got {show(verb)}")
        return await self._do[verb](arguments)

    async def ask(self, gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        """The answer of a gateway of the fleet. Raises `EdgertError`."""
        if gateway == self.name:
            return await self._gateway.client.call(verb, args, ASK_S)
        return await self._request(gateway, "fleet.gateway", {"verb": verb, "args": args}, ASK_S)

    def _by_coordinator(self, verb: str) -> Handler:
        async def handler(args: Mapping[str, Any]) -> Any:
            args = {**args, "asked": self.name}
            chosen = coordinator(_flow_of(args), self._alive())
            if chosen == self.name:
                return await self._do[verb](args)
            return await self._request(chosen, "fleet.coordinate", {"verb": verb, "args": args}, 2 * ASK_S)

        return handler

    def coordinates(self, flow: str) -> bool:
        """Is this agent the flow's coordinator?"""
        return coordinator(flow, self._alive()) == self.name

    def concerned(self) -> bool:
        """Does this agent coordinate a flow that it has heard of?"""
        for member in self._roster:
            section = member.sections.get("flows")
            if section is not None and self._told.get(member.name) != (section.epoch, section.version):
                self._told[member.name] = section.epoch, section.version
                flows = section_untrusted(member, "flows").get("flows")
                self._heard.update(map(str, flows) if isinstance(flows, dict) else ())
        alive = self._alive()
        return any(coordinator(flow, alive) == self.name for flow in self._heard)

    def _alive(self) -> list[str]:
        return sorted(member.name for member in self._roster if member.state is State.ALIVE)

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

    async def parts(self, flow: str = "") -> dict[str, dict[str, Any]]:
        """Gateway -> what it says of its parts of flows (of one flow, where `flow` is given); of all that answer."""
        found = await self.ask_all(self._alive(), "part.status")
        self._heard.update(*found.values())
        return {name: parts[flow] for name, parts in found.items() if flow in parts} if flow else found

    # -- what can be asked for

    async def _move(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name, "moves": {operator: gateway}}`."""
        flow, moves = _flow_of(args), args.get("moves")
        if not isinstance(moves, Mapping) or not moves:
            raise EdgertError(f"expected moves: {{operator: gateway}}, got {show(moves)}")
        async with self.lock(flow):
            parts = await self.running(flow)
            before = placed(parts)
            for operator in moves:
                if operator not in before:
                    raise EdgertError(
                        f"expected an operator of flow {flow}, one of {listed(before)}, got {show(operator)}"
                    )
            operators = await self.check(next(iter(parts.values()))["document"])
            rules = newest(parts.values())
            after = with_keys({**before, **moves}, moves, operators, rules)
            rules = rules.pinned(moves)  # first: else another placement could undo the move
            return await self.change(flow, await self.write_rules(flow, parts, rules), after)

    async def _remove(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name}`. Its operators come together on the board of its source first, if that is one: so what they
        hold is worked off in order."""
        flow = _flow_of(args)
        async with self.lock(flow):
            parts = await self.running(flow)
            before = placed(parts)
            document = next(iter(parts.values()))["document"]
            operators = await self.check(document)
            sources = {before[name] for name, operator in operators.items() if operator["source"]}
            if len(sources) == 1 and set(before.values()) != sources:
                await self.change(flow, parts, dict.fromkeys(before, *sources))
                parts = await self.running(flow)
            fence = self.next_fence(parts.values())
            for gateway in dict.fromkeys(before[name] for name in operators if before[name] in parts):
                await self.ask(gateway, "part.remove", {"flow": flow, "fence": fence})
                await self._drained(flow, gateway)
            return {"flow": flow, "removed": True, "coordinator": self.name}

    async def _drained(self, flow: str, gateway: str) -> None:
        """Waits until what the gateway had for others is there."""
        ends = asyncio.get_running_loop().time() + DRAIN_S
        while asyncio.get_running_loop().time() < ends:
            links = (await self.ask(gateway, "status", {}))["links"]
            if not any(one["flow"] == flow for one in (links or {"waiting": ()})["waiting"]):
                return
            await asyncio.sleep(0.2)
        log.warning(
            "flow %s: batches of %s still wait for other gateways; they leave when these take them", flow, gateway
        )

    async def _flows(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        """Flow -> coordinator, plan, state and where its operators run, of flows that were deployed for the fleet."""
        found: dict[str, dict[str, Any]] = {}
        alive = self._alive()
        for gateway, parts in (await self.parts()).items():
            for flow, part in parts.items():
                if not part.get("assignment"):
                    continue
                one = found.setdefault(flow, {"coordinator": coordinator(flow, alive), "plan": 0, "boards": {}})
                one["boards"][gateway] = part["state"]
                if part["plan"] >= one["plan"]:
                    one["plan"] = part["plan"]
                    one["assignment"] = {operator: at[0] for operator, at in part["assignment"].items()}
                    one["rules"] = part.get("rules", {})
        return {"flows": found, "alive": alive}

    async def _figures(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        """Gateway -> its raw figures, of all that answer."""
        return {"boards": await self.ask_all(self._alive(), "figures")}

    # -- changes of plan

    async def change(
        self, flow: str, parts: Mapping[str, Mapping[str, Any]], after: Mapping[str, str]
    ) -> Mapping[str, Any]:
        before = placed(parts)
        plan = max(part["plan"] for part in parts.values())
        if after == before:
            return {"flow": flow, "plan": plan, "assignment": before, "pause_s": 0.0, "coordinator": self.name}
        known = await self.parts()
        self.check_boards({**before, **after}, known)
        self.check_boards(before, known)
        fence = self.next_fence(part for found in known.values() if (part := found.get(flow)))
        document = next(iter(parts.values()))["document"]
        rules = newest(parts.values()).plain()
        change = Change(document, before, dict(after), plan + 1, fence, rules)
        made = (await change_plan(change, self.ask)).plain()
        log.info("flow %s runs by plan %d; it stood still for %.0f ms", flow, change.plan, 1e3 * made["pause_s"])
        return {
            "flow": flow, "plan": change.plan, "assignment": dict(after), "coordinator": self.name, **made,
        }  # fmt: skip

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
        parts = {name: part for name, part in (await self.parts(flow)).items() if part.get("assignment")}
        if not parts:
            raise EdgertError(f"expected a flow of the fleet, got {show(flow)}")
        boards = set().union(*map(participants, parts.values()))
        if lacking := sorted(boards - parts.keys()):
            raise EdgertError(f"flow {flow} has a part on {', '.join(lacking)}, which does not answer")
        if any(part["state"] != "running" for part in parts.values()) or len({p["plan"] for p in parts.values()}) > 1:
            raise EdgertError(f"the plan of flow {flow} is being changed; try again")
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

    def lock(self, flow: str) -> asyncio.Lock:
        self._heard.add(flow)
        return self._busy.setdefault(flow, asyncio.Lock())

    # -- what runs beside

    async def run(self) -> None:
        """Tells the gateway where the others listen, and ends changes of plan that were left. Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._tell_peers()
                await self._mend()
            except EdgertError as error:
                log.debug("not now: %s", error)
            except Exception:
                log.exception("flows of the fleet could not be looked after")

    async def _tell_peers(self) -> None:
        """Each time: the gateway may have started anew."""
        peers: dict[str, list[Any]] = {}
        for member in self._roster:
            link = _address(section_untrusted(member, "board").get("link"))
            if member.state is State.ALIVE and member.name != self.name and link is not None:
                peers[member.name] = link
        if self._gateway.connected and self._gateway.link_port():
            await self._gateway.client.call("peers", {"peers": peers})

    async def _mend(self) -> None:
        """A change of plan is left when its coordinator died, or could not reach a gateway. The coordinator of now ends
        it, when all gateways that take part answer."""
        now = asyncio.get_running_loop().time()
        if now - self._all_at >= ALL_S:  # no member tells of a flow that is only prepared
            self._all_at, self._heard, self._told = now, set(), {}
        elif not self.concerned():
            return
        alive = self._alive()
        known = await self.parts()
        stands = {flow for parts in known.values() for flow, part in parts.items() if part["state"] != "running"}
        mine = {flow for flow in stands if coordinator(flow, alive) == self.name and not self.lock(flow).locked()}
        self._left = {flow: self._left.get(flow, 0) + 1 for flow in mine}
        for flow in [flow for flow, looks in self._left.items() if looks * LOOK_S >= MEND_S]:
            async with self.lock(flow):
                await self._end_change(flow)
            self._left.pop(flow, None)

    async def _end_change(self, flow: str) -> None:
        """All gateways that take part have to answer, twice: first they are told of this coordinator's fencing number,
        so that the one before can do nothing any more, then what they say counts."""
        parts = await self.parts(flow)
        boards = set().union(*map(participants, parts.values()))
        fence = self.next_fence(parts.values())
        try:
            told = {"flow": flow, "fence": fence}
            await asyncio.gather(*(self.ask(board, "part.rules", told) for board in boards))
            known = {board: await self.ask(board, "part.status", {}) for board in sorted(boards)}
        except EdgertError as error:
            log.warning("flow %s stands still: its plan is being changed, and not all gateways answer: %s", flow, error)
            return
        parts = {board: found.get(flow, {}) for board, found in known.items()}
        if set().union(*map(participants, parts.values())) - boards:
            return  # another change has begun; the next look ends it
        verdict, plan = decision(parts)
        log.warning("flow %s: a change to plan %d that was left is ended: %s", flow, plan, verdict)
        if verdict == "commit":
            try:
                await commit(flow, boards, staying(parts, plan), plan, fence, self.ask)
            except UnfinishedError as error:
                log.warning("%s", error)
        elif verdict == "abort":
            await abort(flow, boards, plan, fence, self.ask)


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


def listed(names: Iterable[str]) -> str:
    """Names for a message."""
    return ", ".join(sorted(names)) or "none"


def _address(link: Any) -> list[Any] | None:
    """[host, port] of a member's links; None where it has none."""
    fits = isinstance(link, list) and len(link) == 2 and isinstance(link[0], str) and type(link[1]) is int
    return link if fits and link[1] > 0 else None
