"""The run: one gateway with the flows; each rate under each policy by turns, the plain OS first."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from agent.osched.kernel.rights import can_raise_priority
from benchmarks.ingest.measure import percentile
from benchmarks.osched.flows import FLOWS, flows, install
from benchmarks.osched.picture import draw
from benchmarks.ports import free_port
from benchmarks.processes import MOSQUITTO, Child, child, module, mosquitto, wait_for
from benchmarks.report import Benchmark, Options, Report
from edgert.control.client import call
from edgert.core.errors import EdgertError
from edgert.core.toml import to_toml

PLAIN: Final = "none"
POLICIES: Final = (PLAIN, "qs", "fcfs", "hr", "random")
QUICK: Final = (PLAIN, "qs")
PARTS: Final = (0.4, 0.5, 0.6, 0.7)
"""Of all cores, what the operators' own CPU time would take; broker, ingest and load come on top."""
PER_CORE: Final = 3
"""Slots per core."""
DRAINED_S: Final = 30.0
READY_S: Final = 60.0


class Load:
    """Sends messages to all flows at a fixed rate, and notes when the results come back."""

    def __init__(self, port: int) -> None:
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, "bench")
        self._client.on_message = self._on_message
        self._client.max_queued_messages_set(0)
        self._client.connect("127.0.0.1", port)
        self._client.subscribe("out/#", 0)
        self._client.loop_start()
        self.results: list[tuple[float, float]] = []
        """(when it was sent, when its result came), wall clock seconds."""

    def _on_message(self, client: Any, data: Any, message: mqtt.MQTTMessage) -> None:
        self.results.append((json.loads(message.payload)["at"], time.time()))

    def send(self, rate: float, seconds: float) -> float:
        """`rate` messages per second in all; returns by how much the last was late, s."""
        begin, count = time.monotonic(), round(rate * seconds)
        for number in range(count):
            due = begin + number / rate
            if (ahead := due - time.monotonic()) > 0.001:
                time.sleep(ahead)
            payload = b'{"at": %.6f}' % time.time()
            self._client.publish(f"syn/{number % FLOWS}/d", payload, 0)
        return time.monotonic() - begin - count / rate

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Board:
    """Gateway, agent and load."""

    def __init__(self, gateway: Path, agent: Path, load: Load, part: Child) -> None:
        self._gateway, self._agent, self.load = gateway, agent, load
        self.part = part
        """The agent's process."""

    def queues(self) -> list[int]:
        """Rows in each queue."""
        figures = call(self._gateway, "figures")
        return [i["queue_rows"] for flow in figures["flows"].values() for i in flow["instances"].values()]

    def use(self, policy: str) -> dict[str, Any]:
        """The agent's status after its first period under the policy."""
        status: dict[str, Any] = call(self._agent, "sched.policy", {"policy": policy})
        return status

    def status(self) -> dict[str, Any]:
        """What the agent says."""
        status: dict[str, Any] = call(self._agent, "sched.status")
        return status

    def run(self, policy: str, rate: float, warm_up: float, seconds: float) -> dict[str, float]:
        """Latency, results per second and spread of queues under a policy."""
        wait_for(lambda: sum(self.queues()) < FLOWS, "empty queues", DRAINED_S)
        self.use(policy)
        self.load.results.clear()
        spreads: list[float] = []
        late: list[float] = []
        sender = threading.Thread(target=lambda: late.append(self.load.send(rate, warm_up + seconds)))
        begin = time.time()
        sender.start()
        time.sleep(warm_up)
        while sender.is_alive():
            spreads.append(statistics.pstdev(self.queues()))
            time.sleep(0.25)
        end = time.time()
        counted = [(sent, came) for sent, came in list(self.load.results) if came >= begin + warm_up and came <= end]
        latencies = [(came - sent) * 1e3 for sent, came in counted] or [float("nan")]
        return {
            "mean_ms": statistics.fmean(latencies), "p99_ms": percentile(latencies, 99),
            "results": len(counted) / (end - begin - warm_up), "spread": statistics.fmean(spreads), "late_s": late[0],
        }  # fmt: skip


