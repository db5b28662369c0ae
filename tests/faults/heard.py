"""Messages that a flow gives out, and those at which the sensors' broker hangs up."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

import paho.mqtt.client as paho

from tests.faults.publisher import OUT, Publisher
from tests.integration.harms import dropped
from tests.proxy import is_publish
from tests.waiting import wait_until

HUNG_UP = "hung up at a message of"
"""The log line of the gateway for a message that it gives up has these words."""
HEARD_S = 60.0


def is_poison(packet: bytes) -> bool:
    """True for a message that the flow gave out and that has the field."""
    return is_publish(packet) and f"{OUT}/".encode() in packet[:10] and b'"poison"' in packet


class Heard:
    """Messages that flows give out on the sensors' broker, as a client of it hears them."""

    def __init__(self, port: int) -> None:
        self.times: Counter[float] = Counter()
        """Time of a message → how often it came."""
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)  # type: ignore[attr-defined]
        armed = threading.Event()
        self._client.on_subscribe = lambda *_: armed.set()
        self._client.on_message = self._message
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        self._client.subscribe(f"{OUT}/#", 1)
        assert armed.wait(HEARD_S), "the sensors' broker takes no subscription"

    def _message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        self.times[json.loads(message.payload)["time"]] += 1

    def settle(
        self, publisher: Publisher, status: Callable[[], Mapping[str, Any]], progress: Callable[[], object]
    ) -> None:
        """Waits until each message was heard or given up."""

        def all_done() -> bool:
            answered = _given_up(status()) >= len(publisher.poisoned)
            return answered and len(self.times) >= publisher.sent - len(publisher.poisoned)

        wait_until(all_done, "what the flow gives out", HEARD_S, progress)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def problems(self, publisher: Publisher, status: Mapping[str, Any], log: str) -> list[str]:
        """Of a seed that is over: all but the messages at which the broker hung up were heard, and those are counted
        and in the log."""
        return problems(publisher.times, publisher.poisoned, self.times, _given_up(status), log.count(HUNG_UP))


def _given_up(status: Mapping[str, Any]) -> int:
    return dropped(status, "not sent") if status else 0


def problems(
    sent: Collection[float], poisoned: Collection[float], heard: Collection[float], counted: int, logged: int
) -> list[str]:
    found = []
    if missing := len({*sent} - {*poisoned} - {*heard}):
        found.append(f"{missing} messages were not given out, though the broker had not hung up at them")
    if through := len({*poisoned} & {*heard}):
        found.append(f"{through} messages were heard at which the broker hangs up: the seed shows nothing")
    if not poisoned:
        found.append("expected a message at which the broker hangs up, got none: the seed shows nothing")
    if not counted == logged == len(poisoned):
        found.append(f"expected {len(poisoned)} messages to be given up, got {counted} counted and {logged} logged")
    return found
