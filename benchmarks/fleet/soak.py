"""`python -m benchmarks.fleet.soak --hours H [--out DIR]`: do memory, live files and logs level off?

A collector's side (landing and upkeep, retention short) and `edgert central run`, each a process of its own; what they
use is looked at every 10 s. Writes fleet-soak.json and fleet-soak.png. Exit status as of `python -m benchmarks`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from deltalake import DeltaTable

from benchmarks import machine
from benchmarks.fleet.landings import FLOW, count, files, files_per_day
from benchmarks.outage.rows import READINGS
from benchmarks.pictures import save
from benchmarks.processes import Child, module, wait_for
from benchmarks.report import Report

SAMPLE_S: Final = 10.0
START_S: Final = 900.0
"""A busy machine takes its time."""
MOST_GROWTH: Final = 0.1
"""See `growth`."""
LEVELS: Final = {
    "memory of the job's JVM": "MB",
    "memory of the job's Python": "MB",
    "memory of the collector's side": "MB",
    "live files of landing": "files",
    "live files of fleet per day": "files",
    "logs of the tables": "MB",
    "checkpoint of the stream": "files",
}


@dataclass(slots=True)
class Samples:
    """What was used, over time."""

    at: list[float] = field(default_factory=list)
    """Seconds since the start."""
    of: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in LEVELS})

    def add(self, at: float, used: Mapping[str, float]) -> None:
        self.at.append(at)
        for name, value in used.items():
            self.of[name].append(value)


def growth(at: Sequence[float], used: Sequence[float]) -> float:
    """How much greater the median of the last quarter of the time is than that of the quarter before, as a part of it.
    Between two compactions files become more; a line through all samples would take the last such rise for growth."""
    length = at[-1] - at[0]
    quarters: list[list[float]] = [[], []]
    for moment, value in zip(at, used, strict=True):
        if (moment - at[0]) * 2 >= length:
            quarters[(moment - at[0]) * 4 >= 3 * length].append(value)
    before, last = (statistics.median(quarter or [0.0]) for quarter in quarters)
    return (last - before) / before if before else 0.0


class Watch:
    """Looks at the processes and the tables under a root."""

    def __init__(self, root: Path, job: Child, side: Child) -> None:
        self._root = root
        self._job = psutil.Process(job.pid)
        self._side = side

    def look(self) -> dict[str, float]:
        """A value for each of `LEVELS`."""
        below = self._job.children(recursive=True)
        logs = [size for path in self._root.glob("**/_delta_log/*") if (size := _size(path))]
        return {
            "memory of the job's JVM": sum(map(_java_bytes, below)) / 1e6,
            "memory of the job's Python": self._job.memory_info().rss / 1e6,
            "memory of the collector's side": self._side.rss_mb(),
            "live files of landing": files(self._root / "landing" / FLOW),
            "live files of fleet per day": files_per_day(self._root / "fleet" / FLOW),
            "logs of the tables": sum(logs) / 1e6,
            "checkpoint of the stream": sum(1 for path in self._root.glob("_spark/**/*") if path.is_file()),
        }


def _java_bytes(process: psutil.Process) -> int:
    """Of a process that is Java; 0 for others, and for one that has just ended (Hadoop starts some)."""
    try:
        return int(process.memory_info().rss) if process.name() == "java" else 0
    except psutil.NoSuchProcess:
        return 0


def _size(path: Path) -> int:
    """0: it has just been deleted."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def soak(hours: float, folder: Path, report: Report, arguments: Sequence[str] = ()) -> Samples:
    """Runs it. `arguments`: those of `benchmarks.fleet.collect`."""
    root = folder / "tables"
    root.mkdir()
    samples = Samples()
    with module("benchmarks.fleet.collect", folder / "collect.log", "--root", root, *arguments) as side:
        landing = root / "landing" / FLOW
        wait_for(lambda: DeltaTable.is_deltatable(str(landing)), "a landing table", START_S)
        with module("edgert", folder / "job.log", "central", "run", "--root", root) as job:
            fleet = root / "fleet" / FLOW
            wait_for(lambda: DeltaTable.is_deltatable(str(fleet)) or not job.alive, "a fleet table", START_S)
            watch = Watch(root, job, side)
            started = time.monotonic()
            while (at := time.monotonic() - started) < hours * 3600:
                if not (job.alive and side.alive):
                    raise RuntimeError(f"expected both to run for {hours:g} h: {job.said()[-2000:]}{side.said()}")
                samples.add(at, watch.look())
                if len(samples.at) % 6 == 1:
                    print(f"{at / 60:5.1f} min: {_line(samples)}", file=sys.stderr, flush=True)
                time.sleep(SAMPLE_S)
            told = json.loads(side.ask("stop"))
            fault = _fault(root, told)
        said = [line for line in (side.said() + job.said()).splitlines() if "ERROR" in line]
    _fill(report, samples, told, fault)
    report.notes += [f"said: {line}" for line in said[:20]]
    return samples


