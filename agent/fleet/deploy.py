"""Flows that come to the fleet and leave it: deployed over its boards, replaced by a next version, with rules of their
placement, removed from the source on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any, Final

from agent.fleet.flows import FleetFlows, listed, placed, silence
from agent.fleet.guarded import lasting
from agent.fleet.history import Why
from agent.fleet.status import check_links, labels_untrusted, section_untrusted
from agent.lease.fences import next_fence
from agent.lease.leases import Lease
from agent.membership.members import State
from agent.membership.roster import Roster
from agent.migration.plan_change import Part, participants
from agent.placement.rules import Rules, newest
from edgert.core.errors import EdgertError, show

log = logging.getLogger(__name__)
FENCE_TRIES: Final = 5
JOIN_S: Final = 10.0
"""Longest wait for a board that has just started."""
JOIN_LOOKS: Final = 50
DRAIN_S: Final = 30.0
DEPLOYED: Final = Why("person", "deployed with other rules")
NEXT: Final = Why("version", "the flow's next version")


class FleetDeploy:
    """The agent's part that deploys and removes."""

    def __init__(self, roster: Roster, flows: FleetFlows) -> None:
        self._roster, self._flows = roster, flows
        flows.add("deploy", self._deploy)
        flows.add("compare", self._compare)
        flows.add("rules", self._rules)
        flows.add("remove", self._remove)

    async def _deploy(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"document": ..., "pins": {operator: gateway}, "labels": {operator: [label]}, "heuristic": name}`. A source
        without a pin runs on the board that was asked; any other operator where its first input does, unless that board
        lacks a label. The rules replace those of a flow that runs."""
        document, asked, flows = args.get("document"), str(args.get("asked", "")), self._flows
        if not isinstance(document, dict):
            raise EdgertError(f"expected a document, got {show(document)}")
        flow, rules = str(document.get("name")), Rules.untrusted(args)
        await self._joined({asked, *rules.pins.values()})
        async with flows.changing(flow) as lease:
            operators = await flows.check(document)
            known, fence, free = await flows.parts(), 0, set[str]()
            if not _of(known, flow):
                fence, free = await self._obeyed(flow)
                known = await flows.parts()  # what another coordinator did meanwhile
            on = assignment(operators, rules, asked, *self._boards(known))
            flows.check_boards({**rules.pins, **on}, known)
            check_links(self._roster, on)
            if before := _of(known, flow):
                return await self._deploy_again(lease, document, on, before, rules)
            flows.check_new(flow)
            free = {gateway for gateway in free & known.keys() if flow not in known[gateway]}
            self._check_given_up(flow, set(lease.record.boards) - free)
            await self._deploy_first(lease, document, on, fence, rules)
            return {"flow": flow, "plan": fence, "assignment": on, "coordinator": flows.name}

    async def _compare(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name, "document": ...}`: which state of the running version this document would keep. The board of
        a source says it: the operators come together there before they are replaced."""
        flows, document = self._flows, args.get("document")
        if not isinstance(document, dict):
            raise EdgertError(f"expected a document, got {show(document)}")
        await flows.check(document)
        parts = _of(await flows.parts(), str(args.get("flow")))
        gateway = next(iter(sorted(parts)), flows.name)
        return {"state": (await flows.ask(gateway, "part.check", {"document": document}))["state"]}

    async def _joined(self, boards: Set[str]) -> None:
        """Waits for boards that have just started: they are voters a few seconds later."""
        new = boards - self._flows.leases.members
        here = {member.name for member in self._roster if member.state is State.ALIVE and member.name in new}
        for _ in range(JOIN_LOOKS):
            if here <= self._flows.leases.members:
                return
            await asyncio.sleep(JOIN_S / JOIN_LOOKS)

    async def _deploy_first(
        self, lease: Lease, document: Mapping[str, Any], on: Mapping[str, str], fence: int, rules: Rules
    ) -> None:
        """Deploys a new flow. A majority remembers it first: if this coordinator or a board went silent in the midst,
        another coordinator would else take the flow for new."""
        boards = set(on.values())
        await lease.write("deploying", boards)
        try:
            await self.deploy_parts(document, on, boards, fence, fence, rules)
        except EdgertError as error:
            with lasting("deployment", f"{error}; "):  # else another coordinator may have gone on with it
                await lease.write("removing", boards)
            # a part whose removal is not answered is removed by the next look
            await self._flows.ask_all(boards, "part.remove", {"flow": lease.flow, "fence": fence})
            raise
        await lease.note("runs", boards)

    async def _obeyed(self, flow: str) -> tuple[int, set[str]]:
        """A fencing number that all gateways which answer obey for the flow from now on, and these. The parts are read
        after it: of two coordinators that deploy a flow at the same time one is refused everywhere, or the other one
        finds what it did. Gateways remember numbers of flows that were removed, too."""
        flows, greatest = self._flows, 0
        for _ in range(FENCE_TRIES):
            fence = next_fence([greatest], flows.name)
            told = {"flow": flow, "fence": fence}
            answers = await flows.ask_all(flows.alive(), "part.fence", told)
            greatest = max((int(answer["fence"]) for answer in answers.values()), default=0)
            if greatest <= fence:
                return fence, set(answers)
        raise EdgertError(f"another coordinator deploys flow {flow}; try again")

    def _boards(self, gateways: Iterable[str]) -> tuple[dict[str, frozenset[str]], set[str]]:
        """Labels of the boards that answer, and those of them that are drained."""
        known = set(gateways)
        members = [m for m in self._roster if m.state is State.ALIVE and m.name in known]
        drained = {m.name for m in members if section_untrusted(m, "board").get("drained") is True}
        return {member.name: labels_untrusted(member) for member in members}, drained

    async def _deploy_again(
        self, lease: Lease, document: Mapping[str, Any], on: Mapping[str, str], parts: Mapping[str, Part], rules: Rules
    ) -> Mapping[str, Any]:
        """Deploys a flow again: the same document moves operators by new rules, another one replaces the flow."""
        flow, flows = lease.flow, self._flows
        now, plan = placed(parts), max(part["plan"] for part in parts.values())
        same = all(part["document"] == document for part in parts.values())
        if lacking := set(now.values()) - parts.keys():  # its first coordinator died, or the board has a new card
            if not same:
                raise EdgertError(f"flow {flow} has a part on {listed(lacking)}, which does not answer or has lost it")
            log.warning("flow %s: %s has no part of it yet", flow, listed(lacking))
            flows.check_boards(now, await flows.parts())
            await lease.write("deploying", {*lease.record.boards, *now.values()})
            await self.deploy_parts(document, now, lacking, plan, flows.next_fence(parts.values()), rules)
        parts = await flows.running(flow)
        if lease.record.state != "runs":
            await lease.write("runs", {*lease.record.boards, *now.values()})
        if not same:
            return await self._next_version(flow, document, on, parts, rules)
        return await flows.change_by_rules(flow, parts, rules, on, DEPLOYED)

    async def _next_version(
        self, flow: str, document: Mapping[str, Any], on: Mapping[str, str], parts: Mapping[str, Part], rules: Rules
    ) -> Mapping[str, Any]:
        """The operators come together on the board of their sources; there the next version replaces the flow, as on
        one board: its input goes over without a gap, open windows are shipped. Then the next version is spread. Cut
        short anywhere, the flow runs whole, by one version; asking again goes on."""
        flows = self._flows
        before, old = placed(parts), next(iter(parts.values()))["document"]
        homes = {before[name] for name, told in (await flows.check(old)).items() if told["source"]}
        homes |= {on[name] for name, told in (await flows.check(document)).items() if told["source"]}
        if len(homes) != 1:
            raise EdgertError(
                f"flow {flow} has sources on {listed(homes)}: only a flow whose sources are on one board, before and"
                f" after, is replaced while it runs; remove it first (edgert fleet remove {flow})"
            )
        home = homes.pop()
        if set(before.values()) != {home}:
            await flows.change(flow, parts, dict.fromkeys(before, home), NEXT)
            parts = await flows.running(flow)
        fence, gathered = flows.next_fence(parts.values()), dict.fromkeys(on, home)
        state = await self.deploy_parts(document, gathered, {home}, fence, fence, rules)
        return {**await flows.change(flow, await flows.running(flow), on, NEXT), "state": state}

    async def deploy_parts(
        self, document: Mapping[str, Any], on: Mapping[str, str], to: Iterable[str], plan: int, fence: int, rules: Rules
    ) -> object:
        """Parts of a flow on the gateways `to`. Returns what the last of them says of the state of the version before
        (`edgert.flow.versions.kept_state`)."""
        assigned = {operator: [gateway, -1] for operator, gateway in on.items()}
        part = {"document": document, "assignment": assigned, "plan": plan, "fence": fence, "rules": rules.plain()}
        state: object = None
        for gateway in sorted(to):
            state = (await self._flows.ask(gateway, "part.deploy", part)).get("state")
        return state

    async def _remove(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name}`. Its operators come together on the board of its source first, if that is one: so what they
        hold is worked off in order. What ran on boards that were forgotten is given up, and told as `lost`; as `left`
        what boards have that left the fleet."""
        flow, flows = str(args.get("flow")), self._flows
        async with flows.changing(flow) as lease:
            joined, known = flows.joining(), await flows.parts()
            parts = {name: found[flow] for name, found in known.items() if found.get(flow, {}).get("assignment")}
            flows.check_known(flow, parts)
            boards = set().union(*map(participants, parts.values()))
            self._check_given_up(flow, boards - known.keys(), joined)
            before = placed(parts)
            operators = await flows.check(next(iter(parts.values()))["document"])
            sources = {before[name] for name, operator in operators.items() if operator["source"]}
            if boards <= parts.keys() and len(sources) == 1 and set(before.values()) != sources:
                together, why = dict.fromkeys(before, *sources), Why("version", "the flow is removed")
                await flows.change(flow, await flows.running(flow), together, why)
                parts = await flows.running(flow)
                before = placed(parts)
            with lasting("removal"):
                await lease.write("removing", boards | parts.keys())
                await self.remove_parts(flow, parts, flows.next_fence(parts.values()), boards - known.keys())
            await lease.note("removed", ())
            told: dict[str, dict[str, list[str]]] = {"lost": {}, "left": {}}
            for gone in boards - known.keys():
                member = self._roster.get(gone)
                how = "left" if member is not None and member.state is State.LEFT else "lost"
                told[how][gone] = sorted(name for name, at in before.items() if at == gone)
            return {"flow": flow, "removed": True, "coordinator": flows.name, **told}

    def _check_given_up(self, flow: str, silent: Iterable[str], joined: Collection[str] = ()) -> None:
        """Raises `EdgertError` where a board that may have a part does not answer, and was not forgotten, or joins."""
        self._flows.check_joined(flow, silent := set(silent), joined)
        if lacking := sorted(silent & self._flows.leases.members):
            raise EdgertError(silence(self._flows.leases, flow, lacking))

    async def remove_parts(self, flow: str, parts: Mapping[str, Part], fence: int, gone: Collection[str]) -> None:
        """Removes parts, one after the other, from the source on: the others take what it holds. `gone`: boards that
        take no batches any more."""
        on, operators = placed(parts), await self._flows.check(next(iter(parts.values()))["document"])
        for gateway in dict.fromkeys([*(on[name] for name in operators if on.get(name) in parts), *sorted(parts)]):
            await self._flows.ask(gateway, "part.remove", {"flow": flow, "fence": fence})
            await self._drained(flow, gateway, gone)

    async def _drained(self, flow: str, gateway: str, gone: Collection[str]) -> None:
        """Waits until what the gateway had for others is there, `gone` ones left out."""
        ends = asyncio.get_running_loop().time() + DRAIN_S
        while asyncio.get_running_loop().time() < ends:
            links = (await self._flows.ask(gateway, "status", {}))["links"]
            waiting = (links or {"waiting": ()})["waiting"]
            if not any(one["flow"] == flow and one["gateway"] not in gone for one in waiting):
                return
            await asyncio.sleep(0.2)
        log.warning(
            "flow %s: batches of %s still wait for other gateways; they leave when these take them", flow, gateway
        )

    async def _rules(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name, "unpin": [operator], "heuristic": name}`: changes the rules, and says them. Nothing moves."""
        flow, flows = str(args["flow"]), self._flows
        unpin, heuristic = args.get("unpin", []), args.get("heuristic")
        if not isinstance(unpin, list) or not all(isinstance(one, str) for one in unpin):
            raise EdgertError(f"unpin: expected a list of operators, got {show(unpin)}")
        async with flows.changing(flow):
            parts = await flows.running(flow)
            rules = newest(parts.values())
            if unpin or heuristic is not None:
                changed = rules.unpinned(unpin).plain()
                rules = Rules.untrusted(changed if heuristic is None else {**changed, "heuristic": heuristic})
                rules.check(placed(parts))
                with lasting("change of rules"):
                    await flows.write_rules(flow, parts, rules)
            return {"flow": flow, **rules.plain()}


def _of(known: Mapping[str, Mapping[str, Part]], flow: str) -> dict[str, Part]:
    """Gateway -> its part of a flow, of those that have one by a plan."""
    return {name: parts[flow] for name, parts in known.items() if "plan" in parts.get(flow, {})}


def assignment(
    operators: Mapping[str, Mapping[str, Any]], rules: Rules, asked: str, labels: Mapping[str, frozenset[str]],
    drained: Set[str] = frozenset(),
) -> dict[str, str]:  # fmt: skip
    """Operator copy -> gateway, where a flow begins. `operators` in topological order: each with its inputs; `labels`:
    of every board that answers. Only sources and pinned operators begin on a board that is `drained`, while another has
    the labels. Raises `EdgertError` where no board has the labels that an operator needs."""
    rules.check(operators)
    on: dict[str, str] = {}
    for name, operator in operators.items():
        inputs = [on[i] for i in operator["inputs"] if i in on]
        pin, needed = rules.pin_of(name), rules.labels_of(name)
        may = [gateway for gateway, has in sorted(labels.items()) if needed <= has]
        if pin is not None and pin in labels and pin not in may:
            raise EdgertError(f"{name}: {pin}, where it is pinned to, lacks a label of {listed(needed)}")
        if pin is None and needed and not may:
            raise EdgertError(f"{name}: expected a board with the labels {listed(needed)}, got none that answers")
        wished = pin if pin is not None else inputs[0] if inputs else asked
        closed = drained if inputs and not drained >= set(may) else frozenset[str]()
        suits = wished not in closed and (not needed or wished in may)
        on[name] = wished if pin is not None or suits else next(gateway for gateway in may if gateway not in closed)
    return on
