"""The run: a backlog as the collector lands it, taken by the fleet job; then a few results each second beside it."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deltalake import DeltaTable

from benchmarks.fleet.landings import FLOW, Fleet, Landings, count, files
from benchmarks.fleet.picture import LATE, draw
from benchmarks.outage.rows import READINGS, START
from benchmarks.processes import module
from benchmarks.report import Benchmark, Options, Report
from edgert.central.spark.install import check_java
from edgert.central.tables.query import query
from edgert.central.upkeep.upkeep import Upkeep
from edgert.core.errors import EdgertError
from edgert.core.settings.central import Upkeep as UpkeepSettings

RATE: Final = 150_000.0
"""Landing rows per second in catch-up."""
MEDIAN_S: Final = 4.0
P95_S: Final = 8.0
COLD: Final = "cold"
"""Of a job that has just got its session: what its JVM has still to load and compile counts."""
SETTLED: Final = "settled"
"""Of the same process, once it has taken the backlog before."""
_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much of it."""

    gateways: int
    sensors: int
    backlog_s: int
    """Of commits, one per second."""
    warm_up: int
    """Commits at low rate that are in the fleet table before the time of others is taken."""
    timed: int
    """Commits at low rate whose time is taken."""


FULL: Final = Size(gateways=200, sensors=50, backlog_s=960, warm_up=120, timed=60)
QUICK: Final = Size(gateways=20, sensors=10, backlog_s=10, warm_up=2, timed=5)


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    size = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(prefix="edgert-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        landed, compacted = folder / "landed", folder / "compacted"
        fleet = Fleet(size.gateways, size.sensors, 5, START)
        options.say(f"landing {size.backlog_s} s of {size.gateways} gateways with {size.sensors} sensors")
        started = time.monotonic()
        _land(fleet, landed, size.backlog_s)
        seconds = time.monotonic() - started
        shutil.copytree(landed, compacted)
        _compact(compacted)
        before, after = (files(root / "landing" / FLOW) for root in (landed, compacted))
        report.notes.append(
            f"{fleet.rows:,} rows in {before} files, {after} compacted; landed in {seconds:.0f} s of work"
        )
        for repetition in range(options.repetitions):
            options.say(f"repetition {repetition + 1} of {options.repetitions}: catching up")
            _catch_up(report, "as landed", landed, folder, fleet, RATE)
            _catch_up(report, "compacted", compacted, folder, fleet)
            _plain(report, landed, folder, fleet)
        for when in (COLD, SETTLED):
            report.ratio(
                f"plain append / catch-up, as landed, {when}", f"plain append, {when}", f"catch-up, as landed, {when}"
            )
            report.ratio(
                f"catch-up, compacted / as landed, {when}",
                f"catch-up, compacted, {when}",
                f"catch-up, as landed, {when}",
            )
        for repetition in range(options.repetitions):
            options.say(f"repetition {repetition + 1} of {options.repetitions}: low rate")
            _low_rate(report, folder / f"low{repetition}", folder, size)


def _land(fleet: Fleet, root: Path, seconds: int) -> None:
    landings = Landings(root)
    landings.land(fleet.opens())
    for second in range(seconds):
        landings.land(fleet.second(second))


def _compact(root: Path) -> None:
    for work in Upkeep(str(root), UpkeepSettings(compact_files=2)).round(thorough=False):
        if work.trouble:
            raise EdgertError(f"{work.table}: {work.trouble}")


def _catch_up(report: Report, name: str, root: Path, folder: Path, fleet: Fleet, rate: float | None = None) -> None:
    """The job from the start of the landing table to its end, its session's start apart; then once more."""
    with module("benchmarks.fleet.job", folder / "job.log", "--root", root) as job:
        job.read()
        for when in (COLD, SETTLED):
            told = json.loads(job.ask("go"))
            got, expected = count(root), [fleet.windows, fleet.rows * READINGS]
            fault = "" if got == expected else f"expected (windows, readings) {expected}, got {got}"
            report.add(f"catch-up, {name}, {when}", fleet.rows / told["seconds"], "rows/s", fault=fault)
            report.add(f"CPU of the job, {name}, {when}", told["cpu_s"] / fleet.rows * 1e6, "µs/row")
            report.curves[f"triggers, {name}, {when}"] = told["triggers"]
    if rate is not None:
        report.add(
            f"{rate:,.0f} rows/s / catch-up, {name}, {SETTLED}", rate * told["seconds"] / fleet.rows, "", limit=1.0
        )
    report.add(f"memory of the job, {name}", told["memory_mb"], "MB")


def _plain(report: Report, root: Path, folder: Path, fleet: Fleet) -> None:
    with module("benchmarks.fleet.job", folder / "plain.log", "--root", root, "--plain") as job:
        job.read()
        for when in (COLD, SETTLED):
            report.add(f"plain append, {when}", fleet.rows / json.loads(job.ask("go"))["seconds"], "rows/s")


def _low_rate(report: Report, root: Path, folder: Path, size: Size) -> None:
    """A commit each second, and when its rows are in the fleet table: both times are those of the tables' own logs."""
    fleet, landings = Fleet(20, 5, 5, START, corrected=5), Landings(root)
    landings.land(fleet.opens())
    landing, table = root / "landing" / FLOW, root / "fleet" / FLOW
    with module("benchmarks.fleet.job", folder / "low.log", "--root", root, "--follow") as job:
        job.read()
        job.tell("go")
        first = _versions(landing)[-1] + 1
        started, second, until = time.monotonic(), 0, 0
        while not until or second < until or _newest(table) < fleet.start_of(second - 1):
            if not until or second < until:
                landings.land(fleet.second(second))
                second += 1
                if not until and _newest(table) >= fleet.start_of(size.warm_up):
                    until = second + size.timed
            time.sleep(max(0.2, started + second - time.monotonic()))
            if time.monotonic() - started > _TIMEOUT_S + size.timed:
                raise TimeoutError(f"expected {second} commits in the fleet table, the newest is {_newest(table)}")
        told = json.loads(job.ask("stop"))
    seen = seen_at(table, fleet)
    late = [seen[n] - _committed(landing, first + n) for n in range(until - size.timed, until)]
    got, expected = count(root), [fleet.windows, fleet.rows * READINGS]
    fault = "" if got == expected else f"expected (windows, readings) {expected}, got {got}"
    report.add("low rate, commit to fleet table, median", statistics.median(late), "s", limit=MEDIAN_S, fault=fault)
    p95 = statistics.quantiles(late, n=20)[-1]
    report.add("low rate, commit to fleet table, p95", p95, "s", limit=P95_S, fault=fault)
    report.add("low rate, CPU of the job", told["cpu_s"] / told["seconds"], "cores")
    triggers = told["triggers"][len(told["triggers"]) // 2 :]
    phases = {name: statistics.median(t[1].get(name, 0) for t in triggers) for name in triggers[-1][1]}
    report.curves["low rate, ms of a trigger (median of the second half)"] = phases
    report.curves[LATE] = [round(s, 2) for s in late]


def seen_at(table: Path, fleet: Fleet) -> list[float]:
    """When the windows that ended in each second were in the fleet table first (s since the epoch)."""
    seen: list[float] = []
    for version in _versions(table):
        newest = _newest(table, version)
        while fleet.start_of(len(seen)) <= newest:
            seen.append(_committed(table, version))
    return seen


def _versions(table: Path) -> list[int]:
    return sorted(int(path.stem) for path in (table / "_delta_log").glob("*.json") if path.stem.isdigit())


def _committed(table: Path, version: int) -> float:
    return (table / "_delta_log" / f"{version:020}.json").stat().st_mtime


def _newest(table: Path, version: int | None = None) -> float:
    """When the newest windows of a version begin (0: there are none)."""
    if not DeltaTable.is_deltatable(str(table)):
        return 0.0
    at = DeltaTable(str(table), version=version)
    rows = query(at, ["window_start"], "window_start IS NOT NULL", ["window_start"], 1)
    return rows[0]["window_start"].timestamp() if rows else 0.0


def _lacks() -> str | None:
    try:
        check_java()
    except EdgertError as error:
        return str(error)
    return None


BENCHMARK = Benchmark(
    about="the fleet job: landing rows per second in catch-up, and seconds to the fleet table at low rate",
    measure=measure,
    draw=draw,
    lacks=_lacks,
    repetitions=1,
)
