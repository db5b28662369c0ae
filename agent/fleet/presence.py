"""This board as one of its fleet: where the others listen, which boards there are, and what it stops when cut off.

A board that reaches no majority of its fleet for the length of a lease stops its guests: parts of flows without a
source here. After a start they stand still until the agent has reached a majority, which says that they are not given
up. Parts with a source here go on, as no other board can take their input. So when people forget a board
(`edgert fleet forget`), though it lives, no operator that it ran for others has two owners.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from agent.fleet.flows import FleetFlows, placed
from agent.fleet.guarded import guarded
from agent.fleet.local_gateway import LocalGateway
from agent.fleet.status import section_untrusted
from agent.lease.grants import LEASE_S
from agent.lease.leases import Leases
from agent.membership.roster import Roster
from edgert.core.clock import Clock

log = logging.getLogger(__name__)
LOOK_S: Final = 2.0
COMPARE_S: Final = 15.0
"""Time between two exchanges of what is known of the fleet's boards."""
Handler = Callable[[Mapping[str, Any]], Awaitable[Any]]


class FleetPresence:
    """`run` until cancelled."""

    def __init__(self, roster: Roster, gateway: LocalGateway, flows: FleetFlows, leases: Leases, clock: Clock) -> None:
        self._roster, self._gateway, self._flows, self._leases, self._clock = roster, gateway, flows, leases, clock
        self.control: dict[str, Handler] = {"fleet.forget": self._forget}
        self._cut_off_at: float | None = None
        self._guests_wait = False
        """The gateway was told that guests wait for this agent after a start."""
        self._compared_at = float("-inf")

    async def run(self) -> None:
        while True:
            await guarded(self.look, log, "the fleet could not be looked at")
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        now = self._clock.monotonic()
        await self._leases.look()
        await self._tell_peers()
        if now - self._compared_at >= COMPARE_S:
            self._compared_at = now
            await self._leases.compare()
        if not self._gateway.connected:  # its guests wait for this agent
            await self._gateway.look()
        if self._gateway.connected:
            await self._see_to_guests(now)

    async def _see_to_guests(self, now: float) -> None:
        parts: Mapping[str, Mapping[str, Any]] = await self._gateway.client.call("part.status")
        if not self._guests_wait:
            await self._gateway.client.call("part.guests", {})
            self._guests_wait = True
        if self._leases.has_majority():
            self._cut_off_at = None
            for flow in [flow for flow, part in parts.items() if part.get("suspended") is True]:
                await self._resume(flow)
            return
        if self._cut_off_at is None:
            self._cut_off_at = now
        if now - self._cut_off_at >= LEASE_S:
            for flow in [f for f, part in parts.items() if part.get("guest") is True and part["state"] == "running"]:
                await self._suspend(flow)

    async def _tell_peers(self) -> None:
        """Each time: the gateway may have started anew. A suspected board keeps its links until it is dead."""
        peers: dict[str, list[Any]] = {}
        for member in self._roster:
            link = _address(section_untrusted(member, "board").get("link"))
            if member.present and member is not self._roster.own and link is not None:
                peers[member.name] = link
        if self._gateway.connected and self._gateway.link_port():
            await self._gateway.client.call("peers", {"peers": peers})

    # -- guests

    async def _suspend(self, flow: str) -> None:
        log.warning(
            "flow %s, whose sources are elsewhere, stands still here: this board reaches %d of the fleet's %d boards",
            flow, len(self._leases.reached()), len(self._leases.members),
        )  # fmt: skip
        await self._gateway.client.call("part.suspend", {"flow": flow})

    async def _resume(self, flow: str) -> None:
        """The part goes on, unless it was given up: then the flow's coordinator removes it."""
        record, here = await self._leases.read(flow), self._roster.own.name
        if record.state in ("removing", "removed") or (record.boards and here not in record.boards):
            log.warning("flow %s was given up here: its part is removed", flow)
            return
        log.info("flow %s goes on here: this board reaches its fleet", flow)
        await self._gateway.client.call("part.resume", {"flow": flow})

    # -- for people

    async def _forget(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"board": name}`: the board counts no more. Returns who was told, and what it ran."""
        board = str(args.get("board"))
        told = await self._leases.forget(board)
        lost: dict[str, list[str]] = {}
        for parts in (await self._flows.parts()).values():
            for flow, part in parts.items():
                if part.get("assignment"):
                    gone = sorted(operator for operator, at in placed({"": part}).items() if at == board)
                    lost |= {flow: gone} if gone else {}
        return {"board": board, "told": sorted(told), "lost": lost}

    def status(self) -> dict[str, Any]:
        """For `fleet.status`."""
        members = self._leases.members
        return {
            "boards": sorted(members), "reached": self._leases.reached(), "majority": self._leases.has_majority(),
        }  # fmt: skip


def _address(link: Any) -> list[Any] | None:
    """[host, port] of a member's links; None where it has none."""
    fits = isinstance(link, list) and len(link) == 2 and isinstance(link[0], str) and type(link[1]) is int
    return link if fits and link[1] > 0 else None
