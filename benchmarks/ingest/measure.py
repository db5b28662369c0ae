"""The run: paho and gateway by turns, at each rate, so many times over; what they cost, lose and add."""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ingest.gateway import Gateway, gateway
from benchmarks.ingest.picture import draw
from benchmarks.ingest.trace import messages
from benchmarks.processes import MOSQUITTO, Child, module, mosquitto, wait_for
from benchmarks.report import Benchmark, Options, Report

RATES = {20_000: 1 / 3, 5_000: 1 / 2}
"""Messages per second, and the bar: CPU of the gateway divided by that of paho."""
RSS_LIMIT_MB = 60.0
READY_LIMIT_S = 1.0
BUDGET_S = 0.005
"""The default latency budget; a read at full rate holds so much."""
SLACK = 0.05
"""The part of the messages due in an interval that may come after it."""


@dataclass(frozen=True, slots=True)
class Spans:
    """How long each part takes, seconds."""

    warm_up: float
    steady: float
    latency: float
    in_memory: int
    """Messages."""
    sustained: float


FULL = Spans(1.0, 3.0, 2.0, 100_000, 60.0)
QUICK = Spans(0.2, 0.5, 0.3, 20_000, 2.0)
SUSTAINED_RATE = 15_000
"""Messages per second of the long run that only looks at memory: what a burst leaves behind shows after a while."""
LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Subject:
    """A gateway as it is set up for one figure."""

    label: str
    qos: int
    budget_s: float | None = None
    """None: the default."""
    at_once: bool = False
    """Whether the broker sends at once; Mosquitto's default is not to (Nagle's algorithm)."""


LATE_MS = 250.0
"""A generator that is later than that has not made the load that the figure is of."""
BASELINE = "paho, counts only"
BASELINE_AT_ONCE = "paho, counts only, broker at once"
BARRED = Subject("gateway", 0)
CHECKPOINTS = Subject("gateway, checkpoints", 1)
AT_ONCE = Subject("gateway, broker at once", 0, at_once=True)
UNCOALESCED = Subject("gateway, broker at once, latency budget 0", 0, 0.0, at_once=True)
SUBJECTS = (BARRED, CHECKPOINTS, AT_ONCE, UNCOALESCED)


def figure(what: str, qos: int, rate: int) -> str:
    """The name of a figure."""
    return f"{what}, QoS {qos}, {rate:,}/s"


