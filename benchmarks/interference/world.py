"""A simulated fleet on a virtual clock, in which the product's own code (`agent.fleet.moves`) decides and moves.

Every board reads its counters, predicts, tells the others its packed ring and its peaks, and decides by what the others
told a look ago; the other board admits by its own state. All instances are of one flow, and its coordinator changes the
plan at once. A board that is asked for more than it has serves all its instances more slowly by the same factor, and
counts what it served.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, Final, cast

from agent.fleet.history import MoveHistory
from agent.fleet.moves import SECTION, FleetMoves
from agent.fleet.rings import SECTION as RING
from agent.interference.forecasts import Forecasts
from agent.interference.peaks import Load
from agent.interference.ring import NOTHING, Ring, pack
from agent.interference.score import Room
from agent.membership.members import Member, Section, State, Version
from edgert.core.clock import VirtualClock
from edgert.core.packing import pack as pack_section
from edgert.core.settings.agent import Moves

LOOK_S: Final = 5.0
CAPACITY: Final = Room(1.0, 1e6)
QUEUED_S: Final = 1.0
"""What waits on a board that is asked for too much: sources stop when so many seconds of work are queued."""
FLOW: Final = "f"


@dataclass(slots=True)
class Work:
    """An instance: what arrives, and what a row costs."""

    rate: Callable[[float], float]
    """Rows per second at a time."""
    cpu_s: float
    row_bytes: float
    rows: float = 0.0
    """Served since the flow runs by its plan."""


@dataclass(slots=True)
class Board:
    """One board of the fleet."""

    name: str
    work: dict[str, Work]
    external: Load = Load()
    """Parts of its capacity that other programs use."""
    forecasts: Forecasts = field(default_factory=Forecasts)
    plan: int = 1
    """Of the flow."""
    ring: Ring = NOTHING
    read: tuple[float, float] = (0.0, 0.0)
    """Cores and bytes per second in use, by the last two readings."""
    rings: Mapping[tuple[str, str], Ring] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    used: Load = Load()
    """Parts of its capacity that its instances used since the last look."""
    asked: float = 0.0
    """What they asked for, of the scarcer resource, as a part of what other programs leave."""
    served: float = 0.0
    """Rows per second, since the last look."""

    def serve(self, now: float) -> None:
        """Works for the time of a look."""
        rates = [one.rate(now) for one in self.work.values()]
        cpu = sum(rate * one.cpu_s for rate, one in zip(rates, self.work.values(), strict=True)) / CAPACITY.cpu
        link = sum(rate * one.row_bytes for rate, one in zip(rates, self.work.values(), strict=True)) / CAPACITY.link
        self.asked = max(cpu / (1 - self.external.cpu), link / (1 - self.external.link))
        factor = min(1.0, 1 / self.asked) if self.asked else 1.0
        for rate, one in zip(rates, self.work.values(), strict=True):
            one.rows += rate * factor * LOOK_S
        self.served = sum(rates) * factor
        self.used = Load(cpu * factor, link * factor)

    def predict(self, now: float) -> None:
        """Reads the counters."""
        self.figures = self._figures(now)
        self.forecasts.observe(self.figures)
        self.rings = self.forecasts.rings(1.0)
        load, link = (self.used.cpu + self.external.cpu) * CAPACITY.cpu, self.external.link * CAPACITY.link
        self.ring = self.forecasts.board(self.rings.values(), 1.0, load, link)
        self.read = self.forecasts.used(1.0, load, link)

    def _figures(self, now: float) -> dict[str, Any]:
        instances = {
            name: {"rows_in": one.rows, "busy_s": one.rows * one.cpu_s, "operators": (name,)}
            for name, one in self.work.items()
        }
        edges = [{"from": name, "bytes": one.rows * one.row_bytes} for name, one in self.work.items()]
        return {"monotonic": now, "flows": {FLOW: {"plan": self.plan, "instances": instances, "edges": edges}}}


class BoardAgent:
    """What `FleetMoves` of one board needs of the parts of its agent, beside the board's figures and rings."""

    connected = True

    def __init__(self, fleet: Fleet, board: Board) -> None:
        self.fleet, self.runs = fleet, board
        self.own = self.member = Member(board.name, ("sim", 1), Version(1, 1, State.ALIVE), 0.0)
        self.cores, self.bandwidth = CAPACITY
        self.client = SimpleNamespace(call=self._call)
        self.control: dict[str, Any] = {}
        self.history = MoveHistory(fleet.clock)
        me = cast(Any, self)
        self.moves = FleetMoves(Moves(), me, me, me, me, self._request, fleet.clock)
        self.tell()

    def look(self, now: float) -> None:
        """Predicts, and moves an instance if that pays."""
        self.runs.predict(now)
        _at_once(self.moves.look())

    # of the rings and the gateway

    @property
    def rings(self) -> Mapping[tuple[str, str], Ring]:
        return self.runs.rings

    @property
    def board(self) -> Ring:
        return self.runs.ring

    @property
    def used(self) -> tuple[float, float]:
        return self.runs.read

    @property
    def others(self) -> float:
        return self.runs.external.cpu * CAPACITY.cpu

    @property
    def figures(self) -> Mapping[str, Any]:
        return self.runs.figures

    async def _call(self, verb: str) -> Any:
        return {FLOW: self.fleet.part}

    # of the roster, and of other boards

    def __iter__(self) -> Iterator[Member]:
        return (agent.member for agent in self.fleet.agents.values())

    def tell(self) -> None:
        told = {
            SECTION: pack_section(self.moves.gossip_section()), RING: pack(self.board),
            "board": pack_section({"link": ["sim", 1], "drained": False}),
        }  # fmt: skip
        self.member.sections = {
            name: Section(1, 1, payload, self.fleet.clock.monotonic()) for name, payload in told.items()
        }

    async def _request(self, to: str, verb: str, args: Mapping[str, Any], timeout_s: float) -> Any:
        return await self.fleet.agents[to].moves.serve_admission(self.own.name, args)

    # of the flow's coordinator

    def add(self, verb: str, do: Any) -> None:
        self.control[f"fleet.{verb}"] = do

    @asynccontextmanager
    async def changing(self, flow: str) -> AsyncIterator[None]:
        yield

    async def check(self, document: Any) -> Mapping[str, Any]:
        return self.fleet.operators

    async def running(self, flow: str) -> Mapping[str, Any]:
        return {"any": self.fleet.part}

    async def change(self, flow: str, parts: Any, after: Mapping[str, str], why: Any) -> Mapping[str, Any]:
        self.fleet.change(after)
        return {"plan": len(self.fleet.moves), "pause_s": 0.0}


