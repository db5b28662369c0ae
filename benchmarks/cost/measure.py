"""The benchmark: counts all figures, with the ledger's as bars."""

from __future__ import annotations

from pathlib import Path

from benchmarks import bars
from benchmarks.cost import ledger
from benchmarks.cost.count import build, count, lacks
from benchmarks.report import Benchmark, Options, Report


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    key = build()
    report.machine["build"] = key
    entries = ledger.read()
    for _ in range(options.repetitions):
        for one in ledger.compare(count(options.say), entries, key):
            unit = "instructions/s" if "idle" in one.figure else "instructions"
            report.add(one.figure, one.counted, unit)
            if one.ledger is not None:
                report.add(f"{one.figure}: ledger", one.ledger, unit)
                limit = 1.0 + ledger.LIMIT
                report.ratio(f"{one.figure} / ledger", one.figure, f"{one.figure}: ledger", limit)


def draw(report: Report, folder: Path) -> Path:
    """Writes cost.png."""
    panels = [("instructions", 1e3, "1,000 instructions per message and flow"), ("instructions/s", 1e6, "million/s")]
    return bars.draw(report, folder, panels)


BENCHMARK = Benchmark(
    "the instructions of a message are not more than the ledger says, and they repeat within 1 %",
    measure,
    draw,
    lacks,
    repetitions=2,
)
