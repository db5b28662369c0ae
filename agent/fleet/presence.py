"""This board as one of its fleet: where the others listen, which boards there are, and what it stops when cut off.

A board that no majority of its fleet has answered lately stops its guests: parts of flows without a source here. What
the membership believes of the others does not count: a board that is cut off believes for minutes that they live.
After a start guests stand still until the agent has reached a majority, which says that they are not given up. The
gateway lets them run for `GUESTS_S` and a little more at a time: so they stop also where the agent has ended. Parts
with a source here go on, as no other board can take their input. So when people forget a board (`edgert fleet forget`),
though it lives, no operator that it ran for others has two owners. A board that joins another fleet stops its guests,
too, until all boards of the flow are in that fleet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from agent.fleet.flows import VOTER, FleetFlows, listed, placed
from agent.fleet.guarded import guarded
from agent.fleet.local_gateway import LocalGateway
from agent.fleet.status import anew, link_untrusted, section_untrusted
from agent.lease.electorate import Electorate
from agent.lease.leases import Leases
from agent.lease.voters import GUESTS_S, LOOK_S, is_majority, lately_s
from agent.membership.members import Member
from agent.membership.roster import Roster
from agent.migration.plan_change import participants
from edgert.control.server import Handler
from edgert.core.clock import Clock
from edgert.core.errors import EdgertError

log = logging.getLogger(__name__)
COMPARE_S: Final = 15.0
"""Time between two exchanges of what is known of the fleet's boards."""
MARK: Final = 8
"""Characters of a fleet's mark that boards tell: its end, which was drawn."""
ASKED: Final = 16
"""Most boards that a look pings, where too few have answered."""


