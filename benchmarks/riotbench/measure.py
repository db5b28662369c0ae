"""The run: CPU per row beside a bare loop, the rate borne beside a thread per operator, curves of all policies."""

from __future__ import annotations

import json
import statistics
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.borne import greatest_rate
from benchmarks.ingest.trace import messages
from benchmarks.processes import module
from benchmarks.report import Benchmark, Options, Report
from benchmarks.riotbench.engine import BY_HAND, LOOP, OWPOA
from benchmarks.riotbench.flows import APPLICATIONS
from benchmarks.riotbench.picture import draw
from edgert.scheduling.consumption import CONSUMPTIONS
from edgert.scheduling.policies import POLICIES

COST_RATES: Final[dict[str, dict[int, float]]] = {
    "etl": {5_000: 0.020, 1_000: 0.040},
    "stats": {10_000: 0.010, 1_000: 0.040},
    "pred": {20_000: 0.005, 1_000: 0.040},
    "train": {20_000: 0.005, 1_000: 0.040},
}
"""Rows per second that one core bears, and seconds between two batches: a hundred rows, and forty."""
OVER_LOOP: Final = 1.25
PROMISED: Final = {("pred", 20_000): 8.0, ("pred", 1_000): 13.0}
"""µs per row, of a machine on which PRED by hand costs 5.8: on another look at the ratio."""
BOUND_MS: Final[dict[str, float]] = {"etl": 50.0, "stats": 100.0, "pred": 100.0, "train": 100.0}
"""Latency (p99) within which a rate counts as borne: that of EdgeWise's figures where it says one."""
PUBLISHED: Final[dict[str, float]] = {"etl": 1 / 1.35, "stats": 1 / 3, "pred": 1 / 1.57}
"""owpoa's rate divided by that of congestion-aware, as EdgeWise publishes it (a Raspberry Pi 3)."""
FIRST_RATE: Final[dict[str, float]] = {"etl": 3_000.0, "stats": 5_000.0, "pred": 10_000.0, "train": 10_000.0}
AGAIN: Final = 0.7
"""Part of the rate borne in the repetition before at which the next begins to look."""
CURVE: Final = (0.4, 0.8, 1.1)
"""Rates of the curves, as parts of what congestion-aware bears."""
CURVE_TICK_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class Spans:
    """Seconds."""

    warm_up: float
    steady: float


FULL, QUICK = Spans(0.5, 2.0), Spans(0.2, 0.4)
OF_A_CURVE, OF_A_TRY = Spans(0.2, 0.6), Spans(0.4, 1.0)
ROWS: Final = 200
"""Rows per turn at most, as a gateway has it."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An engine as it is set up for one figure."""

    policy: str
    consumption: str = "at-most"
    fusion: str = "chains"
    rows: int = ROWS

    @property
    def label(self) -> str:
        """Its name in figures."""
        words = [self.policy, *([] if self.consumption == "at-most" else [self.consumption])]
        words += [] if self.fusion == "chains" else [f"fusion {self.fusion}"]
        return ", ".join([*words, *([] if self.rows == ROWS else [f"at most {self.rows} per turn"])])


ENGINE = Subject("congestion-aware", fusion="full")
BASELINE = Subject(LOOP, fusion="full")
HAND = Subject(BY_HAND, fusion="full")
RIVALS = (Subject(OWPOA), Subject("congestion-aware"), ENGINE)
BY_ROW = (Subject(OWPOA, rows=1), Subject("congestion-aware", rows=1))
"""One row per turn, as in the engines that EdgeWise was measured against: looked at once."""
SWEEP = tuple(Subject(policy, consumption) for policy in POLICIES for consumption in CONSUMPTIONS)


@dataclass(slots=True)
class Point:
    """Of a curve: what was seen at one rate, by repetition."""

    rate: float
    p99_ms: list[float] = field(default_factory=list)
    longest: list[int] = field(default_factory=list)
    """Rows in the longest queue."""
    balance: list[float] = field(default_factory=list)
    """Coefficient of variation of the utilisation of the instances."""


