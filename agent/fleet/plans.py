"""Where a flow of the fleet runs and should run, by a heuristic: shown (`fleet.trace`, `fleet.plan`), and made so
(`fleet.replace`).

The flow's coordinator reads the figures of all boards twice, some seconds apart, and asks `agent.placement` for a
better placement. Capacities and distances are those that membership spreads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from agent.coordinates.rounds import Rounds
from agent.fleet.flows import FleetFlows, placed
from agent.fleet.history import Why
from agent.fleet.rings import BYTES_PER_MBIT, REFERENCE_SPEED
from agent.fleet.status import coordinate_of, labels_untrusted, section_untrusted
from agent.membership.members import Member
from agent.membership.roster import Roster
from agent.placement.heuristics.registry import HEURISTICS
from agent.placement.problem.budget import Budget
from agent.placement.proposal import Proposal, TwoReadings, propose
from agent.placement.rules import Rules, newest
from agent.placement.trace import trace
from edgert.core.errors import EdgertError, show

HEURISTIC: Final = "hybrid"
READ_S: Final = 3.0
"""Time between the two readings: a gateway's figures of its slots are up to a second old."""
SEARCH_S: Final = 0.3
UNKNOWN_RTT_S: Final = 0.001
"""Round trip of two boards of which neither coordinates nor a measurement are known yet."""
MOST_TOLD: Final = 1e9
"""Most that is believed of cores, speed, memory (MiB) and bandwidth (Mbit/s)."""
PUBLISH: Final = "publish"
"""Operators of this type stay: they publish to the broker of their own board, where the devices are."""


class FleetPlans:
    """The agent's part that asks the heuristics."""

    def __init__(
        self, roster: Roster, rounds: Rounds, flows: FleetFlows, random: Random,
        budget: Callable[[], Budget] = lambda: Budget(seconds=SEARCH_S, clock=time.monotonic),
    ) -> None:  # fmt: skip
        """`budget`: of each search."""
        self._roster, self._rounds, self._flows, self._random = roster, rounds, flows, random
        self._budget = budget
        flows.add("plan", self._plan)
        flows.add("replace", self._replace)
        flows.add("trace", self._trace)

    async def _plan(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name, "heuristic": name, "keep": [operator]}`: the placement now and the one that the heuristic
        finds, each with its score by term. Nothing changes."""
        flow = str(args["flow"])
        parts = await self._flows.running(flow)
        return _plain(flow, await self.propose(flow, parts, args))

    async def _replace(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answers as `_plan` does, and changes the flow's plan to the other placement if that is better."""
        flow = str(args["flow"])
        async with self._flows.changing(flow):
            parts = await self._flows.running(flow)
            proposal = await self.propose(flow, parts, args)
            found = _plain(flow, proposal)
            if not proposal.better or not proposal.moves:
                return {**found, "changed": False}
            why = Why("person", f"placed anew by {proposal.heuristic}, asked for at {args.get('asked')}")
            return {**found, **await self._flows.change(flow, parts, proposal.after, why), "changed": True}

    async def _trace(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name}`: see `agent.placement.trace`."""
        flow = str(args["flow"])
        parts = await self._flows.running(flow)
        checked = await self._flows.check(next(iter(parts.values()))["document"])
        readings, _ = await self._readings()
        return trace(flow, readings, self._distances(set(readings)), newest(parts.values()), _stay(checked))

    async def propose(self, flow: str, parts: Mapping[str, Mapping[str, Any]], args: Mapping[str, Any]) -> Proposal:
        """The placement that a heuristic finds for a flow that runs: pins and labels of its rules are kept. `args` as
        of `fleet.plan`. Raises `EdgertError`."""
        rules, on, document = newest(parts.values()), placed(parts), next(iter(parts.values()))["document"]
        heuristic, keep = _asked(flow, args, rules, on)
        checked = await self._flows.check(document)
        readings, fleet = await self._readings()
        profiles = [profile for member in self._roster if (profile := profile_untrusted(member)) is not None]
        profiles = [profile for profile in profiles if profile["gateway"] in readings]
        known = {profile["gateway"] for profile in profiles}
        if lacking := sorted(set(on.values()) - known):
            raise EdgertError(
                f"flow {flow}: the figures or the capacity of {', '.join(lacking)} are not known; try again"
            )
        readings = {gateway: reading for gateway, reading in readings.items() if gateway in known}
        takers = {one["gateway"]: frozenset(one["labels"]) for one in profiles if not one["drained"]}
        keep += [*rules.kept_copies(), *rules.held_back(on, takers)]
        keep += _stay(checked)
        # In a thread: the membership's probes must be answered meanwhile.
        return await asyncio.to_thread(
            propose, flow, heuristic, readings, on, fleet, keep, profiles, self._distances(known),
            self._budget(), self._random.random, rules.for_problem(flow, takers),
        )  # fmt: skip

    async def _readings(self) -> tuple[dict[str, TwoReadings], set[str]]:
        """The figures of the boards that can take part, and the names of the fleet's flows."""
        known = await self._flows.parts()
        earlier = await self._flows.ask_all(known, "figures")
        await asyncio.sleep(READ_S)
        later = await self._flows.ask_all(earlier, "figures")
        fleet = {flow for parts in known.values() for flow, part in parts.items() if part.get("assignment")}
        return {gateway: (earlier[gateway], now) for gateway, now in later.items()}, fleet

    def _distances(self, gateways: set[str]) -> Any:
        """(gateway, gateway) -> round trip in seconds: measured where this board is one of them, else by coordinates.
        Of all pairs now, as the roster changes while a heuristic searches in its thread."""
        members = {member.name: member for member in self._roster if member.name in gateways}
        table = {(a, b): self._rtt_s(members[a], members[b]) for a in members for b in members}
        return lambda a, b: table[a, b]

    def _rtt_s(self, a: Member, b: Member) -> float:
        own = self._roster.own
        measured = self._rounds.filter.get(b.name if a is own else a.name) if own in (a, b) else None
        if measured is not None:
            return measured / 1e3
        first, second = coordinate_of(a), coordinate_of(b)
        estimate = self._rounds.algorithm.estimate_ms(first, second) if first and second else float("inf")
        return estimate / 1e3 if estimate < float("inf") else UNKNOWN_RTT_S


