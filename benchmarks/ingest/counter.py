"""The baseline: a `paho-mqtt` client that does nothing but count. A process of its own."""

from __future__ import annotations

import argparse
import sys
import threading
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion


class Counter:
    """Subscribes and counts."""

    def __init__(self, qos: int) -> None:
        self.count = 0
        self._qos = qos
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, "counter")
        self.client.on_connect = self._connected
        self.client.on_subscribe = lambda *rest: print("ready", flush=True)
        self.client.on_message = self._message

    def _connected(self, client: mqtt.Client, *rest: Any) -> None:
        client.subscribe("city/+/sense", self._qos)

    def _message(self, client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        self.count += 1

    def answer(self) -> None:
        """Says its count whenever it is asked."""
        for _ in sys.stdin:
            print(self.count, flush=True)


def main() -> None:
    """Counts until it is ended."""
    parser = argparse.ArgumentParser("counter")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--qos", type=int, default=0)
    arguments = parser.parse_args()
    counter = Counter(arguments.qos)
    counter.client.connect("127.0.0.1", arguments.port)
    threading.Thread(target=counter.answer, daemon=True).start()
    counter.client.loop_forever()


if __name__ == "__main__":
    main()
