"""The run: PRED in one slot and in two by turns, fed inside the slots; then behind a broker and the daemon."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.borne import greatest_rate
from benchmarks.ingest.trace import messages
from benchmarks.processes import MOSQUITTO, module
from benchmarks.report import Benchmark, Options, Report
from benchmarks.slots.behind import behind
from benchmarks.slots.picture import draw

MORE: Final = 1.7
TURNS: Final = 3
"""So often in a repetition one and two slots take turns: a machine's speed may change from one second to the next."""
SLOTS: Final = (1, 2)
BOUND_MS: Final = 100.0
"""Latency (p99) within which a rate counts as borne."""
PROMISED: Final = 150_000
"""Rows per second that two slots bear, at least."""
BEGIN: Final = 0.7
"""Part of what slots take as fast as they can that is tried first."""
MQTT_RATE: Final = 4_000
"""Messages per second at which nothing is near its limit."""
MQTT_FIRST: Final = 12_000
"""The first that is tried when it is looked for what is borne."""
HAND: Final = "PRED by hand, two processes"


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    _, trace = messages()
    report.notes.append(f"rows: {trace}; PRED, each operator in as many copies as there are slots")
    warm_up, seconds = (0.2, 1.0) if options.quick else (0.5, 2.0)
    with tempfile.TemporaryDirectory(prefix="edgert-bench-") as folder:
        for repetition in range(options.repetitions):
            options.say(f"repetition {repetition + 1} of {options.repetitions}")
            most = {}
            for _ in range(1 if options.quick else TURNS):
                for slots in SLOTS:
                    most[slots] = _from_memory(options, report, Path(folder), slots, warm_up, seconds)
            for slots in SLOTS:
                _borne(options, report, Path(folder), slots, most[slots])
            _by_hand(options, report, Path(folder), 0.5 if options.quick else 2.0)
            for slots in (0, *SLOTS):
                place = Path(folder) / f"{repetition}-{slots}"
                place.mkdir()
                _over_mqtt(options, report, place, slots, warm_up, seconds)
    one, two = (_name(slots) for slots in SLOTS)
    report.ratio("one slot / two slots, rows per second", one, two, 1 / MORE)
    none, single, double = (_borne_name(_mqtt(slots)) for slots in (0, *SLOTS))
    report.ratio("over MQTT, one slot / two slots, messages per second", single, double)
    report.ratio("over MQTT, no slots / two slots, messages per second", none, double)
    report.ratio("two processes by hand / borne in two slots", HAND, _borne_name(two))


def _borne_name(of: str) -> str:
    return f"borne within {BOUND_MS:g} ms, {of}"


def _name(slots: int) -> str:
    return f"fed in the slots, {slots} slot{'s' if slots > 1 else ''}"


def _host(folder: Path, slots: int, *arguments: object) -> dict[str, Any]:
    with module("benchmarks.slots.host", folder / "host.log", "--slots", slots, *arguments) as host:
        told: dict[str, Any] = json.loads(host.read())
    return told


def _from_memory(options: Options, report: Report, folder: Path, slots: int, warm_up: float, seconds: float) -> float:
    """As fast as they take it. Returns rows per second."""
    told = _host(folder, slots, "--warm-up", warm_up, "--seconds", seconds)
    report.add(_name(slots), sum(told["rates"]), "rows/s")
    report.add(f"CPU per row, {_name(slots)}", told["cpu_us"], "µs/row")
    report.add(f"memory of a slot, {_name(slots)}", max(told["rss_mb"]), "MB")
    options.say(f"  {_name(slots)}: {sum(told['rates']):,.0f} rows/s, {told['cpu_us']:.2f} µs/row")
    return float(sum(told["rates"]))


def _by_hand(options: Options, report: Report, folder: Path, seconds: float) -> None:
    """What two processes do at the same time without an engine, as fast as they can."""
    arguments = ("benchmarks.riotbench.by_hand", folder / "hand.log", "--seconds", seconds)
    with module(*arguments) as one, module(*arguments) as other:
        report.add(HAND, float(one.read()) + float(other.read()), "rows/s")
    options.say(f"  {HAND}: {report.figures[HAND].values[-1]:,.0f} rows/s")


def _borne(options: Options, report: Report, folder: Path, slots: int, most: float) -> None:
    """The greatest rate, open-loop, with its p99 within the bound; the search begins below `most`."""
    seconds = 0.5 if options.quick else 2.5
    p99 = {}

    def bears(rate: float) -> bool:
        told = _host(folder, slots, "--rate", rate, "--warm-up", 0.5, "--seconds", seconds)
        p99[rate] = told["p99_ms"] or float("nan")
        return p99[rate] <= BOUND_MS and not told["shed"]

    name = _borne_name(_name(slots))
    rate, found = greatest_rate(bears, most * BEGIN, quick=options.quick)
    report.add(name, rate, "rows/s", fault="" if found else "none of the rates that were tried was borne")
    report.add(f"latency p99 at that rate, {_name(slots)}", p99[rate], "ms")
    if slots == SLOTS[-1]:
        report.add(f"{PROMISED:,} rows/s / {name}", PROMISED / rate, "", limit=1.0)
    options.say(f"  {name}: {rate:,.0f} rows/s, p99 {p99[rate]:.1f} ms")


def _over_mqtt(options: Options, report: Report, folder: Path, slots: int, warm_up: float, seconds: float) -> None:
    """What is borne with a broker and the daemon in front, and where the time goes."""
    with behind(folder, slots) as gateway:
        _costs(report, f"over MQTT, {MQTT_RATE:,}/s, slots = {slots}", gateway.load(MQTT_RATE, warm_up, seconds), slots)
        told = {}

        def bears(rate: float) -> bool:
            told[rate] = gateway.load(rate, warm_up, seconds)
            return not told[rate]["fault"] and bool(told[rate]["p99_ms"] <= BOUND_MS)

        rate, found = greatest_rate(bears, MQTT_FIRST, quick=options.quick)
    name = _borne_name(_mqtt(slots))
    report.add(name, rate, "messages/s", fault="" if found else "none of the rates that were tried was borne")
    _costs(report, f"{_mqtt(slots)}, at that rate", told[rate], slots)
    options.say(f"  {name}: {rate:,.0f} messages/s, {told[rate]['cores']:.2f} cores at work")


def _mqtt(slots: int) -> str:
    return f"over MQTT, slots = {slots}"


def _costs(report: Report, label: str, told: dict[str, Any], slots: int) -> None:
    fault = told["fault"]
    for program in ("generator", "broker", "daemon", *(("slots",) if slots else ())):
        report.add(f"{label}: CPU of {program}", told[program], "µs/message", fault=fault)
    report.add(f"{label}: at work together", told["cores"], "cores", fault=fault)
    report.add(f"{label}: rows per turn", told["rows_per_turn"], "rows", fault=fault)
    report.add(f"{label}: p99", told["p99_ms"], "ms", fault=fault)


def _lacks() -> str | None:
    return None if MOSQUITTO else "mosquitto, the MQTT broker (apt-get install mosquitto)"


BENCHMARK = Benchmark(
    about="slots: rows per second in one and in two, fed inside them; where the time goes behind a broker",
    measure=measure,
    draw=draw,
    lacks=_lacks,
)
