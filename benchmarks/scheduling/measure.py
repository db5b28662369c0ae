"""The run: every policy at 50 and 500 instances; the pool with and without its counters."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.processes import module
from benchmarks.report import Benchmark, Options, Report
from benchmarks.scheduling.choice import cost_us
from benchmarks.scheduling.picture import draw
from edgert.scheduling.policies import POLICIES

CHOICE_US: Final = 2.0
COUNTING: Final = 1.02
OWN: Final = 0.03
"""What scheduling may cost, as a part of the time that operators compute."""
INSTANCES: Final = (50, 500)
ROWS: Final = (50, 200)
"""Rows per turn: EdgeWise's, and the gateway's default."""


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    with tempfile.TemporaryDirectory(prefix="edgert-bench-") as folder:
        for repetition in range(options.repetitions):
            options.say(f"repetition {repetition + 1} of {options.repetitions}")
            for policy in POLICIES:
                for instances in INSTANCES:
                    limit = CHOICE_US if instances == INSTANCES[0] else None
                    report.add(_choice(policy, instances), cost_us(policy, instances), "µs", limit=limit)
            for rows in ROWS:
                log = Path(folder) / "counting.log"
                with module("benchmarks.scheduling.counting", log, "--rows", rows) as counting:
                    told = json.loads(counting.read())
                turns = f"{rows} rows per turn"
                report.add(f"pool / pool that counts nothing, {turns}", told["counted"], "", limit=COUNTING)
                report.add(f"policy / operators' time, {turns}", told["policy"], "", limit=OWN)
                report.add(f"all that the pool does / operators' time, {turns}", told["own"], "", limit=OWN)
    for policy in POLICIES:
        few, many = (_choice(policy, number) for number in INSTANCES)
        report.ratio(f"{policy}: 500 instances / 50", many, few)


def _choice(policy: str, instances: int) -> str:
    return f"{policy}, a choice among {instances}"


BENCHMARK = Benchmark(
    about="the scheduler: what a choice costs, what counting costs, what the pool costs beside its operators",
    measure=measure,
    draw=draw,
    lacks=lambda: None,
)
