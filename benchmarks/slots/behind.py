"""PRED behind a broker and the daemon: what that bears, and where the time goes.

    load ──▶ broker ──▶ daemon ──▶ slots ──▶ daemon ──▶ broker
    probe ─┘                                             └──▶ probe

All of them share the machine's processors. The load is open-loop; latency is that of messages of one more device, sent
at fixed times, until PRED's word on each comes back through the broker.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as mqtt
import psutil
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.ingest.measure import percentile
from benchmarks.ingest.trace import messages
from benchmarks.ports import free_port
from benchmarks.processes import Child, child, module, mosquitto, wait_for
from benchmarks.riotbench.flows import split
from edgert.core.toml import to_toml

DEVICE: Final = "probe"
GAP_S: Final = 0.02
"""Between two messages of the probe."""
LAST_S: Final = 10.0
"""So long after a load the last answers may come; then what was in queues is gone, too."""
LONGER_S: Final = 0.3
"""So much longer the load lasts than what is measured of it."""
LATE_MS: Final = 250.0
"""A load that was sent so late was not sent at its rate."""


class Probe:
    """Sends messages of its device and notes when PRED's class of each comes back: in order, as of any device."""

    def __init__(self, port: int) -> None:
        trace, _ = messages()
        source = trace[0].topic.split("/")[1].encode()
        self._payload = trace[0].payload.replace(source, DEVICE.encode())
        self._sent: list[float] = []
        self._back: list[float] = []
        self._subscribed = threading.Event()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, DEVICE)
        self._client.on_message = lambda *_: self._back.append(time.perf_counter())
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.connect("127.0.0.1", port)
        self._client.subscribe(f"pred/{DEVICE}/class", 0)
        self._client.loop_start()
        self._subscribed.wait(LAST_S)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def wait_for_gateway(self) -> None:
        """Until it has subscribed, and every message is answered."""
        wait_for(self._answered, "an answer of PRED")

    def _answered(self) -> bool:
        self._sent, self._back = [], []
        self._send(time.perf_counter())
        time.sleep(0.2)
        return len(self._back) == 1

    def _send(self, due: float) -> None:
        self._sent.append(due)
        self._client.publish(f"city/{DEVICE}/sense", self._payload, 0)

    def send(self, seconds: float) -> None:
        """For so long."""
        self._sent, self._back = [], []
        begin = time.perf_counter()
        for number in range(round(seconds / GAP_S)):
            due = begin + number * GAP_S
            time.sleep(max(0.0, due - time.perf_counter()))
            self._send(due)

    def latencies(self) -> list[float]:
        """Of what was sent, ms, from when each was due; empty if one does not come back."""
        deadline = time.monotonic() + LAST_S
        while len(self._back) < len(self._sent) and time.monotonic() < deadline:
            time.sleep(0.01)
        if len(self._back) != len(self._sent):
            return []
        return [(back - sent) * 1e3 for sent, back in zip(self._sent, self._back, strict=True)]


class Behind:
    """A gateway with PRED behind a broker."""

    def __init__(self, port: int, web: int, daemon: Child, probe: Probe, folder: Path) -> None:
        self._port, self._web, self._daemon, self._probe, self._folder = port, web, daemon, probe, folder
        ours = psutil.Process().children()
        self._broker = next(process for process in ours if process.name() == "mosquitto")

    def load(self, rate: float, warm_up: float, seconds: float) -> dict[str, Any]:
        """What a load of so many messages per second took and how late answers were. CPU by program, µs per message;
        `cores` that they had at work together; `rows_per_turn` of the sources; `fault`, if it was not borne."""
        log = self._folder / "load.log"
        arguments = ("--port", self._port, "--qos", 0, "--rate", rate, "--seconds", warm_up + seconds + LONGER_S)
        with module("benchmarks.ingest.load", log, *arguments) as load:
            load.read()
            load.tell("go")
            time.sleep(warm_up)
            before = self._figures(load)
            self._probe.send(seconds)
            after = self._figures(load)
            sent = json.loads(load.read())
        late = self._probe.latencies()
        done = {key: after[key] - before[key] for key in before}
        count = max(1.0, done["messages"])
        programs = ("generator", "broker", "daemon", "slots")
        fault = ""
        if sent["latest_ms"] > LATE_MS:
            fault = f"the generator was {sent['latest_ms']:.0f} ms late"
        elif done["dropped"]:
            fault = f"{done['dropped']:.0f} rows were dropped"
        elif not late:
            fault = "answers did not come back"
        return {
            **{program: done[program] / count * 1e6 for program in programs},
            "cores": sum(done[program] for program in programs) / done["at"],
            "rate": done["messages"] / done["at"],
            "rows_per_turn": done["rows"] / max(1.0, done["turns"]),
            "p99_ms": percentile(late, 99) if late else float("inf"),
            "fault": fault,
        }

    def _figures(self, load: Child) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/api/status", timeout=10.0) as answer:
            status = json.load(answer)
        sources = [o for flow in status["flows"] for o in flow["operators"] if o["name"].startswith("readings")]
        broker = self._broker.cpu_times()
        return {
            "at": time.monotonic(),
            "messages": status["ingest"]["messages"],
            "dropped": sum(drop["rows"] for drop in status["drops"]),
            "rows": sum(source["rows_in"] for source in sources),
            "turns": sum(source["turns"] for source in sources),
            "generator": load.cpu_s(),
            "broker": broker.user + broker.system,
            "daemon": self._daemon.cpu_s(),
            "slots": sum(slot.get("cpu_s", 0.0) for slot in status["slots"]),
        }


@contextmanager
def behind(folder: Path, slots: int) -> Iterator[Behind]:
    """Broker and gateway, which end with the block. 0 slots: the daemon runs the flow itself."""
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
        with child([sys.executable, "-m", "gateway", "--config", config], folder / "gateway.log") as daemon:
            wait_for(lambda: " is ready" in daemon.said() or not daemon.alive, "the gateway to be ready")
            probe = Probe(port)
            try:
                probe.wait_for_gateway()
                yield Behind(port, web, daemon, probe, folder)
            finally:
                probe.close()
