"""Brokers that hang up at a message: at one of a kind, or at all that are too large for them."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Self

import paho.mqtt.client as paho

from tests.faults.fault import Fault
from tests.faults.proxy import is_publish
from tests.faults.publisher import OUT
from tests.integration.harms import dropped
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.faults.path import WholePath

HUNG_UP = "hung up at a message of"
"""The log line of the gateway for a message that it gives up has these words."""
LIMITS = (1_100, 1_500, 2_500)
"""Bytes at which the central broker hangs up. Below 1,024 the gateway takes it for another reason than the size."""
HEARD_S = 60.0


def is_poison(packet: bytes) -> bool:
    """True for a message that the flow gave out and that has the field."""
    return is_publish(packet) and f"{OUT}/".encode() in packet[:10] and b'"poison"' in packet


@dataclass(frozen=True, slots=True)
class HangUp(Fault):
    """The next messages are such that the sensors' broker hangs up when the flow gives them out: the hop to it ends all
    connections at each of them, from the start of the seed to its end."""

    messages: int
    name = "hang up at a message"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(0.0, draw.choice((1, 1, 2)))

    def inject(self, path: WholePath) -> str:
        path.publisher.poison += self.messages
        return f"{self.messages} messages to come"


@dataclass(frozen=True, slots=True)
class HangUpAtLarge(Fault):
    """The central broker hangs up at packets of the gateway above a limit of which it does not say, from now on."""

    limit: int
    name = "hang up at large results"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(0.0, draw.choice(LIMITS))

    def inject(self, path: WholePath) -> str:
        path.hops["uplink"].hang_up("up", lambda packet: is_publish(packet) and len(packet) > self.limit)
        return f"above {self.limit:,} bytes"


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

    def settle(self, path: WholePath) -> None:
        """Waits until each message was heard or given up."""
        publisher = path.publisher

        def all_done() -> bool:
            answered = _given_up(path.status()) >= len(publisher.poisoned)
            return answered and len(self.times) >= publisher.sent - len(publisher.poisoned)

        wait_until(all_done, "what the flow gives out", HEARD_S, path.progress)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def problems(self, path: WholePath) -> list[str]:
        """Of a seed that is over: all but the messages at which the broker hung up were heard, and those are counted
        and in the log."""
        sent, poisoned = path.publisher.times, path.publisher.poisoned
        return problems(sent, poisoned, self.times, _given_up(path.status()), path.daemon.text().count(HUNG_UP))


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
