"""The run: the twenty flows of `benchmarks.osched` under load, and an agent that schedules them once a second."""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from benchmarks import bars
from benchmarks.osched.flows import FLOWS, flows
from benchmarks.osched.measure import PER_CORE, Board, board, lacks
from benchmarks.report import Benchmark, Options, Report

POLICIES: Final = ("qs", "hr")
LOAD: Final = 0.3
"""Of all cores, what the operators' own CPU time takes."""
ASKED_S: Final = 5.0
"""Between two questions for the status: they cost the agent CPU time, too."""
NICE: Final = -5
"""Of the agent, as `systemd/edgert-agent.service` has it."""
CPU_LIMIT: Final = 0.01
ACTION_LIMIT_MS: Final = 5.0
RSS_LIMIT_MB: Final = 55.0


def measure(options: Options, report: Report, seconds: float = 40.0) -> None:
    """Fills the report. `seconds`: per policy and repetition; a quarter of them where it is to be quick."""
    cores = os.cpu_count() or 1
    _, demand_s = flows()
    rate, seconds = LOAD * cores / demand_s * FLOWS, seconds / 4 if options.quick else seconds
    with tempfile.TemporaryDirectory(prefix="edgert-bench-") as name, board(Path(name), cores * PER_CORE) as world:
        os.setpriority(os.PRIO_PROCESS, world.part.pid, NICE)
        for repetition in range(options.repetitions):
            for policy in POLICIES:
                options.say(f"repetition {repetition + 1} of {options.repetitions}: {policy}")
                _measure(report, world, policy, rate, seconds)
        report.add("agent: memory", world.part.rss_mb(), "MB", limit=RSS_LIMIT_MB)


def _measure(report: Report, world: Board, policy: str, rate: float, seconds: float) -> None:
    status = world.use(policy)
    if (note := f"{len(status['operators'])} operators, a period of {status['period_s']:g} s") not in report.notes:
        report.notes.append(note)
    sender = threading.Thread(target=world.load.send, args=(rate, seconds))
    sender.start()
    time.sleep(1.0)
    before, began, periods = world.part.cpu_s(), time.monotonic(), status["periods"]
    actions: list[float] = []
    computing: list[float] = []
    while sender.is_alive():
        sender.join(ASKED_S)
        status = world.status()
        actions.append(status["lasted_s"]["action"] * 1e3)
        computing.append(status["lasted_s"]["action_cpu"] * 1e3)
    used, lasted = world.part.cpu_s() - before, time.monotonic() - began
    slow = status["periods"] - periods < 0.8 * lasted
    report.add(
        f"agent: part of a core, {policy}", used / lasted, "cores", limit=CPU_LIMIT,
        remark="the board was too busy for a period a second" if slow else "",
    )  # fmt: skip
    report.add(
        f"agent: from metrics to actions, {policy}", statistics.median(actions), "ms", limit=ACTION_LIMIT_MS,
        remark=f"at most {max(actions):.1f} ms",
    )  # fmt: skip
    report.add(
        f"agent: from metrics to actions, CPU time, {policy}", statistics.median(computing), "ms",
        limit=ACTION_LIMIT_MS,
    )  # fmt: skip


BENCHMARK: Final = Benchmark(
    "OS scheduling of a hundred operators takes a hundredth of a core",
    measure,
    lambda report, folder: bars.draw(
        report, folder, (("cores", 0.01, "% of a core"), ("ms", 1.0, "ms"), ("MB", 1.0, "MB"))
    ),
    lacks,
    repetitions=3,
)