def _line(samples: Samples) -> str:
    return ", ".join(f"{name} {values[-1]:.4g} {LEVELS[name]}" for name, values in samples.of.items())


def _fault(root: Path, told: Mapping[str, Any]) -> str:
    """What is wrong with the fleet table: it must get to say what was shipped, which may take it a moment."""
    expected = [told["windows"], told["rows"] * READINGS]
    got: list[Any] = []

    def same() -> bool:
        nonlocal got
        got = count(root)
        return got == expected

    try:
        wait_for(same, "the fleet table", START_S)
    except TimeoutError:
        return f"expected {expected[0]} windows of {expected[1]} readings in the fleet table, got {got}"
    return ""


def _fill(report: Report, samples: Samples, told: Mapping[str, Any], fault: str) -> None:
    for name, unit in LEVELS.items():
        used = samples.of[name]
        report.add(name, statistics.median(used[len(used) // 2 :]), unit, fault=fault)
    for name in LEVELS:
        report.add(f"growth: {name}", growth(samples.at, samples.of[name]), "of it", limit=MOST_GROWTH)
    upkeep = told["upkeep"]
    report.notes.append(
        f"{told['rows']:,} rows in {told['seconds']:,} s; upkeep: {upkeep['rounds']} rounds, {upkeep['compacted']} "
        f"files compacted, {upkeep['days']} days dropped, {upkeep['deleted']} files and {upkeep['log_deleted']} of "
        f"logs deleted, {upkeep['failures']} failures"
    )
    report.curves["samples"] = {"at": [round(at) for at in samples.at], **_rounded(samples.of)}


def _rounded(of: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    return {name: [round(value, 3) for value in values] for name, values in of.items()}


def draw(samples: Samples, report: Report, folder: Path) -> Path:
    """Writes fleet-soak.png."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    picture, places = plt.subplots(2, 4, figsize=(14, 6), layout="constrained")
    for axes, (name, values) in zip(places.flat, samples.of.items(), strict=False):
        axes.plot([at / 60 for at in samples.at], values, color="#4878a8", linewidth=1)
        axes.set_title(name, fontsize=9)
        axes.set_ylabel(LEVELS[name])
        axes.set_xlabel("minutes")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    places.flat[-1].set_axis_off()
    return save(picture, report, folder)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1.0, help="how long (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"), help="folder (default: %(default)s)")
    options, others = parser.parse_known_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    report = Report("fleet-soak", "memory, live files and logs of the central side level off", machine.describe(), 1)
    with tempfile.TemporaryDirectory(prefix="edgert-soak-", ignore_cleanup_errors=True) as folder:
        samples = soak(options.hours, Path(folder), report, others)
    report.machine["load_after"] = machine.load()
    print(report.table())
    written = [report.write_json(options.out), draw(samples, report, options.out)]
    print("\nwritten: " + ", ".join(map(str, written)))
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main())
