"""The run: CPU per row beside a bare loop, and the rate borne beside a thread per operator."""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.borne import greatest_rate
from benchmarks.ingest.trace import messages
from benchmarks.processes import module
from benchmarks.report import Benchmark, Options, Report
from benchmarks.riotbench.flows import APPLICATIONS
from benchmarks.riotbench.picture import draw
from benchmarks.riotbench.probe import (
    BARE,
    BOUND_MS,
    BY_HAND,
    ENGINE,
    FAIR,
    FIRST_RATE,
    FUSED_LOOP,
    LOOP,
    OF_A_TRY,
    QUICK,
    RIVAL,
    Spans,
    Subject,
    bears,
    fault,
    probe,
)
from benchmarks.thread_per_operator import OWPOA

Load = tuple[int, int]
"""Rows per second, and how many come at a time."""
LOADS: Final[dict[str, tuple[Load, ...]]] = {
    "etl": ((5_000, 100), (1_000, 40)),
    "stats": ((10_000, 100), (1_000, 40)),
    "pred": ((20_000, 100), (1_000, 100), (1_000, 40), (1_000, 5)),
    "train": ((20_000, 100), (1_000, 40)),
}
"""A high rate that one core bears, and a low one: in bursts, as sensors send that all go by the same clock, and evenly,
in which case a gateway reads five in the 5 ms for which it waits. PRED also with the batches of the high rate, so that
only the time between them differs."""
OVER_LOOP: Final = 1.25
PROMISED_US: Final[dict[tuple[str, Load], float]] = {
    ("pred", (20_000, 100)): 8.0,
    ("pred", (1_000, 100)): 13.0,
}
"""µs per row of the engine, at most; at both rates with as many rows at a time."""
PUBLISHED: Final[dict[str, float]] = {"etl": 1 / 1.35, "stats": 1 / 3, "pred": 1 / 1.57}
"""owpoa's rate divided by that of congestion-aware, as EdgeWise publishes it (a Raspberry Pi 3)."""
AGAIN: Final = 0.7
"""Part of the rate borne in the repetition before at which the next begins to look."""
EASY: Final = 0.4
"""Part of what congestion-aware bears at which context switches are counted."""
FULL: Final = Spans(0.5, 2.0)
WHOLE = Subject("congestion-aware", fusion="full")
"""The engine as a gateway has it."""
BY_ROW = (Subject(OWPOA, rows=1), Subject("congestion-aware", rows=1))
"""One row per turn, as in the engines that EdgeWise was measured against: looked at once."""


