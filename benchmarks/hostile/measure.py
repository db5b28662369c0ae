"""The run, for each attack: a broker, a collector, an honest gateway by itself, and then beside a hostile one."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks import bars
from benchmarks.hostile.attacks import ATTACKS, HOSTILE, PACKET_LIMITS, Attack
from benchmarks.hostile.gateway import FLEET
from benchmarks.hostile.honest import PATIENCE_S, Honest
from benchmarks.processes import MOSQUITTO, Child, child, mosquitto
from benchmarks.report import Benchmark, Options, Report
from edgert.core.results.results import results_topic

SECONDS: Final = 20.0
"""So long results are sent one after the other beside the hostile gateway; a quarter of it without one."""
LIMIT_S: Final = 2.0
BY_NAME: Final = {attack.__name__.replace("_", " "): attack for attack in ATTACKS}
ALONE: Final = "alone"


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    report.notes.append("seconds by the clock from publishing a result until its acknowledgement, the slowest of all")
    seconds = SECONDS / 4 if options.quick else SECONDS
    for repetition in range(options.repetitions):
        for name in options.applications or BY_NAME:
            options.say(f"repetition {repetition + 1} of {options.repetitions}: {name}")
            with tempfile.TemporaryDirectory(prefix="edgert-bench-") as folder:
                _measure(report, name, Path(folder), seconds)


def _measure(report: Report, name: str, folder: Path, seconds: float) -> None:
    broker = mosquitto(folder, max_packet_bytes=PACKET_LIMITS.get(BY_NAME[name], 0))
    with broker as port, collector(folder, port) as process, Honest(port) as honest:
        honest.begin()
        alone = times(honest, seconds / 4)
        rss_mb = process.rss_mb()
        with flood(port, BY_NAME[name]):
            beside = times(honest, seconds)
        grown = max(0.0, peak_mb(process) - rss_mb)
    report.add(f"{name}: {ALONE}", max(alone), "s")
    report.add(f"{name}: beside it", max(beside), "s", limit=LIMIT_S, remark=f"{len(beside)} results")
    report.add(f"{name}: collector grown by", grown, "MB")
    report.curves.setdefault("acknowledgements", {})[name] = {ALONE: alone, "beside it": beside}


def times(honest: Honest, seconds: float) -> list[float]:
    """Results one after the other for so long: the seconds until each acknowledgement."""
    found, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        found.append(honest.one())
    return found


@contextmanager
def flood(port: int, attack: Attack) -> Iterator[None]:
    """All messages of an attack go to the broker before the block, and to the collector from then on."""
    hostile = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv311)
    hostile.max_inflight_messages_set(1_000)
    hostile.connect("127.0.0.1", port)
    hostile.loop_start()
    try:
        sent = [hostile.publish(results_topic(FLEET, HOSTILE, flow), payload, qos=1) for flow, payload in attack()]
        sent[-1].wait_for_publish(PATIENCE_S)
        yield
    finally:
        hostile.disconnect()
        hostile.loop_stop()


@contextmanager
def collector(folder: Path, port: int) -> Iterator[Child]:
    """A collector with a landing folder of its own, with the defaults of its settings."""
    command = [sys.executable, "-m", "edgert.central.collector", "--fleet", FLEET]
    with child([*command, "--root", folder / "tables", "--broker", f"127.0.0.1:{port}"], folder / "c.log") as process:
        yield process


def peak_mb(process: Child) -> float:
    """The most memory that a process ever had, MB."""
    lines = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6


def lacks() -> str | None:
    if not MOSQUITTO:
        return "mosquitto, the MQTT broker (apt-get install mosquitto)"
    return None if os.path.exists("/proc/self/status") else "Linux: memory is read from /proc"


BENCHMARK: Final = Benchmark(
    "an honest gateway hears within 2 s that a result has landed, under any one hostile gateway",
    measure,
    lambda report, folder: bars.draw(report, folder, (("s", 1.0, "slowest acknowledgement, s"), ("MB", 1.0, "MB"))),
    lacks,
    repetitions=3,
    applications=tuple(BY_NAME),
)
