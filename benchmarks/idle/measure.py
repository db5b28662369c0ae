"""The run: a gateway with one flow and one with 300, all of one source, connected and without input."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks import bars
from benchmarks.processes import MOSQUITTO, Child, child, mosquitto, wait_for
from benchmarks.report import Benchmark, Options, Report
from edgert.core.toml import to_toml

FLOWS: Final = (1, 300)
SECONDS: Final = 30.0
SETTLES_S: Final = 15.0
"""A gateway that has just begun works on its first checkpoints."""
CPU_LIMIT: Final = 0.01
WAKE_UPS_LIMIT: Final = 5.0


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    seconds = SECONDS / 3 if options.quick else SECONDS
    report.notes.append("wake-ups: voluntary context switches of all threads of the gateway's process")
    for repetition in range(options.repetitions):
        for flows in FLOWS:
            options.say(f"repetition {repetition + 1} of {options.repetitions}: {flows} flows")
            with tempfile.TemporaryDirectory(prefix="edgert-bench-") as name, gateway(Path(name), flows) as process:
                time.sleep(SETTLES_S)
                _measure(report, process, flows, seconds)
    one, many = (f"CPU, {flows} flows" for flows in FLOWS)
    report.ratio("CPU, 300 flows / one", many, one)


def _measure(report: Report, process: Child, flows: int, seconds: float) -> None:
    used, woken, began = process.cpu_s(), wake_ups(process.pid), time.monotonic()
    time.sleep(seconds)
    used, woken, lasted = process.cpu_s() - used, wake_ups(process.pid) - woken, time.monotonic() - began
    report.add(f"CPU, {flows} flows", used / lasted, "cores", limit=CPU_LIMIT)
    limit = WAKE_UPS_LIMIT if flows == 1 else None
    report.add(f"wake-ups, {flows} flows", woken / lasted, "1/s", limit=limit)


def wake_ups(pid: int) -> int:
    """How often threads of a process have gone to sleep so far."""
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
        found += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches:"))
    return found


@contextmanager
def gateway(folder: Path, flows: int) -> Iterator[Child]:
    """Connected to a broker of its own, with all flows running; ends with the block."""
    files = [folder / f"flow{number}.toml" for number in range(flows)]
    for number, file in enumerate(files):
        file.write_text(to_toml(document(number)), encoding="utf-8")
    with mosquitto(folder) as port:
        settings: dict[str, Any] = {
            "gateway": {"id": "bench", "data_dir": str(folder / "data")},
            "sensors": {"port": port},
            "central": {"enabled": False},
            "web": {"port": 0},
            "flows": {"files": list(map(str, files))},
        }
        config = folder / "gateway.toml"
        config.write_text(to_toml(settings), encoding="utf-8")
        with child([sys.executable, "-m", "gateway", "--config", config], folder / "gateway.log") as process:
            runs = f"version 1 runs{chr(10)}"
            wait_for(lambda: process.said().count(runs) == flows or not process.alive, "all flows", 240.0)
            wait_for(lambda: "connected to" in process.said() or not process.alive, "the connection")
            yield process


def document(number: int) -> dict[str, Any]:
    """A window of ten seconds over the source that all flows have."""
    return {
        "name": f"flow{number}",
        "operators": {
            "readings": {"type": "mqtt_source", "topic": "room/{source}"},
            "window": {"type": "tumbling_window", "input": "readings", "size_s": 10.0, "aggregates": {"n": "count()"}},
            "central": {"type": "ship", "input": "window"},
        },
    }


BENCHMARK: Final = Benchmark(
    "flows without input: at most 1 % of a core for 300 of one source, and 5 wake-ups a second for one",
    measure,
    lambda report, folder: bars.draw(report, folder, (("cores", 0.01, "% of a core"), ("1/s", 1.0, "wake-ups/s"))),
    lambda: None if MOSQUITTO else "mosquitto, the MQTT broker (apt-get install mosquitto)",
    repetitions=3,
)
