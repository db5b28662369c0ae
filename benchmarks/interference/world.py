"""A simulated fleet on a virtual clock: boards with counters, decided for by the product's own code.

Every board reads its counters, predicts, tells the others its packed ring and its peaks, and decides by what the others
told a look ago; the other board admits by its own state. A board that is asked for more than it has serves all its
instances more slowly by the same factor, and counts what it served.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from agent.interference.exchange import Candidate, Exchange, Move
from agent.interference.forecasts import Forecasts
from agent.interference.peaks import Load
from agent.interference.ring import NOTHING, pack, unpack_untrusted
from agent.interference.score import Crowd, Footprint, Room

LOOK_S: Final = 5.0
ROOM: Final = Room(0.95, 0.95e6)
"""95 % of one core and of 1 MB/s."""
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
    """Served since it is on its board."""


@dataclass(slots=True)
class Board:
    """One board of the fleet."""

    name: str
    work: dict[str, Work]
    external: Load = Load()
    """Parts of its capacity that other programs use."""
    exchange: Exchange = field(default_factory=Exchange)
    forecasts: Forecasts = field(default_factory=Forecasts)
    crowd: Crowd = field(default_factory=lambda: Crowd(NOTHING, ROOM))
    footprints: dict[str, Footprint] = field(default_factory=dict)
    told: tuple[bytes, Load] = (pack(NOTHING), Load())
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
        """Reads the counters and tells the others."""
        self.forecasts.observe(self._figures(now))
        rings = self.forecasts.rings(1.0)
        load, link = (self.used.cpu + self.external.cpu) * CAPACITY.cpu, self.external.link * CAPACITY.link
        self.crowd = Crowd(self.forecasts.board(rings.values(), 1.0, load, link), ROOM)
        crowded = self.exchange.crowded(self.crowd, now)
        self.footprints = {name: Footprint(ring) for (_, name), ring in rings.items()} if crowded else {}

    def tell(self) -> None:
        self.told = pack(self.crowd.ring), self.exchange.peaks.load

    def _figures(self, now: float) -> dict[str, Any]:
        instances = {name: {"rows_in": one.rows, "busy_s": one.rows * one.cpu_s} for name, one in self.work.items()}
        edges = [{"from": name, "bytes": one.rows * one.row_bytes} for name, one in self.work.items()]
        return {"monotonic": now, "flows": {FLOW: {"instances": instances, "edges": edges}}}

    def candidate(self) -> Candidate:
        """As the others know it."""
        packed, high = self.told
        return Candidate(self.name, Crowd(unpack_untrusted(packed), ROOM), high)


class Fleet:
    """All boards. `random` says in which order they look."""

    def __init__(self, boards: Iterable[Board], random: Random, moving: bool = True) -> None:
        self.boards = {board.name: board for board in boards}
        self.moves: list[tuple[float, str, Move]] = []
        """When, from, and the decision."""
        self.refused = 0
        self._random, self._moving = random, moving

    def run(self, start: float, end: float) -> Iterator[float]:
        """Yields the time after each look."""
        now = start
        while now < end:
            now += LOOK_S
            for board in self.boards.values():
                board.serve(now)
            if self._moving:
                for board in self._random.sample(list(self.boards.values()), len(self.boards)):
                    board.predict(now)
                    self._decide(board, now)
                for board in self.boards.values():
                    board.tell()
            yield now

    def _decide(self, board: Board, now: float) -> None:
        name = board.exchange.offer(board.crowd, board.footprints, now)
        if name is None:
            return
        footprint, others = board.footprints[name], [b for b in self.boards.values() if b is not board]
        candidates = [other.candidate() for other in others if not other.exchange.cooling(now)]
        move = board.exchange.choose(name, footprint, board.crowd, candidates)
        most = board.exchange.most_there(footprint, board.crowd)
        if move is None or not self.boards[move.to].exchange.admits(footprint, self.boards[move.to].crowd, most, now):
            board.exchange.refused(name, now)
            self.refused += 1
            return
        target, load = self.boards[move.to], board.crowd.share(footprint.ring)
        work = target.work[name] = board.work.pop(name)
        work.rows = 0.0
        del board.footprints[name]
        board.exchange.gave(load, now)
        target.exchange.took(name, load, now)
        self.moves.append((now, board.name, move))

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


def steady(rate: float) -> Callable[[float], float]:
    return lambda now: rate


def wave(rate: float, part: float, period_s: float, phase: float) -> Callable[[float], float]:
    """A sine around `rate`, up and down by `part` of it. `phase`: part of a period."""
    return lambda now: rate * (1 + part * math.sin(2 * math.pi * (now / period_s + phase)))
