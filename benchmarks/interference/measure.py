"""The run: what a look of the agent costs, what becomes of the paper's fleets, whether moves end, and memory."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from statistics import median
from typing import Any, Final

from agent.interference.forecasts import SEASON
from agent.interference.ring import Ring
from agent.interference.score import Crowd, Footprint
from benchmarks.bars import draw
from benchmarks.interference import scenarios
from benchmarks.interference.scenarios import PAPERS, SMALL, Result
from benchmarks.interference.world import LOOK_S, Board, Fleet, Work, wave
from benchmarks.report import Benchmark, Options, Report

INSTANCES: Final = 150
SCORES_MS: Final = 1.0
SHARE: Final = 0.0033
"""Published cost of the bookkeeping (TPDS 2017): 0.33 % of the CPU."""
LOOKS: Final = 40
"""Looks that are measured, after those that make forecasts seasonal."""
SHORT: Final = {"variable": 0.00001, "fixed": 0.00413}
"""Published: part of the ideal throughput that was missing at the end."""
P99_LEFT: Final = 0.15
"""Published: with external load p99 fell by 85 %."""
LOST: Final = 0.2275
"""Published: 77.25 % of the lost throughput came back."""
MOVES: Final = 4.0
"""Per board and hour under a sinusoidal load."""
PERIODS_S: Final = (120.0, 300.0, 1_800.0, 3_600.0, 5_400.0, 10_800.0)
DAY_H: Final = 24
GROWTH: Final = 1.02


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    minutes, size = (40, SMALL) if options.quick else (60, PAPERS)
    for repetition in range(options.repetitions):
        looks_and_scores(report, 2 * SEASON)
        seed = repetition + 1
        options.say(f"seed {seed}: {minutes} simulated minutes of {size.boards} boards")
        for kind in ("fixed", "variable"):
            result = scenarios.internal(seed, kind == "variable", minutes, size)
            report.add(f"{kind} rates: part of the ideal throughput missing", result.short, "", limit=SHORT[kind])
            _tell(report, f"{kind} rates", result)
        result = scenarios.external(seed, minutes, size)
        report.add("external load: part of p99 left", 1 - result.p99_less, "", limit=P99_LEFT)
        report.add("external load: part of the loss left", 1 - result.recovered, "", limit=LOST)
        _tell(report, "external load", result)
        for period_s in PERIODS_S:
            made = scenarios.moves_per_board_and_hour(seed, 3, period_s)
            name = f"moves per board in an hour, most of three hours, sine of {period_s:g} s"
            report.add(name, max(made), "", limit=MOVES)
        settled = scenarios.moves_under_constant_load(seed, 3)
        report.add("moves per board in the second and third hour, constant load", sum(settled[1:]), "", limit=0.0)
        report.add("memory after a day / after 2 h", growth(2 if options.quick else DAY_H), "", limit=GROWTH)


def _tell(report: Report, name: str, result: Result) -> None:
    told: dict[str, Any] = asdict(result)
    report.curves.setdefault(name, []).append(told)
    report.add(f"{name}: moves", result.moves, "moves")
    report.add(f"{name}: the last move", result.settled_s / 60, "min")
    report.add(f"{name}: gain on no moves", result.last / result.first - 1, "")
    report.add(f"{name}: spread of CPU over boards after 25 min", result.spread_25.cpu, "")
    report.add(f"{name}: spread of the network after 25 min", result.spread_25.link, "")


def looks_and_scores(report: Report, warm: int, instances: int = INSTANCES, looks: int = LOOKS) -> None:
    """A board with so many instances that is crowded, so that every look makes footprints and scores."""
    rng = random.Random(1)

    def rate(now: float) -> float:
        return 100 + 50 * rng.random() + now / LOOK_S % SEASON

    fleet = Fleet([Board("b", {f"i{n}": Work(rate, 5e-5, 100.0) for n in range(instances)})], rng)
    agent, spent, scores = fleet.agents["b"], [], []
    for look in range(1, warm + looks + 1):
        now = LOOK_S * look
        fleet.clock.advance(LOOK_S)
        agent.runs.serve(now)
        began = time.process_time()
        agent.look(now)
        agent.tell()
        ended = time.process_time()
        if look > warm:
            spent.append(ended - began)
            scores.append(_scores_s(Crowd(agent.board, agent.moves.room), agent.rings.values()))
    report.add(f"scores of {instances} instances", min(scores) * 1e3, "ms", limit=SCORES_MS)
    report.add(f"a look at {instances} instances, least", min(spent) * 1e3, "ms")
    share = median(spent) / LOOK_S
    report.add(f"bookkeeping, a look every {LOOK_S:g} s, part of a core, median", share, "", limit=SHARE)


def _scores_s(crowd: Crowd, rings: Iterable[Ring]) -> float:
    """CPU time of one score of each."""
    footprints = [Footprint(ring) for ring in rings]
    began = time.process_time()
    for footprint in footprints:
        crowd.within(footprint)
    return time.process_time() - began


def growth(hours: int) -> float:
    """Two boards on a virtual clock: memory blocks of the process at the end, divided by those after two hours (in
    short: after half of the time)."""
    rng = random.Random(1)
    boards = [
        Board(f"b{n}", {f"{n}.{i}": Work(wave(20, 0.5, 300, rng.random()), 0.012, 100.0) for i in range(4)})
        for n in range(2)
    ]
    fleet, early, begin = Fleet(boards, rng), 0, min(2.0, hours / 2) * 3_600
    for now in fleet.run(0.0, 3_600.0 * hours):
        if now == begin:
            gc.collect()
            early = sys.getallocatedblocks()
    gc.collect()
    return sys.getallocatedblocks() / early


BENCHMARK = Benchmark(
    about="interference: what a board's looks cost, and what becomes of fleets with hot boards",
    measure=measure,
    draw=partial(draw, panels=[("ms", 1.0, "ms"), ("", 1.0, "part"), ("min", 1.0, "minutes")]),
    lacks=lambda: None,
    repetitions=1,
)
