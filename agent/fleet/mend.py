"""Ends what coordinators left: changes of plan, deployments and removals. The flow's coordinator of now does it.

A change of plan that stands still is ended by what the parts say (`agent.migration.plan_change`). A deployment or a
removal is gone on with by what a majority of the boards remembers (`agent.lease`), and so are parts of which nothing is
remembered any more: a board was forgotten and is back, or two halves of a fleet deployed the same flow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Any, Final

from agent.fleet.deploy import FleetDeploy
from agent.fleet.flows import FleetFlows, listed
from agent.fleet.guarded import guarded
from agent.lease.leases import Lease
from agent.migration.plan_change import Part, UnfinishedError, abort, commit, decision, participants, staying
from agent.placement.rules import newest
from edgert.core.errors import EdgertError

log = logging.getLogger(__name__)
LOOK_S: Final = 2.0
ALL_S: Final = 15.0
"""Least time between two looks at all boards, whatever they tell of their flows."""
ALL_PER_BOARD_S: Final = 4.0
"""Least time between two such looks, for each board of the fleet: so a board answers one such request in this time,
however many there are. A request and its answer are some 1,000 bytes, and 2,000 with the document of a flow."""
MEND_S: Final = 8.0
"""A change of plan that no coordinator goes on with is ended after so long by the flow's coordinator of then."""
SETTLE_S: Final = 2.0
"""Time after which work that needs the lease, which a living coordinator has, is ended."""
RETRY_S: Final = 30.0
"""Time after which it is tried again. Each try has the boards store a promise."""