class Run:
    """One run of the benchmark."""

    def __init__(self, options: Options, report: Report, folder: Path) -> None:
        self._options, self._report, self._folder = options, report, folder
        self._spans = QUICK if options.quick else FULL
        self.curves: dict[str, list[Point]] = {}
        """By application and subject."""
        self._most: dict[tuple[str, Subject], list[float]] = {}
        """Rates borne in the repetitions so far."""

    def probe(
        self, application: str, subject: Subject, rate: float, tick_s: float, spans: Spans | None = None
    ) -> dict[str, Any]:
        """One load."""
        spans = spans or self._spans
        arguments: tuple[object, ...] = (
            "--application", application, "--policy", subject.policy, "--consumption", subject.consumption,
            "--consumption-rows", subject.rows, "--fusion", subject.fusion, "--rate", rate, "--tick", tick_s,
            "--warm-up", spans.warm_up, "--seconds", spans.steady,
        )  # fmt: skip
        with module("benchmarks.riotbench.engine", self._folder / "engine.log", *arguments) as engine:
            told: dict[str, Any] = json.loads(engine.read())
        return told

    def cost(self, application: str, rate: int, tick_s: float) -> None:
        """CPU per row, by turns; and the engine's latency."""
        for subject in (*([HAND] if application == "pred" else []), BASELINE, ENGINE):
            told = self.probe(application, subject, rate, tick_s)
            name = cost_name(application, subject, rate)
            limit = PROMISED.get((application, rate)) if subject is ENGINE else None
            self._report.add(name, told["cpu_us"], "µs/row", limit=limit, fault=_fault(told))
            self._options.say(f"  {name}: {told['cpu_us']:.2f} µs/row")
        self._report.add(f"T_S / T_C: {name}", told["waited"], "")
        for part in ("p50", "p99"):
            self._report.add(f"latency {part}: {name}", told[f"{part}_ms"] or float("nan"), "ms")

    def borne(self, application: str, subject: Subject) -> None:
        """The greatest rate at which p99 stays within the bound."""
        before = self._most.setdefault((application, subject), [])
        first = AGAIN * statistics.median(before) if before else FIRST_RATE[application]
        best, found = greatest_rate(
            lambda rate: self._bears(application, subject, rate), first, quick=self._options.quick
        )
        before.append(best)
        fault = "" if found else f"not even {best:,.0f} rows/s were borne"
        self._report.add(borne_name(application, subject), best, "rows/s", fault=fault)
        self._options.say(f"  {borne_name(application, subject)}: {best:,.0f} rows/s")

    def _bears(self, application: str, subject: Subject, rate: float) -> bool:
        told = self.probe(application, subject, rate, CURVE_TICK_S, None if self._options.quick else OF_A_TRY)
        return bool(told["p99_ms"] and told["p99_ms"] <= BOUND_MS[application] and not _fault(told))

    def switches(self, application: str) -> None:
        """What the rivals cost at one rate that both bear, and how often their threads changed."""
        rate = CURVE[0] * self._most[application, RIVALS[1]][0]
        for subject in RIVALS[:2]:
            told = self.probe(application, subject, rate, CURVE_TICK_S)
            name = f"{application}, {CURVE[0]:.0%} of that: {subject.label}"
            self._report.add(f"CPU: {name}", told["cpu_us"], "µs/row", fault=_fault(told))
            self._report.add(f"context switches: {name}", told["switches"] * 1e3, "per 1,000 rows")

    def curve(self, application: str, subject: Subject) -> None:
        """Latency, the longest queue and balance against rate; the same rates in every repetition."""
        most = self._most[application, RIVALS[1]][0]
        points = self.curves.setdefault(f"{application}: {subject.label}", [Point(part * most) for part in CURVE])
        spans = self._spans if self._options.quick else OF_A_CURVE
        for point in points:
            told = self.probe(application, subject, point.rate, CURVE_TICK_S, spans)
            point.p99_ms.append(told["p99_ms"] or 0.0)
            point.longest.append(told["longest"])
            point.balance.append(told["balance"])


def _fault(told: dict[str, Any]) -> str:
    lost = told["shed"] + told["failures"]
    return f"{lost} rows or batches were lost" if lost else ""


def cost_name(application: str, subject: Subject, rate: int) -> str:
    """The name of a figure."""
    return f"{application}, {rate:,} rows/s: {subject.label}"


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
                for rate, tick_s in COST_RATES[application].items():
                    run.cost(application, rate, tick_s)
                for subject in (*RIVALS, *([] if options.quick or repetition else BY_ROW)):
                    run.borne(application, subject)
                run.switches(application)
                for subject in SWEEP[:1] if options.quick else (*SWEEP, RIVALS[0], ENGINE):
                    run.curve(application, subject)
    for name, points in run.curves.items():
        report.notes.append(f"curve of {name}: {json.dumps([asdict(point) for point in points])}")
    for application in options.applications:
        for rate in COST_RATES[application]:
            of, to = (cost_name(application, subject, rate) for subject in (ENGINE, BASELINE))
            report.ratio(f"{application}, {rate:,} rows/s: engine / loop", of, to, OVER_LOOP)
            if application == "pred":
                hand = cost_name(application, HAND, rate)
                report.ratio(f"{application}, {rate:,} rows/s: engine / by hand", of, hand)
        of, to = (borne_name(application, subject) for subject in RIVALS[:2])
        report.ratio(f"{application}: owpoa / congestion-aware, rate borne", of, to, PUBLISHED.get(application))
        to = borne_name(application, ENGINE)
        report.ratio(f"{application}: owpoa / engine (fusion full), rate borne", of, to)
        if not options.quick:
            of, to = (borne_name(application, subject) for subject in BY_ROW)
            report.ratio(f"{application}: owpoa / congestion-aware, rate borne, one row per turn", of, to)


BENCHMARK = Benchmark(
    about="RIoTBench: CPU per row against a bare loop, rate borne against a thread per operator, every policy",
    measure=measure,
    draw=draw,
    lacks=lambda: None,
    applications=tuple(APPLICATIONS),
)
