"""Moves that the fleet makes by itself: a board that is predicted to be crowded hands instances over to a freer one.

Each board's agent decides for its own board (`agent.interference.exchange`), asks the other board's agent to admit the
instance, and has the flow's coordinator change the plan. So a plan has one writer, and a move is made or undone as one
that people ask for. Instances with a source, an operator that publishes or one that is pinned stay.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.fleet.flows import FleetFlows, placed
from agent.fleet.guarded import guarded
from agent.fleet.history import KEPT, Why
from agent.fleet.local_gateway import LocalGateway
from agent.fleet.movable import Movable, check_leaving, copies_here, crossing, movable
from agent.fleet.rings import SECTION as RING
from agent.fleet.rings import FleetRings
from agent.fleet.status import section_untrusted
from agent.interference.exchange import Candidate, Exchange, Move, Rules
from agent.interference.past_prediction import PastPrediction
from agent.interference.peaks import Load
from agent.interference.ring import HORIZON, later, pack, unpack_untrusted
from agent.interference.score import Crowd, Footprint, Room
from agent.lease.leases import AskBoard
from agent.membership.members import Member, State
from agent.membership.roster import Roster
from agent.migration.plan_change import UnfinishedError
from agent.network.transport import UnansweredError
from agent.placement.rules import newest
from edgert.control.server import Handler
from edgert.core.clock import Clock
from edgert.core.errors import EdgertError, ProtocolError, show
from edgert.core.settings.agent import Moves

log = logging.getLogger(__name__)
SECTION: Final = "moves"
EXPECTED_S: Final = 120.0
"""An instance that was admitted and did not come in so long does not come."""
ADMIT_S: Final = 5.0
MOST_ASKED: Final = 5
"""Boards that are asked to admit one instance, one after the other."""
TOLD_S: Final = 5.0
"""Longest wait for what another board tells of its moves."""
MOST_REASON: Final = 300
"""Characters of a reason that another board gives."""


@dataclass(frozen=True, slots=True)
class Expected:
    """An instance that this board has admitted."""

    load: Load
    at: float
    urgent: bool


class FleetMoves:
    """The agent's part that moves instances away before they are disturbed."""

    def __init__(
        self, settings: Moves, roster: Roster, gateway: LocalGateway, flows: FleetFlows, rings: FleetRings,
        request: AskBoard, clock: Clock,
    ) -> None:  # fmt: skip
        self._settings, self._roster, self._gateway = settings, roster, gateway
        self._flows, self._rings, self._request, self._clock = flows, rings, request, clock
        self.exchange = Exchange(Rules(crowded=settings.crowded))
        self.drained = False
        """People want no operators here."""
        self.drain_damaged = False
        """The memory of a drain was damaged when the agent began."""
        self.counts = {"made": 0, "refused": 0}
        """Moves of instances of this board since the agent began."""
        self.past_prediction = PastPrediction()
        self._expected: dict[tuple[str, ...], Expected] = {}
        """Operator copies of an instance → what this board admitted of it."""
        self._operators: dict[tuple[str, int], Mapping[str, Mapping[str, Any]]] = {}
        self.refusals: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.control: dict[str, Handler] = {"fleet.moves": self._moves}
        flows.add("relieve", self._relieve)

    # -- what the others are told and ask

    def gossip_section(self) -> dict[str, Any]:
        """The section that this agent gossips: room and peaks in steps of a percent, so that not every look is news."""
        room, high = self.room, self.exchange.peaks.load
        return {
            "room": [round(room.cpu, 4), round(room.link)],
            "high": [round(high.cpu, 2), round(high.link, 2)],
            "takes": self._takes(),
            "spent": self.exchange.spent(self._clock.monotonic()),
        }

    @property
    def room(self) -> Room:
        """The part of this board that operators may use."""
        rings, settings = self._rings, self._settings
        return Room(rings.cores * settings.cpu, rings.bandwidth * settings.bandwidth)

    def _takes(self) -> bool:
        enabled = self._settings.enabled and not self.drained
        return enabled and self._gateway.connected and not self.exchange.cooling(self._clock.monotonic())

    async def serve_admission(self, sender: str, args: Mapping[str, Any]) -> Any:
        """Another board offers an instance: `{"copies": [flow/operator copy, ...], "ring": packed, "most": the part of
        its room that this board may need after the move, "urgent": bool}`; or `{"drain": True}`: people empty a board,
        and ask whether this one takes operators at all."""
        if args.get("drain") is True:
            return {"admitted": self._gateway.connected and not self.drained}
        told, packed, most = args.get("copies"), args.get("ring"), args.get("most")
        copies = tuple(copy for copy in told if isinstance(copy, str)) if isinstance(told, list) else ()
        if not copies or not isinstance(packed, bytes) or not isinstance(most, int | float):
            raise EdgertError(f"expected operator copies, a ring and a part of the room, got {show(dict(args))}")
        now, crowd, urgent = self._clock.monotonic(), self._crowd(), args.get("urgent") is True
        footprint = Footprint(unpack_untrusted(packed))
        if not self._takes() or not self.exchange.admits(footprint, crowd, most, now, urgent):
            return {"admitted": False}
        load = crowd.share(footprint.ring)
        self._expected[copies] = Expected(load, now, urgent)
        self.exchange.took(copies, load, now, urgent)
        log.info("%s of %s: admitted", ", ".join(copies), sender)
        return {"admitted": True}

    # -- the look

    async def run(self) -> None:
        """Looks for an instance to offer after each prediction. Until cancelled."""
        while True:
            await self._rings.changed.wait()
            self._rings.changed.clear()
            await guarded(self.look, log, "moves could not be looked after")

    async def look(self) -> None:
        """One evaluation, and the move that comes of it."""
        now, crowd = self._clock.monotonic(), self._crowd()
        room, (cpu, link) = self.room, self._rings.used
        used = Load(cpu / room.cpu, link / room.link)
        self.past_prediction.observe(crowd, used, now)
        others = self._rings.others / room.cpu
        self.exchange.peaks.observe(used, now, others)  # what came true, not what was feared
        found = await self._movable() if self.exchange.crowded(crowd, now) else {}
        footprints = {name: Footprint(one.ring) for name, one in found.items() if self.exchange.free(one.copies, now)}
        name = self.exchange.offer(crowd, footprints, now)
        self._settle_expected(now)
        if name is None or not self._settings.enabled:
            return
        one, footprint = found[name], footprints[name]
        candidates = self._candidates(one)
        asked: list[str] = []
        while len(asked) < MOST_ASKED:
            left = [other for other in candidates if other.gateway not in asked]
            move = self.exchange.choose(name, footprint, crowd, left)
            if move is None:
                break
            if await self._admitted(move, one, footprint):
                await self._make(move, one, crowd.share(footprint.ring))
                return
            asked.append(move.to)  # it cools down, perhaps: another crowded board was faster
        if asked:
            self._refuse(name, one, f"{', '.join(asked)}: not admitted there")
        else:
            why = {c.gateway: self.exchange.why_not(footprint, crowd, c) for c in candidates}
            self._refuse(name, one, f"no other board takes it: {_why_none(why, self._roster)}")

    def _crowd(self) -> Crowd:
        return Crowd(self._rings.board, self.room)

    async def _movable(self) -> dict[str, Movable]:
        """Instances that may leave this board, by `flow/instance`."""
        parts = await self._gateway.client.call("part.status")
        found: dict[str, Movable] = {}
        for flow, part in parts.items():
            if part.get("state") == "running" and part.get("assignment"):
                operators = await self._operators_of(flow, part)
                figures = self._gateway.figures.get("flows", {}).get(flow, {})
                rings = {name: ring for (of, name), ring in self._rings.rings.items() if of == flow}
                found |= movable(flow, part, operators, figures, rings, self._roster.own.name)
        return found

    async def _operators_of(self, flow: str, part: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        key = flow, int(part["version"])
        if key not in self._operators:
            self._operators = {known: told for known, told in self._operators.items() if known[0] != flow}
            self._operators[key] = await self._flows.check(part["document"])
        return self._operators[key]

    def _candidates(self, one: Movable) -> list[Candidate]:
        """The boards that take instances, with what a move there would add to the flow's placement."""
        now = self._clock.monotonic()
        others = [m for m in self._roster if m.state is State.ALIVE and m is not self._roster.own]
        found = [candidate for member in others if (candidate := candidate_untrusted(member, now=now)) is not None]
        return [c._replace(cost=crossing(one, c.gateway)) for c in found]

    async def _admitted(self, move: Move, one: Movable, footprint: Footprint) -> bool:
        most = self.exchange.most_there(footprint, self._crowd())
        packed, urgent = pack(footprint.ring), self.exchange.urgent
        asked = {"copies": list(one.copies), "ring": packed, "most": most, "urgent": urgent}
        try:
            answer = await self._request(move.to, "fleet.admit", asked, ADMIT_S)
        except EdgertError as error:
            log.debug("%s was not asked to admit %s: %s", move.to, move.instance, error)
            return False
        return isinstance(answer, Mapping) and answer.get("admitted") is True

    async def _make(self, move: Move, one: Movable, load: Load) -> None:
        moves, own = dict.fromkeys(one.operators, move.to), self._roster.own.name
        asked = {"flow": one.flow, "moves": moves, "from": own, "reason": move.reason}
        try:
            made = await self._flows.control["fleet.relieve"](asked)
        except UnansweredError as error:
            made = {"unfinished": str(error)}
        except EdgertError as error:
            self._refuse(move.instance, one, f"it was not moved to {move.to}: {error}")
            return
        self.exchange.gave(load, self._clock.monotonic())
        if why := made.get("unfinished"):
            self.exchange.refused(one.copies, self._clock.monotonic())  # left alone, should it stay
            log.warning("%s; it is not known whether the move is made: %s", move.reason, why)
            self._note(move.instance, f"is moved to {move.to}, perhaps later: {why}", move.to)
            return
        self.counts["made"] += 1
        log.info("%s; its flow stood still for %.0f ms", move.reason, 1e3 * made["pause_s"])

    def _refuse(self, instance: str, one: Movable, why: str) -> None:
        self.exchange.refused(one.copies, self._clock.monotonic())
        log.warning("%s is crowded and %s stays: %s", self._roster.own.name, instance, why)
        self.counts["refused"] += 1
        self._note(instance, f"stays: {why}")

    def _note(self, instance: str, reason: str, to: str | None = None) -> None:
        """For people: what became of an instance that was offered, where no coordinator says it was moved."""
        flow, _, name = instance.partition("/")
        self.refusals.append({
            "at": self._clock.wall(), "flow": flow, "instance": instance, "from": self._roster.own.name, "to": to,
            "by": "board", "reason": f"{name} {reason}",
        })  # fmt: skip

    def _settle_expected(self, now: float) -> None:
        """Forgets instances that were admitted and came, or did not."""
        here = copies_here(self._gateway.figures) if self._expected else set[str]()
        for copies, expected in list(self._expected.items()):
            if not here.isdisjoint(copies):
                del self._expected[copies]
            elif now > expected.at + EXPECTED_S:
                del self._expected[copies]
                self.exchange.missed(expected.load, (expected.at, expected.urgent))

    # -- as the flow's coordinator

    async def _relieve(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name, "moves": {operator: gateway}, "from": gateway, "drain": bool, "reason": text}`: the move, if
        `check_leaving` lets it. Unlike a move that people ask for it pins nothing."""
        flow, moves, giver, drain = str(args["flow"]), args.get("moves"), args.get("from"), args.get("drain") is True
        why = Why("drain" if drain else "board", str(args.get("reason", ""))[:MOST_REASON])
        if not isinstance(moves, Mapping) or not moves:
            raise EdgertError(f"expected moves: {{operator: gateway}}, got {show(moves)}")
        async with self._flows.changing(flow):
            parts = await self._flows.running(flow)
            before = placed(parts)
            check_leaving(flow, before, newest(parts.values()), moves, giver, drain)
            try:
                return await self._flows.change(flow, parts, {**before, **moves}, why)
            except UnfinishedError as error:
                if drain:
                    raise
                return {"unfinished": str(error)}  # it is decided: a refusal would be offered again

    # -- for people

    def measured(self) -> Mapping[str, Any]:
        """Returns figures for Prometheus. Loads are by resource, as parts of the board's room."""
        return {
            "counts": self.counts,
            "drained": self.drained,
            "drain_damaged": self.drain_damaged,
            "changes": self._flows.history.totals,
            **self._load(),
        }

    def _load(self) -> dict[str, dict[str, float]]:
        """Load by resource, as parts of the board's room: now, as predicted for now, and the greatest to come."""
        before = self.past_prediction.before
        return {
            "load": self.past_prediction.now._asdict(),
            "load_predicted_before": {} if before is None else before._asdict(),
            "load_predicted": self._crowd().load._asdict(),
        }

    async def _moves(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"all": bool}`: the moves that this agent made as a coordinator, and those that its board found no other one
        for, newest last, and the board's load; of all boards that answer where asked for. `silent`: the boards that do
        not."""
        own = self._roster.own.name
        answers = {own: self._told_here()}
        if args.get("all", True):
            others = [m.name for m in self._roster if m.state is State.ALIVE and m is not self._roster.own]
            asked = (self._request(name, "fleet.moves", {}, TOLD_S) for name in others)
            told = await asyncio.gather(*asked, return_exceptions=True)
            answers |= {name: one for name, one in zip(others, told, strict=True) if isinstance(one, dict)}
        voters = {m.name for m in self._roster if m.present} | self._flows.leases.members
        found = [move for answer in answers.values() for move in answer.get("moves", [])]
        return {
            "moves": sorted(found, key=lambda move: move["at"]),
            "loads": {name: answer["load"] for name, answer in answers.items() if "load" in answer},
            "silent": sorted(voters - answers.keys()) if args.get("all", True) else [],
            "enabled": self._settings.enabled,
        }

    def _told_here(self) -> dict[str, Any]:
        return {"moves": [*self._flows.history.kept, *self.refusals], "load": self._load()}

    async def serve_moves(self, _: str, __: Mapping[str, Any]) -> Any:
        """Another agent asks for this board's moves."""
        return self._told_here()


def _why_none(why: Mapping[str, str], roster: Roster) -> str:
    """Says of each other board why it does not get an instance; of the first few, if they are many. `why`: of those
    that take instances at all."""
    others = sorted(m.name for m in roster if m.state is State.ALIVE and m is not roster.own)
    told = [why.get(name) or f"{name} takes none now" for name in others]
    if len(told) > MOST_ASKED:
        told[MOST_ASKED:] = [f"{len(told) - MOST_ASKED} more"]
    return "; ".join(told) or "none is there"


def candidate_untrusted(member: Member, cooling: bool = False, now: float | None = None) -> Candidate | None:
    """A board that takes instances, as it told; None of one that does not, or tells nonsense. `cooling`: also one that
    takes none by itself, now or at all; never one that is drained. `now`: monotonic; its ring is seen as of then, and
    None is returned where that is too late. A board whose gateway is away has no links."""
    told, board = section_untrusted(member, SECTION), section_untrusted(member, "board")
    link, ring = board.get("link"), member.sections.get(RING)
    takes = board.get("drained") is False and (cooling or told.get("takes") is True)
    if not takes or not isinstance(link, list) or len(link) != 2 or not link[1] or ring is None:
        return None
    try:
        room, high = Room(*_numbers(told.get("room"))), Load(*_numbers(told.get("high")))
        age_s = 0.0 if now is None else now - ring.heard
        if age_s >= HORIZON:
            return None
        crowd = Crowd(later(unpack_untrusted(ring.payload), age_s), room)
        return Candidate(member.name, crowd, high, spent=told.get("spent") is True)
    except (ValueError, ArithmeticError, ProtocolError):
        return None


def _numbers(told: Any) -> tuple[float, float]:
    fits = isinstance(told, list) and len(told) == 2 and all(type(n) in (int, float) and 0 <= n < 1e12 for n in told)
    if not fits:
        raise ValueError(f"expected two numbers of at least 0, got {show(told)}")
    return told[0], told[1]
