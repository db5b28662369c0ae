"""The run: what checkpoints cost a flow, how long they stop it, what they write, how soon they are read again."""

from __future__ import annotations

import json
import statistics
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.checkpoints import daemon
from benchmarks.checkpoints.flow import shuffled
from benchmarks.checkpoints.picture import WEAR, draw
from benchmarks.ingest.gateway import Gateway
from benchmarks.ingest.measure import percentile
from benchmarks.ports import free_port
from benchmarks.processes import MOSQUITTO, Child, module, mosquitto, wait_for
from benchmarks.report import Benchmark, Options, Report

INTERVAL_S: Final = 5.0
OVERHEAD_PERCENT: Final = 3.0
PAUSE_MS: Final = 10.0
NOT_ON_DISK: Final = "the kernel says that nothing was written: is the folder on a disk?"
WRITTEN_MB: Final = 1.0
RECOVERY_S: Final = 2.0
LOADS: Final = {"100 messages/s, 1,000 keys": (100, 1_000), "10 devices at 1 Hz": (10, 10)}
"""Messages per second, keys."""
INTERVALS_S: Final = (1, 5, 60)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of each."""

    few: int
    keys: int
    dirty: int
    pairs: int
    rounds: int
    asked: int
    """Checkpoints that the daemon is asked for."""
    kills: int
    wear_s: int
    """Simulated."""


FULL: Final = Sizes(1_000, 100_000, 10_000, pairs=6, rounds=40, asked=12, kills=3, wear_s=900)
QUICK: Final = Sizes(200, 5_000, 500, pairs=1, rounds=8, asked=2, kills=1, wear_s=60)


class Run:
    """One run of the benchmark."""

    def __init__(self, options: Options, report: Report, folder: Path) -> None:
        self._options, self._report, self._folder = options, report, folder
        self._sizes = QUICK if options.quick else FULL
        self.wear_mb: dict[str, dict[int, float]] = {}
        """By load and interval, MB per hour."""

    def _inside(self, what: str, **sizes: int) -> dict[str, Any]:
        """What a process of its own says."""
        arguments = [part for name, size in sizes.items() for part in (f"--{name}", size)]
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            log = Path(place) / "inside.log"
            with module("benchmarks.checkpoints.inside", log, what, place, *arguments) as process:
                told: dict[str, Any] = json.loads(process.read())
        return told

    def overhead(self, keys: int) -> None:
        """What one checkpoint takes from the flow, of the time between two."""
        sizes = self._sizes
        told = self._inside("overhead", keys=keys, messages=max(keys, sizes.keys // 4), pairs=sizes.pairs)
        label = f"{keys:,} keys"
        for at, name, limit in ((0, "throughput", OVERHEAD_PERCENT), (1, "CPU", None)):
            more = [a[at] - b[at] for a, b in zip(told["with"], told["without"], strict=True)]
            lost = statistics.fmean(more) / INTERVAL_S * 100
            self._report.add(f"{name} lost at the default interval, {label}", lost, "%", limit=limit)
        rates = [told["messages"] / took for took, _ in told["without"]]
        self._report.add(f"throughput without checkpoints, {label}", statistics.median(rates), "messages/s")
        self._options.say(f"  {label}: {lost:.2f} % of CPU, {told['compactions']} merged")

    def pauses(self) -> None:
        """How long the flow stands still, and what is written."""
        sizes = self._sizes
        told = self._inside("pauses", keys=sizes.keys, dirty=sizes.dirty, rounds=sizes.rounds)
        fault = f"{told['owed']} messages were not acknowledged" if told["owed"] else ""
        label, add = f"{sizes.dirty:,} of {sizes.keys:,} keys", self._report.add
        rounds = told["rounds"]
        pauses = [one["pause_ms"] for one in rounds]
        add(f"pause p50, {label}", percentile(pauses, 50), "ms", fault=fault)
        add(f"pause p99, {label}", percentile(pauses, 99), "ms", limit=PAUSE_MS, fault=fault)
        add(f"pause, longest, {label}", max(pauses), "ms", fault=fault)
        add(f"pause to end of commit, {label}", percentile([one["took_ms"] for one in rounds], 50), "ms")
        for merging, when in ((False, ""), (True, ", while state is merged")):
            if longest := [one["longest_ms"] for one in rounds if one["merging"] is merging]:
                add(f"flow takes nothing, longest{when}, {label}", max(longest), "ms")
        written = statistics.fmean(one["written"] for one in rounds) / 1e6
        nothing = "" if written else NOT_ON_DISK
        add(f"written by it, {label}", written, "MB", limit=WRITTEN_MB, fault=nothing)
        for part in ("delta", "ids"):
            add(f"of that {part}, {label}", statistics.fmean(one[part] for one in rounds) / 1e6, "MB")
        self._options.say(f"  pause p99 {percentile(pauses, 99):.1f} ms, {written:.2f} MB")

    def gateway(self) -> None:
        """The same of the gateway as a process; then its death."""
        sizes = self._sizes
        web, order = free_port(), shuffled(sizes.keys)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder, mosquitto(Path(folder)) as port:
            config = daemon.prepare(Path(folder) / "gateway", port, web)
            with closing(daemon.Publisher(port)) as publisher, closing(daemon.Desk(port)) as desk:
                with daemon.gateway(config) as process:
                    daemon.ready_s(process)
                    daemon.through_s(process, desk)
                    sent = self._fill(process, web, publisher, order)
                    pauses = []
                    for at in range(sizes.asked):
                        first = at * sizes.dirty % sizes.keys
                        publisher.send(order[first : first + sizes.dirty])
                        sent += sizes.dirty
                        self._processed(process, web, sent)
                        desk.ask()
                        pauses.append(desk.answer()["pause_ms"])
                    rss = process.rss_mb()
                    daemon.kill(process)
                for _ in range(sizes.kills):
                    with daemon.gateway(config) as process:
                        through, ready = daemon.through_s(process, desk), daemon.ready_s(process)
                        self._recovered(process, web, ready, through)
                        daemon.kill(process)
        label = f"gateway, {sizes.dirty:,} of {sizes.keys:,} keys"
        self._report.add(f"pause p50, {label}", percentile(pauses, 50), "ms", limit=PAUSE_MS)
        self._report.add(f"pause, longest, {label}", max(pauses), "ms")
        self._report.add(f"resident memory, {label}", rss, "MB")

    def _fill(self, process: Child, web: int, publisher: daemon.Publisher, order: list[int]) -> int:
        for first in range(0, len(order), self._sizes.dirty):
            publisher.send(order[first : first + self._sizes.dirty])
            self._processed(process, web, first + self._sizes.dirty)
        return len(order)

    def _processed(self, process: Child, web: int, messages: int) -> None:
        """Waits until the flow has taken so many."""
        status = Gateway(process, web, 0.0).status
        wait_for(lambda: _rows(status()) >= messages, f"{messages} messages to be processed", 60.0)

    def _recovered(self, process: Child, web: int, ready: float, through: float) -> None:
        failed = [flow for flow in Gateway(process, web, 0.0).status()["flows"] if flow["state"] == "failed"]
        fault = f"flows did not go on: {failed}" if failed else ""
        label = f"{self._sizes.keys:,} keys"
        self._report.add(f"kill -9 to ready, {label}", ready, "s", fault=fault)
        self._report.add(f"kill -9 to the first message, {label}", through, "s", limit=RECOVERY_S, fault=fault)

    def wear(self) -> None:
        """What an hour brings to the card."""
        for load, (rate, keys) in LOADS.items():
            for interval_s in INTERVALS_S:
                seconds = max(self._sizes.wear_s, 2 * interval_s)
                told = self._inside("wear", keys=keys, rate=rate, interval=interval_s, seconds=seconds)
                hourly = told["bytes"] / seconds * 3_600 / 1e6
                fault = "" if told["bytes"] else NOT_ON_DISK
                if not told["landed"]:
                    fault = "nothing was shipped"
                self._report.add(f"to the card, {load}, every {interval_s} s", hourly, "MB/h", fault=fault)
                self.wear_mb.setdefault(load, {})[interval_s] = hourly
            self._options.say(f"  {load}: {self.wear_mb[load]} MB/h")


def _rows(status: dict[str, Any]) -> int:
    flow = next(flow for flow in status["flows"] if flow["name"] == "plant")
    return int(flow["operators"][0]["rows_in"])


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    sizes = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(prefix="edgert-bench-") as folder:
        run = Run(options, report, Path(folder))
        for repetition in range(options.repetitions):
            options.say(f"repetition {repetition + 1} of {options.repetitions}")
            for keys in (sizes.few, sizes.keys):
                run.overhead(keys)
            run.pauses()
        run.gateway()
        run.wear()
    report.curves[WEAR] = {load: [list(point) for point in hourly.items()] for load, hourly in run.wear_mb.items()}


BENCHMARK = Benchmark(
    about="checkpoints: throughput lost, pause, bytes written, recovery after kill -9, wear of the card",
    measure=measure,
    draw=draw,
    lacks=lambda: None if MOSQUITTO else "mosquitto, the MQTT broker (apt-get install mosquitto)",
    repetitions=3,
)
