"""The run: twelve topologies at two loads, every heuristic beside the optimum; then how long the hybrid takes."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Final

from agent.placement.heuristics.registry import HEURISTICS, place
from agent.placement.problem.budget import Budget, Draw
from agent.placement.problem.cost import PAPER, Evaluation
from agent.placement.problem.model import PlacementProblem
from benchmarks.bars import draw
from benchmarks.placement.cohesion import PUBLISHED, gains
from benchmarks.placement.topologies import SEED, SHAPES, large, topology
from benchmarks.report import Benchmark, Options, Report

LOADS: Final = (0.4, 0.75)
"""Part of the fleet's CPU that a topology needs."""
SECONDS: Final = 0.1
"""What each heuristic may search, on 11 boards."""
SOLVER_S: Final = 30.0
WITHIN: Final = 1.01
LARGE: Final = ((42, 11, 0.1), (200, 100, 2.0))
"""Operators, boards, seconds."""
SINGLE: Final = ("hill-climbing", "ant-system", "resource-aware", "locality-fairness", "even")


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    from benchmarks.placement.optimum import optimum

    report.notes.append(f"seed {SEED}; each heuristic has {SECONDS} s of CPU; HiGHS {SOLVER_S:g} s, without latency")
    for name in options.applications:
        for load in LOADS:
            options.say(f"{name}, load {load}")
            _compare(report, f"{name}, load {load}", topology(name, load), options.repetitions)
            if options.quick:
                continue
            bound = optimum(topology(name, load), SOLVER_S)
            best = report.figures[f"{name}, load {load}, hybrid"]
            if bound is None or bound.lower < 1e-9:
                report.notes.append(f"{name}, load {load}: no placement keeps the limits, or the optimum is 0")
                continue
            limit, of = (WITHIN, "optimum") if bound.proven else (None, "lower bound where the solver stopped")
            fault = "the hybrid breaks a limit, and a placement keeps all" if best.remarks and bound.proven else ""
            for value in best.values:
                report.add(f"{name}, load {load}, hybrid / {of}", value / bound.lower, "", limit=limit, fault=fault)
    for shape, gain in gains().items():
        report.add(f"{shape}, locality over even", gain, "% cohesion", remark=f"published: {PUBLISHED[shape][1]:g}")
    for operators, boards, seconds in LARGE:
        for repetition in range(options.repetitions):
            problem = large(operators, boards, LOADS[-1])
            began = time.process_time()
            place("hybrid", problem, None, Budget(seconds=seconds * 0.9, clock=time.process_time), _draw(repetition))
            spent = time.process_time() - began
            report.add(f"{operators} operators on {boards} boards, hybrid", spent * 1e3, "ms", limit=seconds * 1e3)


def _compare(report: Report, what: str, problem: PlacementProblem, repetitions: int) -> None:
    """Scores of all heuristics, and the hybrid's beside the best single one's."""
    for repetition in range(repetitions):
        found = {}
        for heuristic in HEURISTICS:
            budget = Budget(seconds=SECONDS, clock=time.process_time)
            placed = place(heuristic, problem, None, budget, _draw(repetition))
            found[heuristic] = Evaluation(problem, problem.assignment(placed))
        hybrid = found["hybrid"]
        broken = f"violation {hybrid.violation:.3g}" if hybrid.violation else ""
        report.add(f"{what}, hybrid", hybrid.terms.score(PAPER), "score", remark=broken)
        ranks = [found[name].rank for name in SINGLE]
        best = next(rank for rank in ranks if not any(other.better_than(rank) for other in ranks))
        if abs(best.violation - hybrid.violation) < 1e-9:
            report.add(f"{what}, hybrid / best single", hybrid.rank.score / best.score, "", limit=WITHIN)
        for name in ("hybrid-as-published", *SINGLE):
            if not found[name].violation:
                report.add(f"{what}, {name}", found[name].rank.score, "score")


def _draw(seed: int) -> Draw:
    return random.Random(seed).random


BENCHMARK = Benchmark(
    about="placement: the hybrid heuristic beside the optimum and single heuristics, and its time",
    measure=measure,
    draw=partial(draw, panels=[("score", 1.0, "score, less is better"), ("", 1.0, "ratio"), ("ms", 1.0, "ms")]),
    lacks=lambda: None,
    repetitions=3,
    applications=tuple(SHAPES),
)
