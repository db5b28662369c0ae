"""`edgert-collector` as a process, with real brokers: killed at any point, each result lands exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from deltalake import DeltaTable
from paho.mqtt.enums import CallbackAPIVersion

from edgert.central.query import query
from edgert.core.results import (
    Acknowledgement,
    Hello,
    OpenBatch,
    RowsBatch,
    acks_topic,
    pack_result,
    results_topic,
    unpack_acknowledgement_untrusted,
)
from tests.brokers import Broker, free_port
from tests.central.results_examples import FLOW, Gateway, contribution
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
FLEET = "f"


class Outbox:
    """Sends what is not acknowledged, over and over, as a gateway's uplink does."""

    def __init__(self, port: int, name: str = "g1") -> None:
        self.name = name
        self.waiting: dict[int, bytes] = {}
        self.heard: list[Acknowledgement] = []
        self.status: list[dict[str, Any]] = []
        self.sent = 0.0
        self._lock = threading.Lock()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311)
        self._client.on_message = self._on_message
        self._client.on_connect = self._on_connect
        self._client.reconnect_delay_set(1, 1)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def _on_connect(self, client: mqtt.Client, *_: Any) -> None:
        client.subscribe([(acks_topic(FLEET, self.name), 1), (f"edgert/v1/{FLEET}/@collector/status", 1)])

    def _on_message(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        if message.topic.endswith("status"):
            self.status.append(json.loads(message.payload))
            return
        heard = unpack_acknowledgement_untrusted(bytes(message.payload))
        self.heard.append(heard)
        with self._lock:
            for (_, _, _), last in heard.acks.items():
                for sequence in [s for s in self.waiting if s <= last]:
                    del self.waiting[sequence]

    def keep(self, batch: OpenBatch | RowsBatch) -> None:
        with self._lock:
            self.waiting[batch.sequence] = pack_result(batch)

    def hello(self) -> None:
        self.publish(pack_result(Hello(gateway=self.name, flow=FLOW)))

    def publish(self, payload: bytes) -> None:
        self._client.publish(results_topic(FLEET, self.name, FLOW), payload, qos=1)

    def send(self, rng: random.Random | None = None) -> None:
        with self._lock:
            payloads = list(self.waiting.values())
        if rng:
            rng.shuffle(payloads)
        for payload in payloads:
            self.publish(payload)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts collectors; all are ended after the test."""
    started: list[subprocess.Popen[str]] = []
    log = (tmp_path / "collector.log").open("a")

    def run(port: int, **env: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "edgert.central.collector_main", "--fleet", FLEET]
        command += ["--root", str(tmp_path / "tables"), "--broker", f"127.0.0.1:{port}"]
        env = {**os.environ, "EDGERT_COLLECTOR_GATHER_S": "0.05", **env}
        process = subprocess.Popen(command, env=env, stderr=log, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
    log.close()


def landed(root: Path) -> list[int]:
    """The sequences in the landing table, sorted."""
    uri = str(root / "tables" / "landing" / FLOW)
    if not DeltaTable.is_deltatable(uri):
        return []
    return sorted(row["sequence"] for row in query(DeltaTable(uri), ["sequence"]))


def test_killed_in_mid_write_again_and_again_each_result_lands_once(
    mosquitto: Callable[..., Broker], start: Start, tmp_path: Path
) -> None:
    rng = random.Random(3)
    outbox = Outbox(port := mosquitto().port)
    g = Gateway("g1")
    log = tmp_path / "tables" / "landing" / FLOW / "_delta_log"
    outbox.keep(g.open())
    for _ in range(4):
        collector = start(port, EDGERT_COLLECTOR_GATHER_S="0.01")
        wait_until(lambda: bool(outbox.status) and outbox.status[-1]["online"], "the collector", 30)
        for i in range(150):
            outbox.keep(g.rows(*[contribution(i % 7, str(k), 1.0) for k in range(20)]))
        before = len(list(log.glob("*.json")))
        outbox.send(rng)
        # One commit is made, the next ones are under way.
        wait_until(lambda b=before: len(list(log.glob("*.json"))) > b, "a commit", 30)  # type: ignore[misc]
        collector.send_signal(signal.SIGKILL)
        collector.wait()
        outbox.status.clear()
    start(port)
    wait_until(lambda: _resend(outbox), "all acknowledgements", 60)
    rows = query(DeltaTable(str(log.parent)), ["sequence", "source"])
    pairs = [(r["sequence"], r["source"]) for r in rows]
    assert len(pairs) == len(set(pairs)) == 1 + 600 * 20
    outbox.close()


def _resend(outbox: Outbox) -> bool:
    """Send again what was not acknowledged within a second; whether all is acknowledged."""
    now = time.monotonic()
    if outbox.waiting and now - outbox.sent > 1.0:
        outbox.sent = now
        outbox.send()
    return not outbox.waiting


def test_broker_that_is_away_at_start_and_goes_away_later(
    mosquitto: Callable[..., Broker], start: Start, tmp_path: Path
) -> None:
    broker = mosquitto(start=False)
    collector = start(broker.port)
    wait_until(lambda: "no connection to" in (tmp_path / "collector.log").read_text(), "the first failure", 20)
    broker.start()
    outbox = Outbox(broker.port)
    g = Gateway("g1")
    outbox.keep(g.open())
    wait_until(lambda: _resend(outbox), "the first acknowledgement", 30)
    broker.kill()
    outbox.keep(g.rows(contribution(0, "a", 1.0)))
    broker.start()
    wait_until(lambda: _resend(outbox), "the second acknowledgement", 60)
    assert landed(tmp_path) == [1, 2]
    assert collector.poll() is None
    outbox.close()


def test_sigterm_ends_it_in_order_and_a_later_gateway_finds_the_acknowledgement(
    mosquitto: Callable[..., Broker], start: Start, tmp_path: Path
) -> None:
    broker = mosquitto()
    collector = start(broker.port)
    outbox = Outbox(broker.port)
    outbox.keep(Gateway("g1").open())
    wait_until(lambda: _resend(outbox), "the acknowledgement", 30)
    collector.send_signal(signal.SIGTERM)
    assert collector.wait(20) == 0
    wait_until(lambda: not outbox.status[-1]["online"], "the last status")
    assert outbox.status[-1]["commits"] == 1

    later = Outbox(broker.port)
    wait_until(lambda: bool(later.heard), "the retained acknowledgement")
    assert later.heard[0].acks == {(FLOW, 1 << 32, 0): 1}
    start(broker.port)
    later.heard.clear()
    wait_until(lambda: later.status and later.status[-1]["online"], "the second collector", 30)
    later.hello()
    wait_until(lambda: any(a.answers == (FLOW,) for a in later.heard), "the answer to hello")
    assert later.heard[-1].acks == {(FLOW, 1 << 32, 0): 1}
    outbox.close()
    later.close()


def test_embedded_broker_of_the_demo_is_spoken_to_in_its_version(amqtt: Broker, start: Start, tmp_path: Path) -> None:
    start(amqtt.port)
    outbox = Outbox(amqtt.port)
    outbox.keep(Gateway("g1").open())
    wait_until(lambda: _resend(outbox), "the acknowledgement", 40)
    assert landed(tmp_path) == [1]
    outbox.close()


def test_settings_that_cannot_be_used_end_it_with_a_line(start: Start, tmp_path: Path) -> None:
    collector = start(free_port(), EDGERT_COLLECTOR_HOLD_S="-1")
    assert collector.wait(20) == 2
    assert "EDGERT_COLLECTOR_HOLD_S: expected a number from 0.1 to 600" in (tmp_path / "collector.log").read_text()
