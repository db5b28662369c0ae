"""The run: the rate that an application bears, then three times as much for ten minutes, by each overload policy."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.borne import greatest_rate
from benchmarks.ingest.trace import messages
from benchmarks.overload.picture import draw
from benchmarks.processes import module
from benchmarks.report import Benchmark, Options, Report
from benchmarks.riotbench.probe import BOUND_MS, FIRST_RATE

OVERLOADS: Final = ("shed-oldest", "shed-newest", "sample")
TIMES: Final = 3.0
REACHED: Final = 0.99
"""Part of that which must really have been fed."""
COLLAPSE: Final = 1.5
GROWTH: Final = 1.1
PART: Final = 0.1
"""Of the run: memory is the median over so long."""
POINTS: Final = 60
SAID: Final = 60
"""Every so manieth look is said to the person who waits."""


class Run:
    """One run of the benchmark."""

    def __init__(self, options: Options, report: Report, folder: Path) -> None:
        self._options, self._report, self._folder = options, report, folder
        self._warm_up, self._steady, self._long = (0.2, 0.5, 4.0) if options.quick else (0.5, 2.0, 600.0)

    def load(
        self, application: str, overload: str, rate: float, seconds: float
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """How it stood from second to second under one load, and the result."""
        arguments = (
            "--application", application, "--overload", overload, "--rate", rate,
            "--warm-up", self._warm_up, "--seconds", seconds,
        )  # fmt: skip
        looks: list[dict[str, Any]] = []
        with module("benchmarks.overload.engine", self._folder / "engine.log", *arguments) as engine:
            while "result" not in (told := json.loads(engine.read())):
                looks.append(told)
                if len(looks) % SAID == 0:
                    self._options.say(f"  {told['at']:.0f} of {seconds:.0f} s, {told['rss_mb']:.1f} MB")
        result: dict[str, Any] = told["result"]
        return looks, result

    def bears(self, application: str, overload: str, rate: float) -> bool:
        """Whether nothing is shed at that rate and latency (p99) stays within the bound that `riotbench` uses: rows
        that pile up show there long before the queue is full."""
        _, told = self.load(application, overload, rate, self._steady)
        p99 = told["p99_ms"]
        return bool(p99) and p99 <= BOUND_MS[application] and not told["shed"] and not told["failures"]

    def overload(self, application: str, overload: str) -> None:
        """One policy: the rate borne, then three times as much."""
        label = f"{application}, {overload}"
        borne, found = greatest_rate(
            lambda rate: self.bears(application, overload, rate), FIRST_RATE[application], quick=self._options.quick
        )
        fault = "" if found else f"not even {borne:,.0f} rows/s were borne"
        self._report.add(f"{label}: sustainable rate", borne, "rows/s", fault=fault)
        self._options.say(f"  {label}: sustainable rate {borne:,.0f} rows/s, now {TIMES:g} times that")
        looks, told = self.load(application, overload, TIMES * borne, self._long)
        self._rates(label, borne, told)
        self._rows(label, told)
        self._bytes(label, told)
        self._report.add(f"{label}: resident memory before", told["rss_before_mb"], "MB")
        self._memory(label, looks)
        self._report.curves[label] = curve(looks)

    def _rates(self, label: str, borne: float, told: dict[str, Any]) -> None:
        times = told["fed_per_s"] / borne
        fault = f"fed only {times:.2f} times the sustainable rate" if times < REACHED * TIMES else ""
        self._report.add(f"{label}: rate fed", told["fed_per_s"], "rows/s", fault=fault)
        lost = f"{told['failures']} failures of operators" if told["failures"] else ""
        self._report.add(f"{label}: rate done", told["done_per_s"], "rows/s", fault=fault or lost)
        self._report.add(f"{label}: CPU used", told["cpu_us"] * told["done_per_s"] / 1e6, "cores")
        for part in ("p50", "p99"):
            if told[f"{part}_ms"] is not None:
                self._report.add(f"{label}: latency {part} of what was done", told[f"{part}_ms"], "ms")

    def _rows(self, label: str, told: dict[str, Any]) -> None:
        under_way, at_end = told["under_way"], told["at_end"]
        shed = at_end["dropped"] / at_end["fed"] * 100
        self._report.add(f"{label}: rows dropped", shed, "%", fault="" if shed else "nothing had to be dropped")
        missing = max(abs(of["missing"]) for of in (under_way, at_end))
        amiss = max(of["amiss"] for of in (under_way, at_end))
        remark = "fed {fed:,} = decoded {decoded:,} + dropped {dropped:,} + queued {queued:,}".format_map(under_way)
        self._report.add(f"{label}: rows missing in the ledger", missing, "rows", limit=0.0, remark=remark)
        self._report.add(f"{label}: rows amiss behind the decoder", amiss, "rows", limit=0.0)

    def _bytes(self, label: str, told: dict[str, Any]) -> None:
        fullness = told["fullness"]
        self._report.add(f"{label}: source's queue, most / budget", fullness["source"], "ratio", limit=1.0)
        self._report.add(f"{label}: inner queues, most / bound", fullness["inner"], "ratio", limit=1.0)
        self._report.add(f"{label}: a queue over its budget by, most", fullness["excess"], "bytes")

    def _memory(self, label: str, looks: Sequence[dict[str, Any]]) -> None:
        for at, name in ((1 / 3, "at a third"), (1 - PART, "at the end")):
            self._report.add(f"{label}: resident memory {name}", memory_mb(looks, at), "MB")
        self._report.add(f"{label}: resident memory, most", max(look["rss_mb"] for look in looks), "MB")


def memory_mb(looks: Sequence[dict[str, Any]], at: float) -> float:
    """The median of what was resident over a `PART` of the run from part `at` on."""
    first, last = (part * looks[-1]["at"] for part in (at, at + PART))
    there = [float(look["rss_mb"]) for look in looks if first <= look["at"] <= last]
    nearest = min(looks, key=lambda look: abs(float(look["at"]) - first))
    return statistics.median(there or [float(nearest["rss_mb"])])


def curve(looks: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
    """Some `POINTS`: time, the most that was resident and that the source's and the fullest inner queue held since the
    point before, MB, and rows fed and done per second since then."""
    every = -(-len(looks) // POINTS)
    points, fed, done, at = [], 0, 0, 0.0
    for first in range(0, len(looks), every):
        group = looks[first : first + every]
        last = group[-1]
        point = {name: round(max(look[name] for look in group), 2) for name in ("rss_mb", "source_mb", "inner_mb")}
        point["fed_per_s"] = round((last["fed"] - fed) / (last["at"] - at))
        point["done_per_s"] = round((last["done"] - done) / (last["at"] - at))
        points.append({"at": last["at"], **point})
        fed, done, at = last["fed"], last["done"], last["at"]
    return points


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    _, trace = messages()
    report.notes.append(
        f"rows: {trace}, over and over, from memory; one process; default budgets; rates are of rows in"
    )
    with tempfile.TemporaryDirectory(prefix="edgert-bench-") as folder:
        run = Run(options, report, Path(folder))
        for repetition in range(options.repetitions):
            for application in options.applications:
                options.say(f"repetition {repetition + 1} of {options.repetitions}, {application}")
                for overload in OVERLOADS:
                    run.overload(application, overload)
    for label in report.curves:
        report.ratio(f"{label}: fed / sustainable", f"{label}: rate fed", f"{label}: sustainable rate")
        report.ratio(f"{label}: fed / done", f"{label}: rate fed", f"{label}: rate done")
        report.ratio(f"{label}: sustainable / done", f"{label}: sustainable rate", f"{label}: rate done", COLLAPSE)
        of, to = (f"{label}: resident memory {when}" for when in ("at the end", "at a third"))
        report.ratio(f"{label}: memory, end / third", of, to, GROWTH)


BENCHMARK = Benchmark(
    about="overload: ten minutes at three times the rate borne; queues and memory bounded, every row counted",
    measure=measure,
    draw=draw,
    lacks=lambda: None,
    repetitions=1,
    applications=("pred", "stats"),
    usual=("pred",),
)
