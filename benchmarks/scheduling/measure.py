"""The run: every policy at 50 and 500 instances; the pool with and without its counters."""

from __future__ import annotations

import itertools
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.bars import draw
from benchmarks.processes import module
from benchmarks.report import Benchmark, Options, Report
from benchmarks.scheduling.choice import cost_us
from edgert.flow.physical import Fusion
from edgert.scheduling.policies import POLICIES

CHOICE_US: Final = 2.0
COUNTING: Final = 1.02
OWN: Final = 0.03
"""What scheduling may cost, as a part of the time that operators compute."""
INSTANCES: Final = (50, 500)
ROWS: Final = (50, 200)
"""Rows per turn: EdgeWise's, and the gateway's default."""
ALONE: Final = 0.97
"""Below that part of CPU time in the time that passed a figure is not valid."""
FUSIONS: Final[tuple[Fusion, ...]] = ("full", "chains")
"""As a gateway has it: one instance; and with a queue between all operators that are no chain: eight."""


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    with tempfile.TemporaryDirectory(prefix="edgert-bench-") as folder:
        for repetition in range(options.repetitions):
            options.say(f"repetition {repetition + 1} of {options.repetitions}")
            for policy in POLICIES:
                for instances in INSTANCES:
                    limit = CHOICE_US if instances == INSTANCES[0] else None
                    report.add(_choice(policy, instances), cost_us(policy, instances), "µs", limit=limit)
                    behind = cost_us(policy, instances, "the first")
                    report.add(f"{_choice(policy, instances)}, the first passed over", behind, "µs", limit=limit)
                    behind = cost_us(policy, instances, "nine in ten")
                    report.add(f"{_choice(policy, instances)}, nine in ten passed over", behind, "µs")
            for rows, fusion in itertools.product(ROWS, FUSIONS):
                log = Path(folder) / "counting.log"
                with module("benchmarks.scheduling.counting", log, "--rows", rows, "--fusion", fusion) as counting:
                    told = json.loads(counting.read())
                turns, share = f"{rows} rows per turn, fusion {fusion}", told["cpu_share"]
                fault = "" if share >= ALONE else f"others had the processor: CPU time was {share:.2f} of the time"
                report.add(f"pool / pool that counts nothing, {turns}", told["counted"], "", limit=COUNTING)
                report.add(f"policy / operators' time, {turns}", told["policy"], "", limit=OWN, fault=fault)
                report.add(f"T_S / T_C, {turns}", told["waited"], "", fault=fault)
                if fusion == "full":  # else T_S is mostly the turns of others
                    both = told["waited"] + told["policy"]
                    report.add(f"T_S and policy / operators' time, {turns}", both, "", limit=OWN, fault=fault)
                report.add(f"all that the pool does / operators' time, {turns}", told["own"], "", fault=fault)
    for policy in POLICIES:
        few, many = (_choice(policy, number) for number in INSTANCES)
        report.ratio(f"{policy}: 500 instances / 50", many, few)


def _choice(policy: str, instances: int) -> str:
    return f"{policy}, a choice among {instances}"


BENCHMARK = Benchmark(
    about="the scheduler: what a choice costs, what counting costs, what the pool costs beside its operators",
    measure=measure,
    draw=partial(draw, panels=[("µs", 1.0, "µs per choice"), ("", 1.0, "ratio")]),
    lacks=lambda: None,
)