class FleetPresence:
    """`run` until cancelled."""

    def __init__(
        self, roster: Roster, gateway: LocalGateway, flows: FleetFlows, leases: Leases,
        electorate: Electorate, clock: Clock, ping: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`ping`: sends a ping to a board; its answer is noted in the roster."""
        self._roster, self._gateway, self._flows, self._leases, self._clock = roster, gateway, flows, leases, clock
        self._electorate, self._ping = electorate, ping
        self.control: dict[str, Handler] = {"fleet.forget": self._forget}
        self._began = self._looked_at = clock.monotonic()
        self._missed = False
        """The look before found no majority that had answered."""
        self._cut_off = False
        self._lacking: dict[str, set[str]] = {}
        """Flow whose part waits here -> boards of it that are not in this fleet, which the log says once."""

    async def run(self) -> None:
        async def every(seconds: float, do: Callable[[], Awaitable[None]], what: str) -> None:
            while True:
                await guarded(do, log, what)
                await asyncio.sleep(seconds)

        await asyncio.gather(
            every(LOOK_S, self.look, "the fleet could not be looked at"),
            every(LOOK_S, self._look_after_voters, "the fleet's voters could not be looked after"),
            every(COMPARE_S, self._electorate.compare, "what is known of the fleet could not be compared"),
        )

    async def _look_after_voters(self) -> None:
        fleet = self._leases.memory.voters.fleet[-MARK:]
        elsewhere = {member.name for member in self._roster if self._told(member, "fleet") not in (None, fleet)}
        await self._electorate.look(self._flows.able(), elsewhere)

    async def look(self) -> None:
        now = self._clock.monotonic()
        stood_still, self._looked_at = now - self._looked_at > GUESTS_S, now
        cut_off = self._cut_off = self._is_cut_off()
        memory = self._leases.memory
        if stood_still or memory.joined:  # a machine that was suspended may have been forgotten meanwhile
            cut_off = self._missed = True
        if not self._gateway.connected:  # its guests wait for this agent
            await self._gateway.look()
        if self._gateway.connected:
            await self._see_to_guests(cut_off)
            if cut_off and memory.joined:
                memory.joined = False
                await memory.keep()
        await self._tell_peers()

    def answering(self, within_s: float) -> set[str]:
        """The boards that count and have answered a ping of this one lately, itself included. Those that tell of
        another fleet do not count."""
        since, members, own = self._clock.monotonic() - within_s, self._leases.members, self._roster.own
        lately = [m for m in self._roster if m.name in members and (m is own or m.answered_at >= since)]
        fleet = self._leases.memory.voters.fleet[-MARK:]
        return {m.name for m in lately if m is own or (self._told(m, "fleet") or fleet) == fleet}

    def told(self) -> dict[str, Any]:
        """The section of this board that says its fleet, and whether it has no vote or reaches no majority; empty
        without a fleet."""
        memory = self._leases.memory
        if not memory.voters.names:
            return {}
        told: dict[str, Any] = {"fleet": memory.voters.fleet[-MARK:]}
        return told | ({} if memory.votes else {"votes": False}) | ({"majority": False} if self._cut_off else {})

    def _told(self, member: Member, key: str) -> Any:
        return section_untrusted(member, VOTER).get(key)

    def _has_majority(self) -> bool:
        return is_majority(self.answering(lately_s(len(self._leases.members))), self._leases.members)

    def _is_cut_off(self) -> bool:
        """True where two looks in a row found no majority. Boards that have not answered for two thirds of the time are
        asked, so that it is not for want of pings; after its start an agent takes as long to ask them for the first
        time."""
        members = self._leases.members
        soon = self.answering(lately_s(len(members)) * 2 / 3)
        if not is_majority(soon, members):
            for member in self._roster.choose(ASKED, lambda m: m.present and m.name in members - soon):
                self._ping(member.name)
        missed, self._missed = self._missed, not self._has_majority()
        has_asked = self._clock.monotonic() - self._began >= lately_s(len(members))
        return has_asked and missed and self._missed

    async def _see_to_guests(self, cut_off: bool) -> None:
        parts: Mapping[str, Mapping[str, Any]] = await self._gateway.client.call("part.status")
        if self._flows.leaves:
            return
        if cut_off:
            for flow in _running_guests(parts):
                await self._suspend(flow)
        elif not self._missed:
            for_s = GUESTS_S + lately_s(len(self._leases.members))
            await self._gateway.client.call("part.guests", {"for_s": for_s})
            for flow in [flow for flow, part in parts.items() if part.get("suspended") is True]:
                await self._resume(flow, parts[flow])

    async def _tell_peers(self) -> None:
        """Tells the gateway its peers, each time: it may have started anew. A board keeps its links until it leaves or
        is forgotten: where only its agent has ended, or has yet to hear of the others, all gateways are well. Of a
        board that tells no address now, the gateway keeps the address of before."""
        peers: dict[str, list[Any]] = {}
        stay = self._leases.members - self._electorate.gone()
        for member in self._roster:
            link = link_untrusted(member)
            if (member.present or member.name in stay) and link is not None:
                peers[member.name] = link
        peers.pop(self._roster.own.name, None)
        if self._gateway.connected and self._gateway.link_port():
            keep = sorted(stay - peers.keys() - {self._roster.own.name})
            await self._gateway.client.call("peers", {"peers": peers, "keep": keep})

    # -- guests

    async def _suspend(self, flow: str) -> None:
        members = self._leases.members
        why = f"reaches {len(self.answering(lately_s(len(members))))} of the fleet's {len(members)} boards"
        if self._leases.memory.joined:
            why = "has joined another fleet, or was forgotten"
        log.warning("flow %s, whose sources are elsewhere, stands still here: this board %s", flow, why)
        await self._gateway.client.call("part.suspend", {"flow": flow})

    async def _resume(self, flow: str, part: Mapping[str, Any]) -> None:
        """Lets the part go on, unless it was given up: then the flow's coordinator removes it. Of a flow that is partly
        on boards of another fleet, that one may have moved it."""
        record, here = await self._leases.read(flow), self._roster.own.name
        if lacking := participants(part) - self._leases.members:
            if self._lacking.get(flow) != lacking and not lacking & self._flows.joining():
                self._lacking[flow] = lacking
                log.warning("flow %s waits here: %s is not in this fleet; %s", flow, listed(lacking), anew(flow))
            return
        self._lacking.pop(flow, None)
        if record.state in ("removing", "removed") or (record.boards and here not in record.boards):
            log.warning("flow %s was given up here: its part is removed", flow)
            return
        log.info("flow %s goes on here: this board reaches its fleet", flow)
        await self._gateway.client.call("part.resume", {"flow": flow})

    # -- for people

    async def _forget(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"board": name, "force": false}`: the board votes no more. Returns who was told, and what it ran."""
        board = str(args.get("board"))
        told = await self._electorate.forget(board, force=args.get("force") is True)
        lost: dict[str, list[str]] = {}
        present = [member.name for member in self._roster if member.present]  # also those that were forgotten by force
        for parts in (await self._flows.parts(of=present)).values():
            for flow, part in parts.items():
                if part.get("assignment"):
                    gone = sorted(operator for operator, at in placed({"": part}).items() if at == board)
                    lost |= {flow: gone} if gone else {}
        return {"board": board, "told": sorted(told), "lost": lost}

    async def take_leave(self, args: Mapping[str, Any]) -> None:
        """Call this before this board leaves its fleet. Raises `EdgertError` where it has parts of flows; with
        `{"force": True}` its guests stand still from now on instead. It takes no part of a flow from now on."""
        self._flows.leaves = True  # first: else a part could come after the look
        try:
            await self._look_for_parts(force=args.get("force") is True)
        except BaseException:
            self._flows.leaves = False
            raise

    async def _look_for_parts(self, *, force: bool) -> None:
        if self._flows.taking:
            raise EdgertError("this board is getting a part of a flow: try again")
        try:
            parts: Mapping[str, Mapping[str, Any]] = await self._gateway.client.call("part.status")
        except EdgertError as error:
            if force:  # its guests stop when `GUESTS_S` is over
                return
            raise EdgertError(
                f"this board may have parts of flows, and its gateway does not answer: {error}; start it first, or"
                " leave with --force: its guests stop within two minutes then"
            ) from error
        flows = [flow for flow, part in parts.items() if part.get("assignment") or part.get("prepared_assignment")]
        if flows and not force:
            raise EdgertError(
                f"this board has parts of {listed(flows)}: run `edgert fleet drain {self._roster.own.name}` first, and"
                " `edgert fleet remove` for a flow whose source is here. With --force its operators for other boards"
                " stand still here, and their state is out of the fleet's reach"
            )
        for flow in _running_guests(parts):
            await self._gateway.client.call("part.suspend", {"flow": flow})

    def status(self) -> dict[str, Any]:
        """For `fleet.status`. `blank`: boards that are reached and do not vote; `long_gone`: those that people can
        forget."""
        members = self._leases.members
        reached = self.answering(lately_s(len(members)))
        told = {member.name: self._told(member, "votes") for member in self._roster if member.name in reached}
        told[self._roster.own.name] = self._leases.memory.votes
        blank = {name for name in reached if told[name] is False}
        return {"boards": sorted(members), "reached": sorted(reached), "blank": sorted(blank),
                "long_gone": self._leases.long_gone(members - reached),
                "majority": is_majority(reached - blank, members)}  # fmt: skip


def _running_guests(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [flow for flow, part in parts.items() if part.get("guest") is True and part["state"] == "running"]
