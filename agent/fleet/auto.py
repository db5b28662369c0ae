"""Flows that a heuristic places anew by itself, where their rules name one (`agent.placement.rules`).

Their coordinator looks: it asks the heuristic now and then, and decides by `agent.placement.replacement`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from agent.fleet.flows import FleetFlows, placed
from agent.fleet.guarded import guarded
from agent.fleet.history import Why
from agent.fleet.plans import FleetPlans
from agent.placement.proposal import Proposal
from agent.placement.replacement import Hysteresis, Replacement
from agent.placement.rules import newest
from edgert.core.clock import Clock

log = logging.getLogger(__name__)
LOOK_S: Final = 5.0


class FleetAuto:
    """The agent's part that re-places. `run` until cancelled."""

    def __init__(self, flows: FleetFlows, plans: FleetPlans, clock: Clock, hysteresis: Hysteresis) -> None:
        self._flows, self._plans, self._clock, self._hysteresis = flows, plans, clock, hysteresis
        self._flows_now: dict[str, Replacement] = {}
        self._plan_numbers: dict[str, int] = {}
        self.made = 0
        """Changes of plan that this agent made by itself since its start."""

    async def run(self) -> None:
        """Looks at the flows that this agent coordinates."""
        while True:
            await asyncio.sleep(LOOK_S)
            await guarded(self.look, log, "flows could not be looked at for a better placement")

    async def look(self) -> None:
        """One look at all flows that this agent coordinates and whose rules name a heuristic."""
        parts = await self._flows.parts(of=self._flows.tellers()) if self._flows.concerned() else {}
        alive = self._flows.alive()
        names = {flow for told in parts.values() for flow, part in told.items() if part.get("assignment")}
        wanted = {
            flow
            for flow in names
            if newest([told[flow] for told in parts.values() if flow in told]).heuristic
            and self._flows.coordinates(flow)
        }
        self._flows_now = {flow: self._flows_now.get(flow, Replacement(self._hysteresis)) for flow in wanted}
        for flow in sorted(wanted):
            state, now = self._flows_now[flow], self._clock.monotonic()
            self._see_plan(flow, max(told[flow].get("plan", 0) for told in parts.values() if flow in told), now)
            if state.due(now, alive) and not self._flows.lock(flow).locked():
                await self._consider(flow, state)

    def _see_plan(self, flow: str, plan: int, now: float) -> None:
        """Notes the plan of a flow: a change of it by people counts as a change, too."""
        if self._plan_numbers.get(flow, plan) != plan:
            self._flows_now[flow].changed(now)
        self._plan_numbers[flow] = plan

    async def _consider(self, flow: str, state: Replacement) -> None:
        async with self._flows.lock(flow):
            parts = await self._flows.running(flow)
            proposal = await self._plans.propose(flow, parts, {})
            verdict = state.judge(self._clock.monotonic(), proposal.now, proposal.then)
            if verdict == "lacks capacity":
                log.warning(
                    "flow %s: limits of boards are violated by %.2f, and %s finds no placement that keeps them: the"
                    " fleet needs capacity", flow, proposal.now.rank.violation, proposal.heuristic,
                )  # fmt: skip
        if verdict == "change" and proposal.moves:
            await self._change(flow, state, proposal)

    async def _change(self, flow: str, state: Replacement, proposal: Proposal) -> None:
        async with self._flows.changing(flow) as lease:
            if lease.age_s is not None and lease.age_s < self._hysteresis.pause_s:  # by the coordinator before
                state.changed(self._clock.monotonic() - lease.age_s)
                return
            parts = await self._flows.running(flow)
            if placed(parts) != proposal.before:
                return
            moves = ", ".join(f"{operator} to {to}" for operator, to in proposal.moves.items())
            now, then = proposal.now, proposal.then
            gain = (
                f"violation {now.rank.violation:.2f} to {then.rank.violation:.2f}, score {now.rank.score:.3f} to"
                f" {then.rank.score:.3f}, latency {now.terms.latency_ms:.0f} to {then.terms.latency_ms:.0f} ms"
            )
            log.info("flow %s is placed anew: %s (%s)", flow, moves, gain)
            try:
                why = Why("placement", f"placed anew by {proposal.heuristic}: {gain}")
                await self._flows.change(flow, parts, proposal.after, why)
                self.made += 1
            finally:
                state.changed(self._clock.monotonic())