class FleetMend:
    """The agent's part that ends what was left. `run` until cancelled."""

    def __init__(self, flows: FleetFlows, deploy: FleetDeploy) -> None:
        self._flows, self._deploy = flows, deploy
        self._left: dict[str, float] = {}
        """Flows whose change of plan no coordinator goes on with, and since when."""
        self._unsettled: dict[str, float] = {}
        """Flows with other parts than are remembered, and since when."""
        self._foreign: set[str] = set()
        """Flows that stand still as their change of plan is another fleet's, which the log says once."""
        self._all_at = float("-inf")

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await guarded(self.look, log, "flows of the fleet could not be looked after")

    async def look(self) -> None:
        """One look at the flows that this agent coordinates."""
        now, flows = asyncio.get_running_loop().time(), self._flows
        of: list[str] | None = None
        if now - self._all_at >= max(ALL_S, ALL_PER_BOARD_S * len(flows.alive())):
            self._all_at = now
            flows.forget_heard()
        elif flows.concerned():
            of = flows.tellers()
        else:
            return
        by_flow: dict[str, dict[str, Part]] = {}
        for board, parts in (await flows.parts(of=of)).items():
            for flow, part in parts.items():
                by_flow.setdefault(flow, {})[board] = part
        mine = {
            flow: parts for flow, parts in by_flow.items() if flows.coordinates(flow) and not flows.lock(flow).locked()
        }
        stand = {flow for flow, parts in mine.items() if any(map(_stands, parts.values()))}
        self._left = {flow: self._left.get(flow, now) for flow in stand}
        self._foreign &= stand
        odd = {flow for flow, parts in mine.items() if flow not in stand and self._is_odd(flow, parts)}
        self._unsettled = {flow: self._unsettled.get(flow, now) for flow in odd}
        for flow in [flow for flow, since in self._left.items() if now - since >= MEND_S]:
            async with flows.lock(flow):
                await self.end_change(flow)
            self._left.pop(flow, None)
        for flow in [flow for flow, since in self._unsettled.items() if now - since >= SETTLE_S]:
            self._unsettled.pop(flow, None)
            try:
                await self._settle(flow)
            except EdgertError as error:  # as on the smaller side of a fleet that is split
                self._unsettled[flow] = now + RETRY_S - SETTLE_S
                log.debug("flow %s is not settled: %s", flow, error)

    # -- changes of plan

    async def end_change(self, flow: str) -> None:
        """All gateways that take part have to answer, twice: first they are told of this coordinator's fencing number,
        so that the one before can do nothing any more, then what they say counts. Boards that were forgotten are left
        out: they come back to no part. If this fleet has no record of the flow, and the plan names boards outside of
        this fleet, the change belongs to another fleet and is left alone."""
        flows = self._flows
        parts = await flows.parts(flow)
        boards = self._counting(parts)
        fence = flows.next_fence(parts.values())
        left_out = set().union(*map(participants, parts.values())) - boards
        removed = False
        try:
            if left_out:
                state = (await flows.leases.read(flow)).state
                removed = state in ("removing", "removed")
                if not state:
                    self._leave_alone(flow, left_out)
                    return
            told = {"flow": flow, "fence": fence}
            await asyncio.gather(*(flows.ask(board, "part.rules", told) for board in boards))
            known = {board: await flows.ask(board, "part.status", {}) for board in sorted(boards)}
        except EdgertError as error:
            log.warning("flow %s stands still: its plan is being changed, and not all gateways answer: %s", flow, error)
            return
        parts = {board: found.get(flow, {}) for board, found in known.items()}
        if self._counting(parts) - boards:
            return  # another change has begun; the next look ends it
        verdict, plan = decision(parts)
        if verdict == "commit" and removed:
            verdict = "abort"
        log.warning("flow %s: a change of its plan that was left is ended: %s", flow, verdict)
        if verdict == "commit":
            try:
                pause = await commit(flow, boards, staying(parts, plan), plan, fence, flows.ask)
                flows.history.note_ended(flow, plan, parts, pause.plain())
            except UnfinishedError as error:
                log.warning("%s", error)
        elif verdict == "abort":
            await abort(flow, boards, plan, fence, flows.ask)

    def _leave_alone(self, flow: str, others: Collection[str]) -> None:
        if flow not in self._foreign:
            self._foreign.add(flow)
            log.warning(
                "flow %s stands still: its plan was being changed by the fleet of %s, which is to end that; else "
                "deploy a flow of that name here, or remove it", flow, listed(others),
            )  # fmt: skip

    def _counting(self, parts: Mapping[str, Part]) -> set[str]:
        """The gateways that take part, forgotten ones left out unless they have answered. One that has left, and was
        asked once more to prepare that by a request that came late, is told again."""
        boards = {board for board, part in parts.items() if part.get("prepared_plan")}
        boards.update(*map(participants, parts.values()))
        return {board for board in boards if board in parts or board in self._flows.leases.members}

    # -- deployments and removals

    def _is_odd(self, flow: str, parts: Mapping[str, Part]) -> bool:
        """True if the flow has other parts than this board remembers, or parts of two plans. A deployment that lacks
        only parts on boards that are gone waits for these."""
        found = {board: part for board, part in parts.items() if part.get("assignment")}
        if not found:
            return False
        record = self._flows.leases.memory.record(flow)
        boards, stale = _by_newest(found, record.boards)
        lacking = boards - found.keys()
        waits = record.state == "deploying" and lacking and lacking.isdisjoint(self._flows.able())
        return bool(stale) or (record.state != "runs" and not waits) or not boards <= set(record.boards)

    async def _settle(self, flow: str) -> None:
        flows = self._flows
        async with flows.changing(flow) as lease:
            known = await flows.parts()
            parts = {board: told[flow] for board, told in known.items() if told.get(flow, {}).get("assignment")}
            if not parts or any(map(_stands, parts.values())):
                return
            silent = set(lease.record.boards) & flows.leases.members - known.keys()
            if lease.record.state in ("removing", "removed"):
                log.warning("flow %s: resumes an unfinished removal on %s", flow, listed(parts))
                await self._deploy.remove_parts(flow, parts, flows.next_fence(parts.values()), ())
                await lease.note("removing" if silent else "removed", silent)
                return
            boards = await self._one_plan(flow, lease, parts, set(known))
            waits = lease.record.state == "deploying" and boards & silent
            await lease.note("deploying" if waits else "runs", boards | silent)

    async def _one_plan(self, flow: str, lease: Lease, parts: Mapping[str, Part], answering: set[str]) -> set[str]:
        """Has the flow run by its newest plan only, and on all its boards if it was being deployed. Returns these."""
        flows = self._flows
        boards, stale = _by_newest(parts, lease.record.boards)
        lacking = boards & answering - parts.keys() if lease.record.state == "deploying" else set[str]()
        if not stale and not lacking:
            return boards
        await lease.write("deploying", boards | parts.keys() | set(lease.record.boards))
        fence = flows.next_fence(parts.values())
        told = {"flow": flow, "fence": fence}  # so the coordinator before can do nothing any more
        await asyncio.gather(*(flows.ask(board, "part.rules", told) for board in parts))
        if stale:
            log.warning(
                "flow %s runs by two plans: its parts on %s are removed, and what they hold is shipped; it goes on on"
                " %s", flow, listed(stale), listed(boards),
            )  # fmt: skip
            old = {board: parts[board] for board in stale}
            await self._deploy.remove_parts(flow, old, fence, stale)
        kept = {board: part for board, part in parts.items() if board not in stale}
        if missing := lacking | (stale & boards):
            log.warning("flow %s: its deployment was left; %s gets its part", flow, listed(missing))
            one = next(iter(kept.values()))
            on = {operator: at[0] for operator, at in one["assignment"].items()}
            rules = newest(kept.values())
            await self._deploy.deploy_parts(one["document"], on, missing, one["plan"], fence, rules)
        return boards


def _stands(part: Part) -> bool:
    """A part that waits for a coordinator's word; not one that waits for the fleet (`agent.fleet.presence`)."""
    return part["state"] != "running" and not (part["state"] == "stopped" and part.get("suspended") is True)


def _by_newest(parts: Mapping[str, Part], remembered: Collection[str]) -> tuple[set[str], set[str]]:
    """The boards of the newest plan, and those that run by another one. Parts on boards that are remembered to have one
    go before those that boards brought with them, which had a fleet of their own. Of two plans with the same number the
    one whose coordinator had the greater fencing number is newer."""

    def rank(board: str) -> tuple[Any, ...]:
        part = parts[board]
        return board in remembered, part["plan"], part.get("fence", 0), sorted(part["assignment"])

    first = parts[max(parts, key=rank)]
    key = first["plan"], first["assignment"]
    stale = {board for board, part in parts.items() if (part["plan"], part["assignment"]) != key}
    return {at[0] for at in first["assignment"].values()}, stale