class Run:
    """One run of the benchmark."""

    def __init__(self, options: Options, report: Report, folder: Path) -> None:
        self._report, self._folder, self._options = report, folder, options
        self._spans = QUICK if options.quick else FULL
        self._numbers = itertools.count()
        self.sustained_s = self._spans.sustained

    def _place(self) -> Path:
        place = self._folder / str(next(self._numbers))
        place.mkdir()
        return place

    def baseline(self, qos: int, rate: int, *, at_once: bool = False) -> None:
        """CPU of the paho client."""
        place, spans = self._place(), self._spans
        seconds = spans.warm_up + spans.steady
        with (
            mosquitto(place, at_once=at_once) as port,
            module("benchmarks.ingest.counter", place / "counter.log", "--port", port, "--qos", qos) as counter,
            self._load(place, port, qos, rate, seconds) as load,
        ):
            counter.read()
            load.read()
            load.tell("go")
            cost = self._cost(counter, lambda: int(counter.ask()))
            told = json.loads(load.read())
            fault = self._lost(told, lambda: int(counter.ask()))
        self._add(BASELINE_AT_ONCE if at_once else BASELINE, qos, rate, cost, fault)

    def subject(self, subject: Subject, rate: int) -> None:
        """CPU of the gateway, its memory, how soon it is ready, and what it adds to latency."""
        place, spans = self._place(), self._spans
        seconds = spans.warm_up + spans.steady + spans.latency + 0.2
        with (
            mosquitto(place, at_once=subject.at_once) as port,
            gateway(place / "gateway", port, subject.qos, subject.budget_s) as tried,
            module("benchmarks.ingest.probe", place / "probe.log", "--port", port) as probe,
            self._load(place, port, subject.qos, rate, seconds) as load,
        ):
            probe.read()
            load.read()
            load.tell("go")
            cost = self._cost(tried.process, tried.received)
            probed = json.loads(probe.ask(str(spans.latency)))
            rss = tried.process.rss_mb()
            fault = self._lost(json.loads(load.read()), tried.processed)
        self._add(subject.label, subject.qos, rate, cost, fault)
        self._add_beside(subject, rate, tried, rss, probed)

    def in_memory(self, rate: int) -> None:
        """CPU of the flow alone, as many messages to a read as come within the latency budget."""
        per_read, count = int(rate * BUDGET_S), self._spans.in_memory
        log = self._place() / "memory.log"
        with module("benchmarks.ingest.memory", log, "--messages", count, "--per-read", per_read) as memory:
            told = json.loads(memory.read())
        fault = "" if told["rows"] == told["fed"] else f"{told['fed']} messages fed, {told['rows']} rows came"
        name = f"gateway's flow, in memory, {per_read} messages per read"
        self._report.add(name, told["cpu_us"], "µs/message", fault=fault)

    def sustained(self, subject: Subject) -> None:
        """The most memory that a gateway ever holds over a long run; once, since it takes a minute."""
        place, seconds = self._place(), self._spans.sustained
        with (
            mosquitto(place, at_once=subject.at_once) as port,
            gateway(place / "gateway", port, subject.qos, subject.budget_s) as tried,
            self._load(place, port, subject.qos, SUSTAINED_RATE, seconds) as load,
        ):
            load.read()
            load.tell("go")
            ends, most = time.monotonic() + seconds, 0.0
            while time.monotonic() < ends:
                most = max(most, tried.process.rss_mb())
                time.sleep(LOOK_S)
            fault = self._lost(json.loads(load.read()), tried.processed)
        name = f"resident memory, most of {seconds:g} s: {figure(subject.label, subject.qos, SUSTAINED_RATE)}"
        self._report.add(name, most, "MB", limit=RSS_LIMIT_MB, fault=fault)

    # -- parts

    def _load(self, place: Path, port: int, qos: int, rate: int, seconds: float) -> AbstractContextManager[Child]:
        """The generator: says when it is connected, begins when told to."""
        arguments = ("--port", port, "--rate", rate, "--qos", qos, "--seconds", seconds)
        return module("benchmarks.ingest.load", place / "load.log", *arguments)

    def _cost(self, process: Child, count: Callable[[], int]) -> tuple[float, float]:
        """(CPU µs per message, messages per second) over the steady interval."""
        time.sleep(self._spans.warm_up)
        first = count()
        cpu, began = process.cpu_s(), time.monotonic()
        time.sleep(self._spans.steady)
        spent, took = process.cpu_s() - cpu, time.monotonic() - began
        received = count() - first
        return spent / max(1, received) * 1e6, received / took

    def _lost(self, told: dict[str, Any], count: Callable[[], int]) -> str:
        """Why the figure is not valid: every message must have been sent when it was due, about, and have arrived."""
        sent = int(told["sent"])
        if told["latest_ms"] > LATE_MS:
            return f"the generator was {told['latest_ms']:,.0f} ms late"
        try:
            wait_for(lambda: count() >= sent, f"{sent} messages", 5.0)
        except TimeoutError:
            return f"{sent} messages sent, {count()} received"
        return ""

    def _add(self, label: str, qos: int, rate: int, cost: tuple[float, float], fault: str) -> None:
        """A subject that falls behind in the interval is at fault. A baseline that does, and takes what it missed
        afterwards, has used a whole core: the more there is to a read the less a message costs it, so its figure is
        less than the true one, and a ratio to it is more."""
        micros, pace = cost
        remark = ""
        if pace < rate * (1 - SLACK):
            behind = f"only {pace:,.0f} messages/s came in the interval"
            if label in (BASELINE, BASELINE_AT_ONCE):
                remark = f"{behind}, so at least this"
            else:
                fault = fault or behind
        name = figure(label, qos, rate)
        self._report.add(name, micros, "µs/message", fault=fault, remark=remark)
        self._options.say(f"  {name}: {micros:.2f} µs/message {fault or remark}")

    def _add_beside(self, subject: Subject, rate: int, tried: Gateway, rss: float, probed: dict[str, Any]) -> None:
        add, missing = self._report.add, probed["missing"]
        fault = f"{missing} probes did not come through" if missing or not probed["added_ms"] else ""
        name = figure(subject.label, subject.qos, rate)
        for part, percent in (("p50", 50), ("p99", 99)):
            add(f"latency added {part}: {name}", percentile(probed["added_ms"], percent), "ms", fault=fault)
        if subject in (BARRED, AT_ONCE):
            direct = f"latency of the broker{' at once' * subject.at_once} alone p50, {rate:,}/s"
            add(direct, percentile(probed["direct_ms"], 50), "ms", fault=fault)
        if subject.budget_s is None:
            add(f"resident memory: {name}", rss, "MB", limit=RSS_LIMIT_MB)
        add("start to ready", tried.ready_s, "s", limit=READY_LIMIT_S)


def percentile(values: list[float], percent: int) -> float:
    """By linear interpolation; 0 of no values."""
    if len(values) < 2:
        return values[0] if values else 0.0
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    _, trace = messages()
    report.notes.append(f"messages: {trace}, each with the time of its sending; event time is real time")
    with tempfile.TemporaryDirectory(prefix="edgert-bench-") as folder:
        run = Run(options, report, Path(folder))
        for repetition in range(options.repetitions):
            for rate in RATES:
                options.say(f"repetition {repetition + 1} of {options.repetitions}, {rate:,} messages/s")
                for subject in (BARRED, CHECKPOINTS, AT_ONCE):
                    run.baseline(subject.qos, rate, at_once=subject.at_once)
                    run.subject(subject, rate)
                run.subject(UNCOALESCED, rate)
                run.in_memory(rate)
        options.say(f"memory over {run.sustained_s:g} s")
        for subject in (BARRED, CHECKPOINTS):
            run.sustained(subject)
    for rate, limit in RATES.items():
        for subject in (BARRED, CHECKPOINTS, AT_ONCE):
            to = figure(BASELINE_AT_ONCE if subject.at_once else BASELINE, subject.qos, rate)
            name = f"{subject.label} / paho, QoS {subject.qos}, {rate:,}/s"
            report.ratio(name, figure(subject.label, subject.qos, rate), to, limit if subject == BARRED else None)


def lacks() -> str | None:
    """A broker."""
    return None if MOSQUITTO else "Mosquitto (apt-get install mosquitto)"


BENCHMARK = Benchmark(
    about="CPU per message of ingest against a bare paho-mqtt loop, latency added, memory",
    measure=measure,
    draw=draw,
    lacks=lacks,
)