class Run:
    """One run of the benchmark."""

    def __init__(self, options: Options, report: Report, folder: Path) -> None:
        self._options, self._report, self._folder = options, report, folder
        self._most: dict[tuple[str, Subject], list[float]] = {}
        """Rates borne in the repetitions so far."""

    def probe(self, application: str, subject: Subject, rate: float, spans: Spans = FULL) -> dict[str, Any]:
        """One load."""
        (told,) = probe(self._folder, application, subject, [rate], QUICK if self._options.quick else spans)
        return told

    def sides(self, application: str, load: Load) -> dict[str, Any]:
        """What `beside.py` says."""
        rate, rows = load
        arguments = ("--application", application, "--rate", rate, "--tick", rows / rate)
        seconds = ("--seconds", QUICK.steady if self._options.quick else FULL.steady)
        with module("benchmarks.riotbench.beside", self._folder / "beside.log", *arguments, *seconds) as beside:
            told: dict[str, Any] = json.loads(beside.read())
        return told

    def cost(self, application: str, load: Load) -> None:
        """CPU per row of the engine, bare loops and a program by hand; and the engine's latency."""
        told = self.sides(application, load)
        for side, cost in told["sides"].items():
            name = cost_name(application, side, load)
            limit = PROMISED_US.get((application, load)) if side == ENGINE else None
            self._report.add(name, cost["cpu_us"], "µs/row", limit=limit, fault=fault(told) if side == ENGINE else "")
            self._options.say(f"  {name}: {cost['cpu_us']:.2f} µs/row")
        name = cost_name(application, ENGINE, load)
        self._report.add(f"T_S / T_C: {name}", told["waited"], "")
        for part in ("mean", "p50", "p99"):
            self._report.add(f"latency {part}: {name}", told[f"{part}_ms"] or float("nan"), "ms")

    def borne(self, application: str, subject: Subject) -> None:
        """The greatest rate at which p99 stays within the bound."""
        before = self._most.setdefault((application, subject), [])
        first = AGAIN * statistics.median(before) if before else FIRST_RATE[application]
        best, found = greatest_rate(
            lambda rate: bears(application, self.probe(application, subject, rate, OF_A_TRY)),
            first,
            quick=self._options.quick,
        )
        before.append(best)
        why = "" if found else f"not even {best:,.0f} rows/s were borne"
        self._report.add(borne_name(application, subject), best, "rows/s", fault=why)
        self._options.say(f"  {borne_name(application, subject)}: {best:,.0f} rows/s")

    def switches(self, application: str) -> None:
        """What the rivals cost at one rate that both bear, and how often their threads changed."""
        rate = EASY * self._most[application, FAIR][0]
        for subject in (RIVAL, FAIR):
            told = self.probe(application, subject, rate)
            name = f"{application}, {EASY:.0%} of that: {subject.label}"
            self._report.add(f"CPU: {name}", told["cpu_us"], "µs/row", fault=fault(told))
            for kind, key in (("voluntary", "switches"), ("involuntary", "preempted")):
                self._report.add(f"context switches, {kind}: {name}", told[key] * 1e3, "per 1,000 rows")


def load_name(application: str, load: Load) -> str:
    """As it begins the names of figures."""
    rate, rows = load
    return f"{application}, {rate:,} rows/s, {rows} at a time"


def cost_name(application: str, side: str, load: Load) -> str:
    """The name of a figure."""
    return f"{load_name(application, load)}: {side}"


def borne_name(application: str, subject: Subject) -> str:
    """The name of a figure."""
    return f"{application}, borne within {BOUND_MS[application]:g} ms: {subject.label}"


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    _, trace = messages()
    report.notes.append(f"rows: {trace}, over and over, from memory; one process; rates are of rows in")
    with tempfile.TemporaryDirectory(prefix="edgert-bench-") as folder:
        run = Run(options, report, Path(folder))
        for repetition in range(options.repetitions):
            for application in options.applications:
                options.say(f"repetition {repetition + 1} of {options.repetitions}, {application}")
                for load in LOADS[application]:
                    run.cost(application, load)
                for subject in (RIVAL, FAIR, WHOLE, BARE, *([] if options.quick or repetition else BY_ROW)):
                    run.borne(application, subject)
                run.switches(application)
    for application in options.applications:
        for load in LOADS[application]:
            of = cost_name(application, ENGINE, load)
            for loop in (LOOP, FUSED_LOOP):
                to = cost_name(application, loop, load)
                report.ratio(f"{load_name(application, load)}: engine / {loop}", of, to, OVER_LOOP)
            if application == "pred":
                hand = cost_name(application, BY_HAND, load)
                report.ratio(f"{load_name(application, load)}: engine / by hand", of, hand)
        of, to = (borne_name(application, subject) for subject in (RIVAL, FAIR))
        report.ratio(f"{application}: owpoa / congestion-aware, rate borne", of, to, PUBLISHED.get(application))
        to = borne_name(application, WHOLE)
        report.ratio(f"{application}: owpoa / engine (fusion full), rate borne", of, to)
        report.ratio(f"{application}: owpoa / loop, rate borne", of, borne_name(application, BARE))
        if not options.quick:
            of, to = (borne_name(application, subject) for subject in BY_ROW)
            report.ratio(f"{application}: owpoa / congestion-aware, rate borne, one row per turn", of, to)


BENCHMARK = Benchmark(
    about="RIoTBench: CPU per row against a bare loop, rate borne against a thread per operator",
    measure=measure,
    draw=draw,
    lacks=lambda: None,
    applications=tuple(APPLICATIONS),
)