def _stay(checked: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Operators, of a document that was checked, that no heuristic moves."""
    return [name for name, told in checked.items() if told["source"] or told["type"] == PUBLISH]


def _asked(flow: str, args: Mapping[str, Any], rules: Rules, on: Mapping[str, str]) -> tuple[str, list[str]]:
    """The heuristic, and the operators to keep, of a request. Raises `EdgertError`."""
    heuristic, keep = args.get("heuristic") or rules.heuristic or HEURISTIC, args.get("keep", [])
    if heuristic not in HEURISTICS:
        raise EdgertError(f"heuristic: expected one of {', '.join(HEURISTICS)}, got {show(heuristic)}")
    if not isinstance(keep, list) or not all(isinstance(operator, str) for operator in keep):
        raise EdgertError(f"keep: expected a list of operators, got {show(keep)}")
    if unknown := sorted(name for name in keep if name not in on and name not in {o.partition("#")[0] for o in on}):
        raise EdgertError(f"keep: expected operators of flow {flow}, among {', '.join(on)}, got {unknown[0]!r}")
    return heuristic, list(keep)


def profile_untrusted(member: Member) -> dict[str, Any] | None:
    """The profile of a board for `agent.placement.problem.build`; None of a board that takes no batches of others, or
    tells nonsense."""
    board = section_untrusted(member, "board")
    told: list[Any] = [board.get(key) for key in ("cores", "speed", "memory_mib", "bandwidth_mbit")]
    numbers = [n for n in told if type(n) in (int, float) and 0 < n < MOST_TOLD]
    link = board.get("link")
    if len(numbers) < len(told) or not isinstance(link, list) or len(link) != 2 or not link[1]:
        return None
    cores, speed, memory, bandwidth = numbers
    relative = speed / REFERENCE_SPEED
    return {
        "gateway": member.name, "cpu": cores * relative, "speed": relative, "memory": int(memory * 2**20),
        "labels": sorted(labels_untrusted(member)), "slots": 1, "drained": board.get("drained") is True,
        "bandwidth": bandwidth * BYTES_PER_MBIT,
    }  # fmt: skip


def _plain(flow: str, proposal: Proposal) -> dict[str, Any]:
    return {
        "flow": flow,
        "heuristic": proposal.heuristic,
        "assignment": proposal.before,
        "moves": proposal.moves,
        "better": proposal.better,
        "now": proposal.now.plain(),
        "then": proposal.then.plain(),
    }