class Fleet:
    """All boards. `random` says in which order they look."""

    def __init__(self, boards: Iterable[Board], random: Random, moving: bool = True) -> None:
        self.boards = {board.name: board for board in boards}
        self.moves: list[tuple[float, str, str, str]] = []
        """When, instance, from, to."""
        self._random, self._moving = random, moving
        self.clock = VirtualClock()
        on = {name: [board.name, -1] for board in self.boards.values() for name in board.work}
        self.part: dict[str, Any] = {"state": "running", "version": 1, "plan": 1, "document": {}, "assignment": on}
        self.operators = {name: {"type": "map", "source": False, "inputs": ()} for name in on}
        self.agents: dict[str, BoardAgent] = {}
        for name, board in self.boards.items():
            self.agents[name] = BoardAgent(self, board)

    def run(self, start: float, end: float) -> Iterator[float]:
        """Yields the time after each look."""
        now = start
        self.clock.advance(start - self.clock.monotonic())
        while now < end:
            now += LOOK_S
            self.clock.advance(LOOK_S)
            for board in self.boards.values():
                board.serve(now)
            if self._moving:
                for agent in self._random.sample(list(self.agents.values()), len(self.agents)):
                    agent.look(now)
                for agent in self.agents.values():
                    agent.tell()
            yield now

    def change(self, after: Mapping[str, str]) -> None:
        """The next plan."""
        for name, (giver, _) in self.part["assignment"].items():
            if giver != after[name]:
                self.boards[after[name]].work[name] = self.boards[giver].work.pop(name)
                self.part["assignment"][name] = [after[name], -1]
                self.moves.append((self.clock.monotonic(), name, giver, after[name]))
        for board in self.boards.values():
            board.plan += 1
            for work in board.work.values():  # as gateways do
                work.rows = 0.0

    @property
    def refused(self) -> int:
        return sum(agent.moves.counts["refused"] for agent in self.agents.values())

    @property
    def served(self) -> float:
        """Rows per second of all boards."""
        return sum(board.served for board in self.boards.values())

    def p99_s(self, share: float = 0.01) -> float:
        """The time in a board that 1 % of the rows exceed. A board is a queue with one server whose times are
        exponential (M/M/1); where more is asked for than it can give, its queue is full."""
        rows, rates = [], []
        for board in self.boards.values():
            if not board.served:
                continue
            each_s = min(1.0, board.asked) / board.served
            full = board.asked >= 1
            rows.append(board.served)
            rates.append(1 / QUEUED_S if full else max((1 - board.asked) / each_s, 1 / QUEUED_S))
        low, high = 0.0, 10 * QUEUED_S
        for _ in range(50):
            middle = (low + high) / 2
            over = sum(row * math.exp(-rate * middle) for row, rate in zip(rows, rates, strict=True)) / sum(rows)
            low, high = (middle, high) if over > share else (low, middle)
        return high


def _at_once(look: Coroutine[Any, Any, None]) -> None:
    """Runs what waits for nothing in this world."""
    try:
        look.send(None)
    except StopIteration:
        return
    raise AssertionError("expected a look that waits for nothing")


def steady(rate: float) -> Callable[[float], float]:
    return lambda now: rate


def wave(rate: float, part: float, period_s: float, phase: float) -> Callable[[float], float]:
    """A sine around `rate`, up and down by `part` of it. `phase`: part of a period."""
    return lambda now: rate * (1 + part * math.sin(2 * math.pi * (now / period_s + phase)))
