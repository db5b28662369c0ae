"""A client outside of a board: sensors, and programs that look at results. Traffic goes to a port of loopback."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from images.qemu.machine import BootError, Machine

BOOT_S: Final = 1800.0
"""Emulated on a busy machine; on an idle one a boot takes less than a minute."""
ANSWER_S: Final = 900.0
LOCAL: Final = "127.0.0.1"
MESSAGES: Final = 60
"""Messages of a minute, one each second."""
WINDOW_S: Final = 10
FLOW: Final = """
name = "counts"
[checkpoint]
interval_s = 1.0
[operators.readings]
type = "mqtt_source"
topic = "sensors/{source}"
[operators.by_source]
type = "key_by"
input = "readings"
keys = ["source"]
[operators.seconds]
type = "tumbling_window"
input = "by_source"
size_s = 10.0
aggregates = { n = "count()" }
[operators.out]
type = "publish"
input = "seconds"
topic = "results/{source}"
[operators.central]
type = "ship"
input = "seconds"
"""


class Outside:
    """A client outside of the board: sensors, and whoever looks at results."""

    def __init__(self, machine: Machine, port: int = 0) -> None:
        """`port` is that of a broker on this machine; 0: the board's own broker."""
        self._machine, self._port = machine, port or machine.broker
        self._host = LOCAL if port else machine.host
        self.seen: list[tuple[str, bytes]] = []
        self.connected = False
        self.client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self.client.on_connect = self._on_connect
        self.client.on_message = self._on_message

    def _on_connect(self, client: paho.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self.connected = not reason.is_failure
        client.subscribe([("results/#", 1), ("edgert/v1/#", 1)])

    def _on_message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        self.seen.append((message.topic, bytes(message.payload)))

    def connect(self) -> float:
        """Waits until the broker answers; returns the seconds that took."""
        began = time.monotonic()
        # By the client's own thread alone: a second connection beside it would send messages anew, out of their order.
        self.client.reconnect_delay_set(1, 1)
        self.client.connect_async(self._host, self._port, keepalive=30)
        self.client.loop_start()
        while not self.connected:
            if not self._machine.running or time.monotonic() - began > BOOT_S:
                raise BootError(f"no CONNACK within {BOOT_S:.0f} s of the start:\n{self._machine.tail()}")
            time.sleep(0.2)
        return time.monotonic() - began

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + ANSWER_S
        while not holds():
            if time.monotonic() > ends:
                seen = sorted({topic for topic, _ in self.seen})
                raise BootError(f"waited {ANSWER_S:.0f} s for {what}; seen: {seen}\n{self._machine.tail()}")
            time.sleep(0.2)

    def online(self) -> str:
        """The name of the gateway, when it is there."""
        for topic, payload in self.seen:
            if topic.endswith("/status") and json.loads(payload or b"{}").get("state") == "online":
                return topic.split("/")[3]
        return ""

    def deploy(self, gateway: str) -> None:
        base = f"edgert/v1/default/{gateway}/flows/counts"
        self.client.publish(base, FLOW.encode(), qos=1, retain=True)
        self.wait(lambda: any(t == f"{base}/state" and json.loads(p)["accepted"] for t, p in self.seen), "the flow")

    def measure(self) -> None:
        """Sends messages of a minute (event time); results of all windows but the last must come."""
        self.seen = [one for one in self.seen if one[0] != "results/probe"]
        self.send(self._machine.minute())

        def counted() -> int:
            return sum(json.loads(p)["n"] for t, p in self.seen if t == "results/probe")

        self.wait(lambda: counted() >= MESSAGES - WINDOW_S, "the windows' results")
        self.wait(lambda: any("/@results/" in t for t, _ in self.seen), "a batch for the central side")

    def send(self, minute: int, spread_s: float = 0.0) -> None:
        """Sends the messages of a minute; returns when the broker has acknowledged them."""
        for number in range(MESSAGES):
            payload = json.dumps({"time": minute + number, "v": number}).encode()
            last = self.client.publish("sensors/probe", payload, qos=1)
            time.sleep(spread_s / MESSAGES)
        last.wait_for_publish(ANSWER_S)
