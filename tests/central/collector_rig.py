"""`edgert-collector` as a process, and what a gateway's uplink does, for tests with a real broker."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from edgert.core.results.results import (
    Acknowledgement,
    EpochHello,
    OpenBatch,
    RowsBatch,
    acks_topic,
    pack_result,
    results_topic,
    unpack_acknowledgement_untrusted,
)
from tests.central.results_examples import FLOW

FLEET = "f"
Start = Callable[..., "subprocess.Popen[str]"]


class Outbox:
    """Sends what is not acknowledged, over and over, as a gateway's uplink does."""

    def __init__(self, port: int, name: str = "g1") -> None:
        self.port = port
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
        client.subscribe([(acks_topic(FLEET, self.name), 1), (f"edgert/v1/{FLEET}/@collector/+/status", 1)])

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
        self.publish(pack_result(EpochHello(gateway=self.name, flow=FLOW)))

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


def resend(outbox: Outbox) -> bool:
    """Send again what was not acknowledged within a second; whether all is acknowledged."""
    now = time.monotonic()
    if outbox.waiting and now - outbox.sent > 1.0:
        outbox.sent = now
        outbox.send()
    return not outbox.waiting


def collector(root: str, log: TextIO, port: int, **env: str) -> subprocess.Popen[str]:
    """A collector that gathers for a short time."""
    command = [sys.executable, "-m", "edgert.central.collector", "--fleet", FLEET]
    command += ["--root", root, "--broker", f"127.0.0.1:{port}"]
    env = {**os.environ, "EDGERT_COLLECTOR_GATHER_S": "0.05", **env}
    return subprocess.Popen(command, env=env, stderr=log, text=True)
