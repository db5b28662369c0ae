"""The run: PRED in one slot and in two by turns, fed inside the slots; then behind a broker and the daemon."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.borne import greatest_rate
from benchmarks.ingest.trace import messages
from benchmarks.processes import MOSQUITTO, child, free_port, module, mosquitto, wait_for
from benchmarks.report import Benchmark, Options, Report
from benchmarks.riotbench.flows import split
from benchmarks.slots.picture import draw
from edgert.flow.document import to_toml

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
"""Messages per second, which generator, broker, daemon and slots can bear together on two cores."""
HAND: Final = "PRED by hand, two processes"
PROGRAMS: Final = ("daemon", "slots")


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
    report.ratio("two processes by hand / borne in two slots", HAND, f"borne within {BOUND_MS:g} ms, {two}")


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

    name = f"borne within {BOUND_MS:g} ms, {_name(slots)}"
    rate, found = greatest_rate(bears, most * BEGIN, quick=options.quick)
    report.add(name, rate, "rows/s", fault="" if found else "none of the rates that were tried was borne")
    report.add(f"latency p99 at that rate, {_name(slots)}", p99[rate], "ms")
    if slots == SLOTS[-1]:
        report.add(f"{PROMISED:,} rows/s / {name}", PROMISED / rate, "", limit=1.0)
    options.say(f"  {name}: {rate:,.0f} rows/s, p99 {p99[rate]:.1f} ms")


def _over_mqtt(options: Options, report: Report, folder: Path, slots: int, warm_up: float, seconds: float) -> None:
    """Where the time goes with a broker and the daemon in front."""
    web = free_port()
    with mosquitto(folder) as port:
        flow, config = folder / "pred.toml", folder / "gateway.toml"
        flow.write_text(to_toml(split("pred", max(1, slots))), encoding="utf-8")
        settings = {
            "gateway": {"id": "bench", "data_dir": str(folder / "data")},
            "sensors": {"port": port},
            "central": {"port": port},
            "web": {"port": web},
            "pool": {"slots": slots},
            "flows": {"files": [str(flow)]},
        }
        config.write_text(to_toml(settings), encoding="utf-8")
        load = ("--port", port, "--qos", 0, "--rate", MQTT_RATE, "--seconds", warm_up + seconds + 2.0)
        with (
            child([sys.executable, "-m", "gateway", "--config", config], folder / "gateway.log") as daemon,
            module("benchmarks.ingest.load", folder / "load.log", *load) as publisher,
        ):
            wait_for(lambda: " is ready" in daemon.said() or not daemon.alive, "the gateway to be ready")
            publisher.read()
            publisher.tell("go")
            time.sleep(warm_up + 1.0)
            before = _figures(daemon, web)
            time.sleep(seconds)
            after = _figures(daemon, web)
    count = after["messages"] - before["messages"]
    label = f"over MQTT, {MQTT_RATE:,}/s, slots = {slots}"
    for program in PROGRAMS if slots else PROGRAMS[:1]:
        cost = (after[program] - before[program]) / count * 1e6
        report.add(f"{label}: CPU of {program}", cost, "µs/message", fault=after["dropped"])
    options.say(f"  {label}: {(after['daemon'] - before['daemon']) / count * 1e6:.1f} µs per message in the daemon")


def _figures(daemon: Any, web: int) -> dict[str, Any]:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{web}/api/status", timeout=10.0) as answer:
        status = json.load(answer)
    return {
        "messages": status["ingest"]["messages"],
        "dropped": ", ".join(f"{drop['rows']} {drop['reason']}" for drop in status["drops"]),
        "daemon": daemon.cpu_s(),
        "slots": sum(slot.get("cpu_s", 0.0) for slot in status["slots"]),
    }


def _lacks() -> str | None:
    return None if MOSQUITTO else "mosquitto, the MQTT broker (apt-get install mosquitto)"


BENCHMARK = Benchmark(
    about="slots: rows per second in one and in two, fed inside them; where the time goes behind a broker",
    measure=measure,
    draw=draw,
    lacks=_lacks,
)
