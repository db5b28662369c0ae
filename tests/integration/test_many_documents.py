"""Documents and models for which the broker kept as many as there are: all come at once when the gateway connects, and
newer ones while it works on them. Each is answered, and what runs in the end is the newest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as paho
import pytest

from edgert.core.toml import to_toml
from edgert.mqtt.clients.deployment import digest
from tests.brokers import Broker
from tests.integration.rig import FLEET, Gateway, Message, Rig
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
BASE: Final = f"edgert/v1/{FLEET}/g1"
FEW = 60
"""So many as CI has time for."""


def flow(number: int, version: int) -> bytes:
    """All of one source. The description makes each version's digest another."""
    operators = {
        "in": {"type": "mqtt_source", "topic": "room/{source}", "qos": 0},
        "out": {"type": "publish", "input": "in", "topic": "out/{source}"},
    }
    return to_toml({"name": f"f{number}", "description": f"version {version}", "operators": operators}).encode()


def model(number: int, version: int) -> bytes:
    plain = {"kind": "linear_regression", "version": version, "intercept": float(number), "coefficients": {"t": 1.0}}
    return json.dumps(plain).encode()


class Answers:
    """What the gateway says to each document, by topic: digests of what it answered, in order."""

    def __init__(self, rig: Rig) -> None:
        self.digests: dict[str, list[str]] = {}
        self.refused: list[str] = []
        self._client = rig.client()
        self._client.on_message = self._on_message
        self._client.subscribe([(f"{BASE}/flows/+/state", 1), (f"{BASE}/models/+/state", 1)])

    def _on_message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        answer = json.loads(message.payload)
        self.digests.setdefault(message.topic, []).append(answer["digest"])
        if not answer["accepted"]:
            self.refused.append(message.topic)

    def newest(self, messages: Iterable[Message]) -> bool:
        """True if the last answer on each topic is one to this payload."""
        return all(self.digests.get(f"{topic}/state", [""])[-1] == digest(payload) for topic, payload in messages)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@contextmanager
def at_once(
    folder: Path, broker: Broker, first: list[Message], second: list[Message]
) -> Iterator[tuple[Gateway, Answers]]:
    """A gateway that finds `first` at its broker and gets `second` while it works; all of it is answered."""
    rig = Rig(folder, broker)
    gateway = rig.gateway()
    gateway.progress = lambda: int(2 * gateway.cpu_s)
    try:
        rig.publish(first, retain=True)
        answers = Answers(rig)
        gateway.start()
        wait_until(lambda: len(answers.digests) >= len(first) // 10, "the first answers", 60.0, gateway.progress)
        rig.publish(second, retain=True)
        wait_until(lambda: answers.newest(second), "an answer to the newest of each", 60.0, gateway.progress)
        assert not answers.refused
        yield gateway, answers
        status = gateway.wait_anew(lambda s: s, "the status")
        assert not [drop for drop in status["drops"] if "control message" in drop["reason"]]
        assert " ERROR " not in gateway.text()
        answers.close()
    finally:
        rig.close()


MANY = [pytest.param(FEW, id="few"), pytest.param(0, id="many", marks=pytest.mark.long)]


@pytest.mark.parametrize("count", MANY)
def test_of_1500_flows_at_once_none_is_lost_and_the_newest_version_of_each_runs(
    count: int, tmp_path: Path, mosquitto: Callable[..., Broker]
) -> None:
    numbers = range(count or 1_500)
    first, second = ([(f"{BASE}/flows/f{n}", flow(n, version)) for n in numbers] for version in (1, 2))
    broker = mosquitto(settings="max_queued_messages 0")
    with at_once(tmp_path, broker, first, second) as (gateway, _):
        status = gateway.wait(lambda s: len(s["flows"]) == len(numbers), "all flows")
        described = {flow["name"]: (flow["state"], flow["description"]) for flow in status["flows"]}
        assert described == {f"f{n}": ("running", "version 2") for n in numbers}


@pytest.mark.parametrize("count", MANY)
def test_of_1100_models_at_once_none_is_lost_and_none_unanswered(
    count: int, tmp_path: Path, mosquitto: Callable[..., Broker]
) -> None:
    numbers = range(count or 1_100)
    first, second = ([(f"{BASE}/models/m{n}", model(n, version)) for n in numbers] for version in (1, 2))
    broker = mosquitto(settings="max_queued_messages 0")
    with at_once(tmp_path, broker, first, second) as (_, answers):
        assert len(answers.digests) == len(numbers)
