"""Emptying a board: its operators move to the others, it takes none, and at the end they come back.

The state is in a file, so that a board which restarts for an update is still drained. Sources stay, and operators that
publish: they belong to the devices of their board.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from agent.fleet.flows import FleetFlows, placed
from agent.fleet.guarded import guarded
from agent.fleet.local_gateway import LocalGateway
from agent.fleet.movable import Movable, crossing, leaving
from agent.fleet.moves import ADMIT_S, FleetMoves, candidate_untrusted
from agent.fleet.rings import FleetRings
from agent.fleet.status import labels_untrusted
from agent.interference.exchange import Candidate
from agent.interference.score import Footprint
from agent.lease.leases import AskBoard
from agent.membership.files import replace_file
from agent.membership.members import State
from agent.membership.roster import Roster
from agent.placement.rules import Rules, newest
from edgert.control.server import Handler
from edgert.core.errors import EdgertError, show

log = logging.getLogger(__name__)
FILE: Final = "drained.json"
DRAIN_S: Final = 300.0
"""Longest wait for another board that is drained or filled."""
LOOK_S: Final = 15.0
"""Time between two looks for operators that came to a drained board."""
AGAIN_S: Final = 300.0
"""A flow that could not be moved then is tried again after so long: a try may let it stand still."""


class FleetDrain:
    """The agent's part that empties its board when people ask for it."""

    def __init__(
        self, folder: Path, roster: Roster, gateway: LocalGateway, flows: FleetFlows, rings: FleetRings,
        moves: FleetMoves, request: AskBoard,
    ) -> None:  # fmt: skip
        self._file = folder / FILE
        self._roster, self._gateway, self._flows = roster, gateway, flows
        self._rings, self._moves, self._request = rings, moves, request
        self.drained: bool = False
        """True if no operator is to come here."""
        self.moved: dict[str, dict[str, str]] = {}
        """Flow -> operator -> where it was moved, of those that have not come back."""
        self._read()
        self._moves.drained = self.drained
        self._tried: dict[str, int] = {}
        """Flow -> its plan when a look found nothing to move, or failed."""
        self._busy = asyncio.Lock()
        self.control: dict[str, Handler] = {"fleet.drain": self._on("drain"), "fleet.fill": self._on("fill")}

    def _on(self, verb: str) -> Handler:
        async def handler(args: Mapping[str, Any]) -> Any:
            board = args.get("board")
            if board == self._roster.own.name:
                return await self.serve(board, {"verb": verb})
            if board not in {member.name for member in self._roster if member.state is State.ALIVE}:
                raise EdgertError(f"expected a board of the fleet that is alive, got {show(board)}")
            return await self._request(str(board), "fleet.drain", {"verb": verb}, DRAIN_S)

        return handler

    async def serve(self, _: str, args: Mapping[str, Any]) -> Any:
        """Drains this board, or fills it again, for another agent."""
        if args.get("verb") not in ("drain", "fill"):
            raise EdgertError(f"expected drain or fill, got {show(args.get('verb'))}")
        async with self._busy:  # the end of a fill would end a drain that was asked for meanwhile
            return await (self._drain() if args["verb"] == "drain" else self._fill())

    async def _drain(self) -> Mapping[str, Any]:
        """Empties the board. People can ask for it again where a flow could not be moved."""
        before, others = self.drained, self._others()
        parts: Mapping[str, Mapping[str, Any]] = await self._gateway.client.call("part.status")
        self._remember(True, self.moved)
        told = await self._empty(parts, others, asked=True)
        return {"board": self._roster.own.name, "before": before, "moved": self.moved, **told}

    async def run(self) -> None:
        """Keeps a drained board empty. Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await guarded(self.look, log, "a drained board could not be looked after")

    async def look(self) -> None:
        """Moves on what came after the drain: the others know of a drain some seconds after it began."""
        async with self._busy:
            if not (self.drained and self._gateway.connected):
                return
            parts: Mapping[str, Mapping[str, Any]] = await self._gateway.client.call("part.status")
            new = {flow: part for flow, part in parts.items() if self._tried.get(flow) != part.get("plan")}
            if new:
                for flow, why in (await self._empty(new, self._others(), asked=False))["stays"].items():
                    log.warning("this board is drained, and flow %s stays: %s", flow, why)

    async def _empty(
        self, parts: Mapping[str, Mapping[str, Any]], others: list[Candidate], asked: bool
    ) -> dict[str, Any]:
        """Moves the operators of these flows away. `asked`: by people; else what they have pinned here stays."""
        candidates = await self._consenting(others)
        stays: dict[str, str] = {}
        pause_s = 0.0
        for flow, part in sorted(parts.items()):
            if not part.get("assignment"):
                continue
            self._tried[flow] = part["plan"]
            try:
                pause_s = max(pause_s, await self._move_away(flow, part, candidates, asked))
            except EdgertError as error:
                stays[flow] = str(error)
                asyncio.get_running_loop().call_later(AGAIN_S, self._tried.pop, flow, None)
        return {"stays": stays, "pause_s": pause_s}

    async def _move_away(self, flow: str, part: Mapping[str, Any], candidates: list[Candidate], asked: bool) -> float:
        own = self._roster.own.name
        operators = await self._flows.check(part["document"])
        figures = self._gateway.figures.get("flows", {}).get(flow, {})
        rings = {name: ring for (of, name), ring in self._rings.rings.items() if of == flow}
        moves: dict[str, str] = {}
        rules = Rules.untrusted(part.get("rules") or {})
        for one in leaving(flow, part, operators, figures, rings, own):
            if not asked and own in map(rules.pin_of, one.operators):
                continue
            needed = frozenset[str]().union(*map(rules.labels_of, one.operators))
            moves |= dict.fromkeys(one.operators, _freest(one, candidates, self._labelled(needed)))
        if not moves:
            return 0.0
        move = {"flow": flow, "moves": moves, "from": own, "drain": True, "reason": f"drain of {own}"}
        # first: a move may be made though its coordinator, or this agent, dies before it can say so
        self._remember(True, {**self.moved, flow: {**self.moved.get(flow, {}), **moves}})
        return float((await self._flows.control["fleet.relieve"](move))["pause_s"])

    def _others(self) -> list[Candidate]:
        others = [m for m in self._roster if m.state is State.ALIVE and m is not self._roster.own]
        found = [candidate for member in others if (candidate := candidate_untrusted(member, cooling=True)) is not None]
        if not found:
            raise EdgertError(
                "expected another board that takes operators; there is none that is alive and not drained"
            )
        return found

    async def _consenting(self, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates that take operators by their own newest state."""
        asked = (self._request(one.gateway, "fleet.admit", {"drain": True}, ADMIT_S) for one in candidates)
        told = await asyncio.gather(*asked, return_exceptions=True)
        took = [isinstance(answer, Mapping) and answer.get("admitted") is True for answer in told]
        return [one for one, takes in zip(candidates, took, strict=True) if takes]

    def _labelled(self, needed: frozenset[str]) -> set[str]:
        """The boards with these labels."""
        return {member.name for member in self._roster if needed <= labels_untrusted(member)}

    async def _fill(self) -> Mapping[str, Any]:
        """Moves operators back that the drain had moved away, unless they have been moved on or are gone. Can be asked
        for again where one could not come back."""
        moved, own, pause_s = self.moved, self._roster.own.name, 0.0
        came: dict[str, dict[str, str]] = {}
        stays: dict[str, str] = {}
        left: dict[str, dict[str, str]] = {}
        self._remember(False, moved)
        for flow, moves in moved.items():
            try:
                back = await self._back(flow, moves)
                for giver in sorted(set(back.values())):
                    some = {operator: own for operator, at in back.items() if at == giver}
                    asked = {"flow": flow, "moves": some, "from": giver, "drain": True, "reason": f"fill of {own}"}
                    pause_s = max(pause_s, (await self._flows.control["fleet.relieve"](asked))["pause_s"])
                    came[flow] = {**came.get(flow, {}), **dict.fromkeys(some, giver)}
            except EdgertError as error:
                stays[flow], left[flow] = str(error), moves
        self._remember(False, left)
        return {"board": own, "moved": came, "stays": stays, "pause_s": pause_s}

    async def _back(self, flow: str, moves: Mapping[str, str]) -> dict[str, str]:
        """Operator copy -> where it is, of those that come back: of pinned ones those that are pinned here, of others
        those that are where the drain moved them. Raises `EdgertError` where that is not known now."""
        if (await self._flows.leases.read(flow)).state == "removed":
            return {}
        own, parts = self._roster.own.name, await self._flows.running(flow)
        on, rules = placed(parts), newest(parts.values())
        pins = {operator: rules.pin_of(operator) for operator in moves}
        found = {
            operator: on.get(operator, own)
            for operator, to in moves.items()
            if pins[operator] == own or (pins[operator] is None and on.get(operator) == to)
        }
        return {operator: at for operator, at in found.items() if at != own}

    def _remember(self, drained: bool, moved: dict[str, dict[str, str]]) -> None:
        try:
            if drained or moved:
                replace_file(self._file, json.dumps({"drained": drained, "moved": moved}))
            else:
                self._file.unlink(missing_ok=True)
        except OSError as error:
            raise EdgertError(f"{self._file}: cannot be written: {error.strerror or error}") from error
        self.drained = self._moves.drained = drained
        self.moved = moved

    def _read(self) -> None:
        """Takes in the memory of the agent before. A damaged one is set aside: this board is not drained then."""
        try:
            found = json.loads(self._file.read_text())
            moved = found.get("moved") if isinstance(found, dict) and type(found.get("drained")) is bool else None
            if not isinstance(moved, dict) or not all(isinstance(moves, dict) for moves in moved.values()):
                raise ValueError(f"got {show(found)}")
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            aside = self._file.with_suffix(".damaged")
            log.error(
                "%s: expected what `edgert fleet drain` wrote: %s. It is set aside as %s: this board is not drained,"
                " and what was moved away does not come back by itself (see edgert fleet moves)", self._file, error,
                aside,
            )  # fmt: skip
            self._moves.drain_damaged = True
            with contextlib.suppress(OSError):
                self._file.replace(aside)
            return
        self.drained, self.moved = found["drained"], {str(flow): dict(moves) for flow, moves in moved.items()}


def _freest(one: Movable, candidates: list[Candidate], may: Collection[str]) -> str:
    """Returns the board with the least interference of those that `may` run the instance; one that stays within its
    room before one that does not. It counts the instance from now on. Raises `EdgertError` where none may."""
    footprint = Footprint(one.ring)

    def rank(candidate: Candidate) -> tuple[bool, float, float, str]:
        over = candidate.high.plus(candidate.crowd.share(footprint.ring)).most > 1
        cost = crossing(one, candidate.gateway)
        return over, candidate.crowd.joined(footprint) * (1 + cost), cost, candidate.gateway

    able = [candidate for candidate in candidates if candidate.gateway in may]
    if not able:
        raise EdgertError(f"no other board that takes operators has the labels that {', '.join(one.operators)} needs")
    best = min(able, key=rank)
    best.crowd.change(arrived=[footprint])
    high = best.high.plus(best.crowd.share(footprint.ring))
    candidates[candidates.index(best)] = best._replace(high=high)
    return best.gateway
