"""The run: for every application what its fairest engine bears, then all policies at parts of that."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.borne import greatest_rate
from benchmarks.ingest.trace import messages
from benchmarks.policies.picture import draw
from benchmarks.report import Benchmark, Options, Report
from benchmarks.riotbench.flows import APPLICATIONS
from benchmarks.riotbench.probe import FAIR, FIRST_RATE, OF_A_TRY, QUICK, Spans, Subject, bears, fault, probe
from benchmarks.thread_per_operator import OWPOA
from edgert.scheduling.consumption import CONSUMPTIONS
from edgert.scheduling.policies import POLICIES

PARTS: Final = (0.4, 0.7, 0.9, 1.1)
"""Rates of the curves, as parts of what congestion-aware bears."""
SPANS: Final = Spans(0.15, 0.45)
SUBJECTS: Final = tuple(Subject(policy, consumption) for policy in (*POLICIES, OWPOA) for consumption in CONSUMPTIONS)


@dataclass(slots=True)
class Point:
    """Of a curve: what was seen at one rate, by repetition."""

    rate: float
    p99_ms: list[float | None] = field(default_factory=list)
    """None where no row came out."""
    longest: list[int] = field(default_factory=list)
    """Rows in the longest queue."""
    balance: list[float] = field(default_factory=list)
    """Coefficient of variation of the utilisation of the instances."""
    faults: list[str] = field(default_factory=list)
    """Why it cannot be trusted."""


def measure(options: Options, report: Report) -> None:
    """Fills the report, its curves by application and subject."""
    _, trace = messages()
    report.notes.append(f"rows: {trace}, over and over, from memory; one process; rates are of rows in")
    curves: dict[tuple[str, Subject], list[Point]] = {}
    with tempfile.TemporaryDirectory(prefix="edgert-bench-") as name:
        folder = Path(name)
        for application in options.applications:
            most = _most(folder, application, quick=options.quick)
            report.add(f"{application}, what {FAIR.label} bears", most, "rows/s")
            for subject in SUBJECTS[:1] if options.quick else SUBJECTS:
                curves[application, subject] = [Point(part * most) for part in PARTS]
        for repetition in range(options.repetitions):
            options.say(f"repetition {repetition + 1} of {options.repetitions}")
            for (application, subject), points in curves.items():
                spans = QUICK if options.quick else SPANS
                told = probe(folder, application, subject, [point.rate for point in points], spans)
                for point, seen in zip(points, told, strict=True):
                    point.p99_ms.append(seen["p99_ms"])
                    point.faults += [why] if (why := fault(seen)) else []
                    point.longest.append(seen["longest"])
                    point.balance.append(seen["balance"])
    for application in options.applications:
        _tell(report, application, {s: points for (of, s), points in curves.items() if of == application})


def _tell(report: Report, application: str, curves: Mapping[Subject, Sequence[Point]]) -> None:
    """Puts an application's curves into the report, and says which of their points are not to be trusted."""
    report.curves[application] = {s.label: [asdict(point) for point in points] for s, points in curves.items()}
    faults = []
    for subject, points in curves.items():
        for point in points:
            place = f"{subject.label} at {point.rate:,.0f} rows/s"
            faults += [f"{place}: {why}" for why in point.faults]
            if None in point.p99_ms:
                report.notes.append(f"{application}, {place}: no row came out ({point.p99_ms.count(None)} times)")
    report.add(f"{application}, points with losses", len(faults), "points", fault="; ".join(faults))


def _most(folder: Path, application: str, *, quick: bool) -> float:
    spans = QUICK if quick else OF_A_TRY
    most, _ = greatest_rate(
        lambda rate: bears(application, probe(folder, application, FAIR, [rate], spans)[0]),
        FIRST_RATE[application],
        quick=quick,
    )
    return most


BENCHMARK = Benchmark(
    about="every scheduling policy and consumption: latency, queues and balance against rate",
    measure=measure,
    draw=draw,
    lacks=lambda: None,
    applications=tuple(APPLICATIONS),
)
