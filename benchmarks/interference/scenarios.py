"""The paper's scenarios (TPDS 2017, sections 5.3 to 5.5) with the product's decisions, and two of our own.

15 boards have 150 instances each, of which 30 are active; on five boards all become active: 70 per board would be
ideal. Of two kinds of instances one needs more CPU, the other more of the network. Spread evenly they need 77 % of each
board (table 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from statistics import fmean, pstdev
from typing import Final

from agent.interference.peaks import Load
from benchmarks.interference.world import Board, Fleet, Work, steady, wave


@dataclass(frozen=True, slots=True)
class Size:
    """Of a fleet."""

    boards: int = 15
    hot: int = 5
    active: int = 30
    """Instances of a board that is not hot."""
    all: int = 150
    """Of a hot one."""

    @property
    def even(self) -> int:
        """Instances of each board if they were spread evenly."""
        return (self.boards * self.active + self.hot * (self.all - self.active)) // self.boards


PAPERS: Final = Size()
SMALL: Final = Size(6, 2, 6, 30)
"""The same parts."""
USED: Final = 0.77
ROWS: Final = 20.0
"""Rows per second of an instance, on average."""
PERIODS_S: Final = (150.0, 300.0, 420.0)
"""Of variable rates. The season of the forecasts is 300 s."""
VARIED: Final = 0.5
EXTERNAL: Final = Load(0.4, 0.4)
"""What other programs take of a third of the boards."""
EXTERNAL_USED: Final = 0.7
"""What the even flows need of each board there: a board that shares cannot give it, the fleet can."""
Rate = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a fleet. Rates in rows/s, times in s."""

    seed: int
    first: float
    """Throughput without a move."""
    last: float
    """In the last tenth of the time."""
    ideal: float
    """With instances spread evenly from the beginning, no external load and no move, in the same time."""
    p99_first_s: float
    p99_s: float
    p99_ideal_s: float
    moves: int
    settled_s: float
    """When the last move was made."""
    refused: int
    spread: Load
    """Standard deviation over boards of what is used of CPU and network, at the end."""
    spread_25: Load
    """After 25 minutes."""

    @property
    def short(self) -> float:
        """Part of the ideal throughput that is missing."""
        return 1 - self.last / self.ideal

    @property
    def recovered(self) -> float:
        """Part of the lost throughput that is back."""
        return (self.last - self.first) / (self.ideal - self.first)

    @property
    def p99_less(self) -> float:
        """Part by which p99 fell."""
        return 1 - self.p99_s / self.p99_first_s


def works(random: Random, number: int, variable: bool, unit: float) -> list[Work]:
    """Half of them of each kind, one after the other. `unit`: part of a board that a row needs of the resource that its
    instance needs less of; of the other it needs twice as much."""

    def rate() -> Rate:
        return wave(ROWS, VARIED, random.choice(PERIODS_S), random.random()) if variable else steady(ROWS)

    costs = ((2 * unit, unit * 1e6), (unit, 2 * unit * 1e6))
    return [Work(rate(), *costs[n % 2]) for n in range(number)]


def internal(seed: int, variable: bool, minutes: int = 60, size: Size = PAPERS) -> Result:
    """Section 5.3: a third of the boards becomes hot."""

    def hot() -> list[Board]:
        numbers = [size.all if n < size.hot else size.active for n in range(size.boards)]
        return _dealt(seed, variable, numbers, USED)

    return _compare(seed, minutes, hot, lambda: _dealt(seed, variable, [size.even] * size.boards, USED))


def external(seed: int, minutes: int = 60, size: Size = PAPERS) -> Result:
    """Section 5.4: other programs run on a third of the boards, the flows are even."""

    def even() -> list[Board]:
        return _dealt(seed, True, [size.even] * size.boards, EXTERNAL_USED)

    def disturbed() -> list[Board]:
        boards = even()
        for board in boards[: size.hot]:
            board.external = EXTERNAL
        return boards

    return _compare(seed, minutes, disturbed, even)


def _dealt(seed: int, variable: bool, numbers: list[int], used: float) -> list[Board]:
    """So many instances on each board; the same ones for the same seed and sum. Spread evenly they need `used` of each
    board. Dormant ones cost nothing and are left out."""
    unit = used / (sum(numbers) / len(numbers)) / 1.5 / ROWS
    made = list(enumerate(works(Random(seed), sum(numbers), variable, unit)))
    boards: list[Board] = []
    for n, number in enumerate(numbers):
        boards.append(Board(f"b{n}", {f"i{i}": work for i, work in made[:number]}))
        del made[:number]
    return boards


def _compare(seed: int, minutes: int, disturbed: Callable[[], list[Board]], ideal: Callable[[], list[Board]]) -> Result:
    end, tail = 60.0 * minutes, 54.0 * minutes
    figures = []
    for make, moving in ((disturbed, False), (ideal, False), (disturbed, True)):
        fleet = Fleet(make(), Random(seed), moving)
        served, p99, early = [], [], Load()
        for now in fleet.run(0.0, end):
            if now > tail:
                served.append(fleet.served)
                p99.append(fleet.p99_s())
            if now <= 25 * 60:
                early = _spread(fleet)
        figures.append((fmean(served), fmean(p99)))
    (first, p99_first), (best, p99_ideal), (last, p99_last) = figures
    settled = fleet.moves[-1][0] if fleet.moves else 0.0
    return Result(
        seed, first, last, best, p99_first, p99_last, p99_ideal, len(fleet.moves), settled, fleet.refused,
        _spread(fleet), early,
    )  # fmt: skip


def _spread(fleet: Fleet) -> Load:
    used = [board.used for board in fleet.boards.values()]
    return Load(pstdev(load.cpu for load in used), pstdev(load.link for load in used))


def moves_per_board_and_hour(
    seed: int, hours: int, period_s: float, boards: int = 6, instances: int = 12
) -> list[float]:
    """Section 5.5: the load of each board is a sine, at its top near all it has; the boards' phases differ. See
    `_by_hour`."""
    random = Random(seed)
    made = []
    for n in range(boards):
        phase, need = n / boards, 0.6 / instances
        rates = [wave(ROWS, 0.5, period_s, phase + random.uniform(-0.05, 0.05)) for _ in range(instances)]
        weights = [random.uniform(0.5, 1.5) for _ in rates]
        made.append(
            Board(
                f"b{n}",
                {f"{n}.{i}": Work(rate, need * weights[i] / ROWS, 100.0) for i, rate in enumerate(rates)},
            )
        )
    return _by_hour(Fleet(made, random), hours)


def moves_under_constant_load(seed: int, hours: int, size: Size = SMALL) -> list[float]:
    """The hot boards of section 5.3, all rates fixed. See `_by_hour`."""
    numbers = [size.all if n < size.hot else size.active for n in range(size.boards)]
    return _by_hour(Fleet(_dealt(seed, False, numbers, USED), Random(seed)), hours)


def _by_hour(fleet: Fleet, hours: int) -> list[float]:
    """The moves of each hour, given and taken, by board."""
    for _ in fleet.run(0.0, 3_600.0 * hours):
        pass
    boards = len(fleet.boards)
    return [2 * sum(hour == int(now // 3_600) for now, *_ in fleet.moves) / boards for hour in range(hours)]