@contextmanager
def board(folder: Path, slots: int) -> Iterator[Board]:
    """Everything started, with the flows deployed; ends with the block."""
    installed, config, sched = folder / "installed", folder / "gateway.toml", folder / "agent.toml"
    install(installed)
    documents, _ = flows()
    files = [folder / f"{document['name']}.toml" for document in documents]
    for file, document in zip(files, documents, strict=True):
        file.write_text(to_toml(document), encoding="utf-8")
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(installed), before)))
    sched.write_text('[sched]\npolicy = "none"\n', encoding="utf-8")
    try:
        with mosquitto(folder) as port:
            config.write_text(to_toml({
                "gateway": {"id": "bench", "data_dir": str(folder / "data")},
                "sensors": {"port": port}, "central": {"port": port}, "web": {"port": free_port()},
                "pool": {"slots": slots, "fusion": "none"}, "flows": {"files": [str(file) for file in files]},
            }), encoding="utf-8")  # fmt: skip
            socket, agent = folder / "data" / "control.sock", folder / "agent.sock"
            gateway = child([sys.executable, "-m", "gateway", "--config", config], folder / "gateway.log")
            part = module("agent.osched", folder / "agent.log", "--config", sched, "--gateway", socket,
                          "--socket", agent, "--data", folder / "agent")  # fmt: skip
            with gateway as daemon, part as agent_process:
                wait_for(lambda: " is ready" in daemon.said() or not daemon.alive, "the gateway to be ready", READY_S)
                wait_for(lambda: _looks(agent), "the agent's first look", READY_S)
                load = Load(port)
                try:
                    yield Board(socket, agent, load, agent_process)
                finally:
                    load.close()
    finally:
        os.environ["PYTHONPATH"] = before


def _looks(agent: Path) -> bool:
    try:
        return len(call(agent, "sched.status")["operators"]) >= FLOWS
    except EdgertError:
        return False


def measure(options: Options, report: Report) -> None:
    """Fills the report, its curves by policy."""
    cores = os.cpu_count() or 1
    _, demand_s = flows()
    parts, policies = (PARTS[1:2], QUICK) if options.quick else (PARTS, POLICIES)
    warm_up, seconds = (1.0, 4.0) if options.quick else (3.0, 12.0)
    report.notes.append(
        f"{FLOWS} flows on {cores * PER_CORE} slots and {cores} cores; rates are parts of what the operators' own CPU "
        "time allows on all cores"
    )
    points: dict[str, dict[float, list[dict[str, float]]]] = {p: {part: [] for part in parts} for p in policies}
    with tempfile.TemporaryDirectory(prefix="edgert-bench-") as name, board(Path(name), cores * PER_CORE) as world:
        world.run(PLAIN, parts[0] * cores / demand_s * FLOWS, warm_up, seconds)  # the first one finds all cold
        for repetition in range(options.repetitions):
            for part in parts:
                rate = part * cores / demand_s * FLOWS
                for policy in policies:
                    options.say(f"repetition {repetition + 1} of {options.repetitions}: {part:.0%}, {policy}")
                    seen = world.run(policy, rate, warm_up, seconds)
                    points[policy][part].append(seen)
                    _add(report, policy, part, seen)
        _cost(report, world)
    for part in parts:
        for policy in policies[1:]:
            for figure in ("mean latency", "results"):
                name = f"{figure} at {part:.0%}"
                report.ratio(f"{name}, {policy} to the OS", f"{name}, {policy}", f"{name}, {PLAIN}")
    report.curves = {policy: {f"{part:g}": seen for part, seen in of.items()} for policy, of in points.items()}


def _add(report: Report, policy: str, part: float, seen: dict[str, float]) -> None:
    remark = f"the load was {seen['late_s']:.1f} s late" if seen["late_s"] > 0.25 else ""
    for figure, key, unit in (
        ("mean latency", "mean_ms", "ms"),
        ("p99 latency", "p99_ms", "ms"),
        ("results", "results", "rows/s"),
        ("spread of queues", "spread", "rows"),
    ):
        report.add(f"{figure} at {part:.0%}, {policy}", seen[key], unit, remark=remark)


def _cost(report: Report, world: Board) -> None:
    """What the agent itself takes in a period."""
    world.use("qs")
    time.sleep(3.0)
    status = world.use("qs")
    report.add("agent: CPU time of a period", status["lasted_s"]["cpu"] * 1e3, "ms")
    report.add("agent: from metrics to actions", status["lasted_s"]["action"] * 1e3, "ms")
    report.notes.append(f"agent: {len(status['operators'])} operators")


def lacks() -> str | None:
    """What this machine lacks."""
    if MOSQUITTO is None:
        return "a broker: apt install mosquitto"
    return None if can_raise_priority() else "the right to raise priorities: root, or CAP_SYS_NICE"


BENCHMARK: Final = Benchmark(
    "OS scheduling of 20 flows on more slots than cores, against the plain OS", measure, draw, lacks
)
