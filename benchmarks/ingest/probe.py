"""Latency: messages on a topic of their own, seen directly and after a flow has published them again. Its own process.

    probe ──▶ broker ──────────────▶ probe          direct
                 └──▶ gateway ──▶ broker ──▶ probe  through

What the gateway adds is `through - direct` of the same message; it holds one more pass through the broker.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

IN, OUT = "probe/in", "probe/out"
GAP_S = (0.004, 0.010)
"""Between two probes, drawn at random: a fixed gap would keep step with the pauses of coalesced reads."""
LAST_S = 2.0


class Probe:
    """Sends numbered messages and notes when each comes back, and which way."""

    def __init__(self, port: int) -> None:
        self.sent: list[float] = []
        self.seen: dict[str, dict[int, float]] = {IN: {}, OUT: {}}
        self._subscribed = threading.Event()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, "probe")
        self._client.on_message = self._message
        self._client.on_subscribe = lambda *rest: self._subscribed.set()
        self._client.connect("127.0.0.1", port)
        self._client.subscribe([(IN, 0), (OUT, 0)])
        self._client.loop_start()
        self._subscribed.wait(10.0)

    def _message(self, client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        now = time.perf_counter()
        number = int(json.loads(message.payload)["n"])
        self.seen[message.topic].setdefault(number, now)

    def send(self) -> None:
        """The next message."""
        number = len(self.sent)
        self.sent.append(time.perf_counter())
        self._client.publish(IN, b'{"n":%d}' % number, 0)

    def wait_for_gateway(self) -> None:
        """Until the first message has come through: then the gateway is subscribed."""
        deadline = time.monotonic() + 10.0
        while not self.seen[OUT]:
            if time.monotonic() > deadline:
                raise TimeoutError("expected a message through the gateway within 10 s")
            self.send()
            time.sleep(0.02)

    def run(self, seconds: float, draw: random.Random) -> dict[str, Any]:
        """Sends for so long; latencies in ms, and how many did not come through."""
        first = len(self.sent)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.send()
            time.sleep(draw.uniform(*GAP_S))
        numbers = range(first, len(self.sent))
        deadline = time.monotonic() + LAST_S
        while time.monotonic() < deadline and not all(n in self.seen[OUT] for n in numbers):
            time.sleep(0.005)
        direct, through = self.seen[IN], self.seen[OUT]
        both = [n for n in numbers if n in direct and n in through]
        return {
            "direct_ms": [round((direct[n] - self.sent[n]) * 1e3, 3) for n in both],
            "added_ms": [round((through[n] - direct[n]) * 1e3, 3) for n in both],
            "missing": len(numbers) - len(both),
        }


def main() -> None:
    """Says `ready` when messages come through, then sends for `SECONDS` of each line and answers with JSON."""
    parser = argparse.ArgumentParser("probe")
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    probe = Probe(arguments.port)
    probe.wait_for_gateway()
    print("ready", flush=True)
    draw = random.Random(1)
    for line in sys.stdin:
        print(json.dumps(probe.run(float(line), draw)), flush=True)


if __name__ == "__main__":
    main()
