"""The run: a day's results wait in an outbox; broker, collector and uplink are the real ones, on loopback."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from benchmarks.outage.picture import draw
from benchmarks.outage.rows import EPOCH, FLEET, FLOW, GATEWAY
from benchmarks.processes import MOSQUITTO, module, mosquitto, wait_for
from benchmarks.report import Benchmark, Options, Report

HOURS: Final = 24.0
QUICK_HOURS: Final = 0.5
CAUGHT_UP_S: Final = 300.0
LIVE_S: Final = 2.0
APPLICATION: Final = f"{GATEWAY}/{FLOW}/{EPOCH}/"


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    hours = QUICK_HOURS if options.quick else HOURS
    report.notes.append(f"{hours:g} h of outage at 50 result rows/s, new results at the same rate; defaults everywhere")
    for repetition in range(options.repetitions):
        options.say(f"repetition {repetition + 1} of {options.repetitions}: filling the outbox")
        with tempfile.TemporaryDirectory(prefix="edgert-bench-") as folder:
            _once(options, report, Path(folder), hours)


def _once(options: Options, report: Report, folder: Path, hours: float) -> None:
    tables, data = folder / "tables", folder / "data"
    tables.mkdir()
    with mosquitto(folder) as port:
        collect = ("--root", tables, "--fleet", FLEET, "--broker", f"127.0.0.1:{port}")
        arguments = ("--data", data, "--port", port, "--hours", hours)
        with (
            module("edgert.central.collector", folder / "collector.log", *collect) as collector,
            module("benchmarks.outage.gateway", folder / "gateway.log", *arguments) as gateway,
        ):
            filled = json.loads(gateway.read())
            options.say(f"  {filled['rows']:,} rows in {filled['batches']:,} batches, {filled['bytes'] / 1e6:.0f} MB")
            wait_for(lambda: "connected to" in collector.said() or not collector.alive, "the collector's connection")
            gateway.tell("go")
            told = json.loads(gateway.read())
            memory, cpu = collector.rss_mb(), collector.cpu_s()
    landed = landings(tables / "landing" / FLOW / "_delta_log")
    latencies = [landed_at(landed, *batch[:2]) - batch[2] for batch in told["live"] if batch[0]]
    fault = _fault(tables, filled["rows"] + told["rows"])
    late = statistics.quantiles(latencies, n=20)[-1]
    report.add("caught up", told["caught_up_s"], "s", limit=CAUGHT_UP_S, fault=fault)
    report.add("new results, commit to landing table, p95", late, "s", limit=LIVE_S, fault=fault)
    report.add("new results, commit to landing table, median", statistics.median(latencies), "s")
    report.add("rows landed meanwhile", filled["rows"] / told["caught_up_s"], "rows/s")
    report.add("a result row in the outbox", filled["sample_bytes"] / filled["sample_rows"], "bytes")
    report.add("a result row, not compressed", filled["sample_plain_bytes"] / filled["sample_rows"], "bytes")
    report.add("memory of the collector", memory, "MB")
    report.add("CPU of the collector per row", cpu / (filled["rows"] + told["rows"]) * 1e6, "µs/row")
    report.curves |= {"what waits": told["curve"], "new results": [round(value, 3) for value in latencies]}
    options.say(f"  caught up in {told['caught_up_s']:.0f} s; new results p95 {late:.2f} s of {len(latencies)}")


def landings(log: Path) -> list[tuple[float, Mapping[int, int]]]:
    """Of each commit of the landing table, in order: when it stood there (the file system's time), and up to which
    number each stream stood in it."""
    found: list[tuple[float, Mapping[int, int]]] = []
    for path in sorted(log.glob("*.json")):
        actions = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        told = [action["txn"] for action in actions if "txn" in action]
        numbers = {int(txn["appId"].removeprefix(APPLICATION)): int(txn["version"]) for txn in told}
        found.append((path.stat().st_mtime, numbers))
    return found


def landed_at(landed: Iterable[tuple[float, Mapping[int, int]]], stream: int, sequence: int) -> float:
    """When a batch was in the table."""
    return next(at for at, numbers in landed if numbers.get(stream, 0) >= sequence)


def _fault(tables: Path, expected: int) -> str:
    """What is wrong with the table: every row has to be there, once."""
    from edgert.central.tables.show import select

    text = (
        "SELECT count(*), count(DISTINCT concat(cast(window_start AS varchar), source)) "
        f"FROM landing_{FLOW.replace('-', '_')} WHERE window_start IS NOT NULL"
    )
    _, [[rows, different]] = select(str(tables), text)
    if rows == different == expected:
        return ""
    return f"expected {expected} rows, each once, got {rows} of which {different} are different"


def _lacks() -> str | None:
    return None if MOSQUITTO else "mosquitto, the MQTT broker (apt-get install mosquitto)"


BENCHMARK = Benchmark(
    about="a day's outage: how long until all has landed, and how long new results take meanwhile",
    measure=measure,
    draw=draw,
    lacks=_lacks,
    repetitions=1,
)
