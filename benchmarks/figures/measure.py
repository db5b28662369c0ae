"""The run: figures and the status object by turns, of a gateway without slots and of one with two."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.figures.gateway import FLOWS, LINE, gateway
from benchmarks.figures.picture import draw
from benchmarks.processes import Child
from benchmarks.report import Benchmark, Options, Report
from edgert.control.client import BlockingClient

BOUND_MS: Final = 5.0
"""Of the gateway's processor time, for one reading."""
VERBS: Final = ("figures", "status")
SLOTS: Final = (0, 2)
TIMES: Final = 100


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    report.notes.append(f"{FLOWS * LINE} instances in {FLOWS} flows; CPU is that of the gateway process, loop and all")
    times = 20 if options.quick else TIMES
    with tempfile.TemporaryDirectory(prefix="edgert-bench-") as folder:
        for repetition in range(options.repetitions):
            options.say(f"repetition {repetition + 1} of {options.repetitions}")
            for slots in SLOTS:
                with gateway(Path(folder) / f"{repetition}-{slots}", slots) as (process, client):
                    idle = _idle_ms_per_s(process)
                    for verb in VERBS:
                        _read(report, process, client, verb, slots, times, idle)
                    report.add(f"memory of the gateway, slots = {slots}", process.rss_mb(), "MB")
    for slots in SLOTS:
        report.ratio(f"figures / status, slots = {slots}", cpu("figures", slots), cpu("status", slots), limit=1.0)


def cpu(verb: str, slots: int) -> str:
    """Name of the figure: processor time of one reading."""
    return f"CPU of {verb}, slots = {slots}"


def _idle_ms_per_s(process: Child) -> float:
    """What the gateway uses while nobody asks."""
    before, began = process.cpu_s(), time.monotonic()
    time.sleep(1.0)
    return 1e3 * (process.cpu_s() - before) / (time.monotonic() - began)


def _read(
    report: Report, process: Child, client: BlockingClient, verb: str, slots: int, times: int, idle: float
) -> None:
    took, before, began = [], process.cpu_s(), time.monotonic()
    for _ in range(times):
        asked = time.perf_counter()
        client.call(verb)
        took.append(1e3 * (time.perf_counter() - asked))
    used = 1e3 * (process.cpu_s() - before) - idle * (time.monotonic() - began)
    limit = BOUND_MS if verb == "figures" else None
    report.add(cpu(verb, slots), used / times, "ms", limit=limit)
    report.add(f"round trip of {verb}, slots = {slots}", statistics.median(took), "ms")


BENCHMARK = Benchmark(
    about=f"raw figures of {FLOWS * LINE} instances over the control socket, against the status object",
    measure=measure,
    draw=draw,
    lacks=lambda: None,
)
