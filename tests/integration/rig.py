"""The whole path as real processes on loopback: broker, gateways, collector, Spark job; and what is true of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import psutil

from benchmarks.ports import free_port
from edgert.core.toml import to_toml
from tests.brokers import Broker
from tests.waiting import DEADLINE_S, wait_until

ROOT = Path(__file__).parents[2]
Message = tuple[str, bytes]
FLEET = "test"
AGAIN_S = 10.0
"""After this time without an answer a document is published again."""


class Process:
    """One of our programs, its log in a file."""

    def __init__(
        self, arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None, own_session: bool = False
    ) -> None:
        self.arguments = [sys.executable, "-m", *arguments]
        self.log = log
        self.env = env
        """Added to ours."""
        self.own_session = own_session
        """Whether `kill` ends all that it started, too."""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            environment = {**os.environ, **(self.env or {})}
            self.process = subprocess.Popen(
                self.arguments, stdout=log, stderr=log, cwd=ROOT, env=environment, start_new_session=self.own_session
            )

    def kill(self) -> None:
        """As a power cut would."""
        assert self.process is not None
        if self.own_session:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()

    def terminate(self, deadline_s: float = DEADLINE_S) -> int:
        """SIGTERM; returns the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(deadline_s)

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def cpu_s(self) -> float:
        """What it and all that it started have used so far."""
        if self.process is None or not self.running:
            return 0.0
        used = 0.0
        with contextlib.suppress(psutil.Error):
            itself = psutil.Process(self.process.pid)
            for process in (itself, *itself.children(recursive=True)):
                times = process.cpu_times()
                used += times.user + times.system
        return used

    def handles(self, number: signal.Signals) -> bool:
        """Whether it has said yet what it does on a signal."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught, 16) >> (number - 1) & 1)


class Gateway(Process):
    """One gateway daemon with its own data folder."""

    def __init__(
        self,
        folder: Path,
        name: str,
        sensors: int,
        central: int,
        settings: dict[str, dict[str, Any]],
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.progress: Callable[[], object] | None = None
        """Returns a value that changes while the gateway makes progress, see `wait_until`; None: `_work` does."""
        self.port = free_port()
        self.data = folder / name
        document: dict[str, dict[str, Any]] = {
            "gateway": {"id": name, "fleet": FLEET, "data_dir": str(self.data)},
            "sensors": {"port": sensors},
            "central": {"port": central},
            "web": {"port": self.port},
        }
        for section, table in settings.items():
            document.setdefault(section, {}).update(table)
        config = folder / f"{name}.toml"
        config.write_text(to_toml(document))
        super().__init__(["gateway", "--config", str(config)], folder / f"{name}.log", env)

    def status(self) -> dict[str, Any]:
        """What its page shows; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/status", timeout=5) as answer:
                status: dict[str, Any] = json.load(answer)
                return status
        except OSError:
            return {}

    def _work(self) -> object:
        """Returns figures that change while the gateway works off a backlog."""
        status = self.status()
        return status and (status["ingest"]["messages"], status.get("central", {}).get("outbox_batches"))

    def wait(
        self, holds: Callable[[dict[str, Any]], object], what: str, deadline_s: float = DEADLINE_S
    ) -> dict[str, Any]:
        """Waits until `holds` is true of the status, and returns that status."""
        seen: list[dict[str, Any]] = []

        def look() -> bool:
            status = self.status()
            if status and holds(status):
                seen.append(status)
            elif self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"the gateway ended while {what} was awaited: {self.text()[-2000:]}")
            return bool(seen)

        try:
            wait_until(look, f"{what} of gateway {self.name}", deadline_s, self.progress or self._work, poll_s=0.05)
        except AssertionError as error:
            ingest = self.status().get("ingest")
            raise AssertionError(f"{error}; ingest: {ingest}; log: {self.text()[-1500:]}") from None
        return seen[0]

    def now(self) -> dict[str, Any]:
        """Returns the status, and waits for a page that does not answer at once."""
        return self.wait(lambda s: s, "any status")

    def wait_anew(
        self, holds: Callable[[dict[str, Any]], object], what: str, deadline_s: float = DEADLINE_S
    ) -> dict[str, Any]:
        """The same of a status that is younger than this call: what the page shows may be a second old."""
        now = self.now()["uptime_s"]
        return self.wait(lambda s: s["uptime_s"] > now + 1 and holds(s), what, deadline_s)

    def settle(self) -> None:
        """Waits until the gateway has taken in and acknowledged all messages of the sensors' broker. One look is not
        enough: at a restart, or while the gateway lags behind, nothing is unacknowledged for a moment either."""
        before = -1
        while before != (before := self._acknowledged()):
            pass

    def _acknowledged(self) -> int:
        """Messages that had come, of which none waits for its acknowledgement."""
        status = self.wait_anew(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")
        return int(status["ingest"]["messages"])

    def start_ready(self) -> None:
        self.start()
        self.wait(lambda s: s["ingest"]["subscribed"], "the subscriptions at the sensors' broker")


@dataclass
class Rig:
    """Everything of one test; `close` ends what still runs."""

    folder: Path
    broker: Broker
    processes: list[Process] = field(default_factory=list)

    @property
    def tables(self) -> Path:
        return self.folder / "tables"

    def gateway(self, name: str = "g1", **settings: dict[str, Any]) -> Gateway:
        gateway = Gateway(self.folder, name, self.broker.port, self.broker.port, settings)
        self.processes.append(gateway)
        return gateway

    def collector(self, port: int = 0, env: Mapping[str, str] | None = None, host: str = "127.0.0.1") -> Process:
        """`host`, `port`: where it finds the broker, if not at the broker's own."""
        config = self.folder / "collector.toml"
        config.write_text(to_toml({
            "collector": {"fleet": FLEET, "table_root": str(self.tables), "gather_s": 0.2, "hold_s": 2.0},
            "central": {"host": host, "port": port or self.broker.port},
        }))  # fmt: skip
        arguments = ["edgert.central.collector", "--config", str(config)]
        collector = Process(arguments, self.folder / "collector.log", env)
        self.processes.append(collector)
        return collector

    def client(self) -> paho.Client:
        """A connected client whose loop runs."""
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)  # type: ignore[attr-defined]
        client.max_inflight_messages_set(500)
        client.connect("127.0.0.1", self.broker.port)
        client.loop_start()
        return client

    def subscribe(self, client: paho.Client, topic: str) -> None:
        """Returns when the broker has taken it: what comes from then on is heard."""
        armed = threading.Event()
        client.on_subscribe = lambda *_: armed.set()
        client.subscribe(topic, 1)
        assert armed.wait(DEADLINE_S), f"waited {DEADLINE_S:g} s for the broker to take a subscription"

    def publish(self, messages: Iterable[Message], qos: int = 1, rate: float = 0.0, retain: bool = False) -> int:
        """Returns when the broker has all of them; `rate` in messages/s (0: as fast as it goes)."""
        client = self.client()
        started, sent = time.monotonic(), 0
        last = None
        for topic, payload in messages:
            last = client.publish(topic, payload, qos=qos, retain=retain)
            sent += 1
            if rate and (ahead := sent / rate - (time.monotonic() - started)) > 0.01:
                time.sleep(ahead)
        if last is not None:
            left = client._out_messages
            wait_until(lambda: not left, "the broker's PUBACKs", progress=lambda: len(left))
            last.wait_for_publish(DEADLINE_S)
        client.disconnect()
        client.loop_stop()
        return sent

    def publishing(self, messages: Iterable[Message], rate: float) -> threading.Thread:
        thread = threading.Thread(target=self.publish, args=(messages,), kwargs={"rate": rate}, daemon=True)
        thread.start()
        return thread

    def tell(self, gateway: Gateway, topic: str, payload: bytes, answer: str) -> dict[str, Any]:
        """Writes a retained document of the gateway's and returns its answer on the topic `answer`."""
        base = f"edgert/v1/{FLEET}/{gateway.name}"
        answers: list[dict[str, Any]] = []
        client = self.client()

        def on_message(_client: Any, _data: Any, message: paho.MQTTMessage) -> None:
            state = json.loads(message.payload)
            # the gateway also answers documents that were retained when it connected
            if not message.retain and state["digest"] == hashlib.sha256(payload).hexdigest()[:16]:
                answers.append(state)

        client.on_message = on_message
        self.subscribe(client, f"{base}/{answer}")
        sent_at = -AGAIN_S

        def answered() -> bool:
            nonlocal sent_at
            if not answers and time.monotonic() - sent_at >= AGAIN_S:  # a gateway that is away misses a removal
                client.publish(f"{base}/{topic}", payload, qos=1, retain=True)
                sent_at = time.monotonic()
            return bool(answers)

        wait_until(answered, f"an answer on {answer}; log: {gateway.text()[-1500:]}", DEADLINE_S, gateway.progress)
        client.disconnect()
        client.loop_stop()
        return answers[0]

    def deploy(self, gateway: Gateway, document: dict[str, Any] | str) -> dict[str, Any]:
        text = document if isinstance(document, str) else to_toml(document)
        name = "broken" if isinstance(document, str) else document["name"]
        return self.tell(gateway, f"flows/{name}", text.encode(), f"flows/{name}/state")

    def finish(self, gateway: Gateway, flow: str, messages: int) -> None:
        """Waits until `gateway` took in `messages` (0: all, however many) and committed them, removes the flow (its
        open windows are shipped) and waits until the collector has everything."""
        if messages:
            gateway.wait(lambda s: s["ingest"]["messages"] >= messages, f"{messages} messages")
            gateway.wait(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")
        else:
            gateway.settle()
        assert self.tell(gateway, f"flows/{flow}", b"", f"flows/{flow}/state")["accepted"]
        self.drained(gateway)

    def drained(self, gateway: Gateway, deadline_s: float = DEADLINE_S) -> None:
        """Waits until all results landed."""
        gateway.wait(lambda s: s["central"]["connected"], "the central connection")
        gateway.wait_anew(lambda s: not s["central"]["outbox_batches"], "an empty outbox", deadline_s)

    def counts(self, flow: str, column: str = "n") -> dict[tuple[float, str], int]:
        """(window start, source) → sum of a column over all that landed and counts."""
        counts: Counter[tuple[float, str]] = Counter()
        for row in self.landed(flow):
            counts[row["window_start"].timestamp(), row["source"]] += row[column]
        return dict(counts)

    def landed(self, flow: str) -> list[dict[str, Any]]:
        """The contributions of the newest lineage of each gateway: those that the fleet job merges."""
        from edgert.central.landing.arrow_rows import lineage_of
        from edgert.central.landing.lineage import Opening, counted

        rows = self.table(f"landing/{flow}")
        openings = [Opening(r["gateway"], r["epoch"], *lineage_of(r["lineage"])[1:]) for r in rows if r["lineage"]]
        cuts = counted(openings)

        def counts(row: Mapping[str, Any]) -> bool:
            epoch = (row["gateway"], row["epoch"])
            if row["lineage"] or epoch not in cuts:
                return False
            cut = cuts[epoch]
            return cut is None or row["sequence"] <= cut.get(row["stream"], 0)

        return [row for row in rows if counts(row)]

    def run_fleet_job(self) -> None:
        """The Spark job, once over all that landed."""
        command = [sys.executable, "-m", "edgert.cli.main", "central", "run", "--root", str(self.tables), "--once"]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, env=os.environ
        )
        assert done.returncode == 0, done.stderr[-3000:]

    def table(self, name: str) -> list[dict[str, Any]]:
        import deltalake

        from edgert.central.tables.query import query

        return query(deltalake.DeltaTable(str(self.tables / name)))

    def close(self) -> None:
        for process in self.processes:
            if process.running:
                process.kill()
