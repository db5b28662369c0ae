"""The run: scores of a board's instances, one new prediction, a whole update of the board."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from agent.interference.holt_winters import HoltWinters
from agent.interference.ring import board_ring, instance_ring
from agent.interference.score import Crowd, Footprint, Room
from benchmarks.bars import draw
from benchmarks.report import Benchmark, Options, Report

INSTANCES: Final = 150
SCORES_MS: Final = 1.0
TRIES: Final = 50
PERIOD_S: Final = 10.0
"""Seconds between two updates of all predictions, for the share of a core."""
SHARE: Final = 0.0033
"""Published cost of the bookkeeping (TPDS 2017): 0.33 % of the CPU."""


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    rng = random.Random(1)
    series = [HoltWinters(season=60) for _ in range(INSTANCES)]
    for forecaster in series:
        for second in range(120):
            forecaster.observe(100 + 50 * rng.random() + second % 60)

    def rings() -> list[Footprint]:
        return [Footprint(instance_ring(one.forecast(180), 5e-5, 100)) for one in series]

    footprints = rings()
    room = Room(1.0, 1e6)
    crowd = Crowd(board_ring(f.ring for f in footprints), room)
    for _ in range(options.repetitions):
        scores = _cpu_ms(lambda: [crowd.within(footprint) for footprint in footprints])
        report.add(f"scores of {INSTANCES} instances", scores, "ms", limit=SCORES_MS)
        update = _cpu_ms(rings, tries=3) + _cpu_ms(lambda: Crowd(board_ring(f.ring for f in footprints), room), tries=3)
        report.add(f"predictions and rings of {INSTANCES} instances", update, "ms")
        share = (scores + update) / 1e3 / PERIOD_S
        report.add(f"bookkeeping, an update every {PERIOD_S:g} s, part of a core", share, "", limit=SHARE)


def _cpu_ms(work: Callable[[], object], tries: int = TRIES) -> float:
    """Least CPU time of one call."""
    spent = []
    for _ in range(tries):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return min(spent) * 1e3


BENCHMARK = Benchmark(
    about="interference: what scores, predictions and rings of a board cost",
    measure=measure,
    draw=partial(draw, panels=[("ms", 1.0, "ms"), ("", 1.0, "part of a core")]),
    lacks=lambda: None,
)
