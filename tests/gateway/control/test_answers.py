"""Every document is answered, also where the central connection has no room for the answer, or is away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Final, cast

import paho.mqtt.client as paho
import pytest

from edgert.core.settings.gateway import Central, Gateway, GatewaySettings
from edgert.mqtt.clients import message_limits
from edgert.mqtt.clients.control_plane import MqttRequest
from edgert.mqtt.clients.deployment import read_answer_untrusted
from gateway.control.central import UNANSWERED, CentralConnection
from tests.brokers import Broker
from tests.gateway.mqtt_api_rig import BASE, GOOD, Rig
from tests.waiting import in_loop, until, wait_until

pytestmark = pytest.mark.integration
MANY: Final = 200
STATUS: Final = f"{BASE}/status"


class Owner:
    """Who writes documents at the broker, and keeps the newest message on each topic on which the gateway answers."""

    def __init__(self, broker: Broker) -> None:
        self.said: dict[str, Any] = {}
        ready: list[object] = []
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)  # type: ignore[attr-defined]
        self.client.on_message = lambda _c, _d, message: self.said.update({message.topic: json.loads(message.payload)})
        self.client.on_subscribe = lambda *_: ready.append(1)
        self.client.connect("127.0.0.1", broker.port)
        self.client.subscribe([(f"{BASE}/+/+/state", 1), (STATUS, 1), ("asker", 1)])
        self.client.loop_start()
        wait_until(lambda: ready, "the owner's subscription")

    def write(self, count: int, kind: str = "models") -> None:
        for n in range(count):
            self.client.publish(f"{BASE}/{kind}/m{n}", json.dumps(GOOD | {"name": f"m{n}"}).encode(), 1)

    def answered(self) -> int:
        return len([topic for topic in self.said if topic.endswith("/state")])


@pytest.fixture
def world(mosquitto: Callable[..., Broker]) -> Iterator[tuple[Broker, Owner]]:
    broker = mosquitto(settings="max_queued_messages 0")
    owner = Owner(broker)
    yield broker, owner
    owner.client.disconnect()
    owner.client.loop_stop()


@asynccontextmanager
async def gateway(broker: Broker) -> AsyncIterator[CentralConnection]:
    """The real connection and queues, before flows that only say yes."""
    settings = GatewaySettings(gateway=Gateway(fleet="fleet"), central=Central(port=broker.port))
    central, rig = CentralConnection(settings, "g1"), Rig()
    central.again_s = 0.01
    rig.api.answer = central.answer
    uplink = SimpleNamespace(acks_topic="acks", connected=lambda: None, disconnected=lambda: None)
    central.connect(rig.api, cast(Any, uplink), cast(Any, SimpleNamespace(runs=[])))
    files = asyncio.create_task(asyncio.sleep(0))
    tasks = [asyncio.create_task(work) for work in central.serving(files)]
    central.start()
    yield central
    for task in tasks:
        task.cancel()
    await central.stop()


def test_no_answer_is_lost_where_the_connection_has_no_room_for_one(
    world: tuple[Broker, Owner], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, owner = world
    monkeypatch.setattr(message_limits, "QUEUED_MESSAGES", 1)

    @in_loop
    async def run() -> None:
        async with gateway(broker) as central:
            await until(lambda: STATUS in owner.said, "the birth")
            await asyncio.to_thread(owner.write, MANY)
            await until(lambda: owner.answered() == MANY, f"{MANY} answers, not {owner.answered()}")
            assert not central.drops

    run()


def test_an_answer_that_finds_no_connection_is_given_to_the_next(world: tuple[Broker, Owner]) -> None:
    broker, owner = world

    @in_loop
    async def run() -> None:
        async with gateway(broker) as central:
            await until(lambda: STATUS in owner.said, "the birth")
            assert central.connection is not None
            central.connection.connected = False  # as between two connections
            central.answer(f"{BASE}/models/m/state", b'{"version": 1}')
            central.answer(f"{BASE}/models/m/state", b'{"version": 2}')
            await asyncio.sleep(0)
            assert not owner.answered()
            central.connection.connected = True
            newest = {"version": 2}
            await until(lambda: owner.said.get(f"{BASE}/models/m/state") == newest, "the newest answer")
            assert not central.drops

    run()


def test_an_answer_that_no_broker_takes_is_counted_and_holds_up_no_other(world: tuple[Broker, Owner]) -> None:
    broker, owner = world

    @in_loop
    async def run() -> None:
        async with gateway(broker) as central:
            await until(lambda: STATUS in owner.said, "the birth")
            central.answer("wild/#", b"{}", MqttRequest("wild/#", None))
            central.answer("asker", b'{"right": 1}', MqttRequest("asker", b"7"))
            await until(lambda: "asker" in owner.said, "the answer to a right topic")
            assert dict(central.drops) == {UNANSWERED: 1}

    run()


def test_an_answer_above_the_limit_of_the_broker_is_sent_without_its_lists_and_says_why(
    mosquitto: Callable[..., Broker],
) -> None:
    broker = mosquitto(settings="max_packet_size 1000")
    owner = Owner(broker)
    flow = f"{BASE}/flows/f/state"
    refusal = {"accepted": False, "errors": [{"path": "p", "expected": "e", "got": "x" * 1_000}], "digest": "d"}

    @in_loop
    async def run() -> None:
        async with gateway(broker) as central:
            await until(lambda: STATUS in owner.said, "the birth")
            central.answer(
                "asker", json.dumps({"state": "good", "flows": ["x" * 1_000]}).encode(), MqttRequest("asker", b"7")
            )
            central.answer(flow, json.dumps(refusal).encode())
            await until(lambda: {"asker", flow} <= owner.said.keys(), "both answers")
            assert dict(central.drops) == {UNANSWERED: 2}

    try:
        run()
        why = owner.said["asker"].pop("error")
        assert why.startswith("expected at most 1000 bytes, the broker's limit, got 10")
        assert owner.said["asker"] == {"state": "good"}
        answer = read_answer_untrusted(json.dumps(owner.said[flow]).encode())
        assert answer is not None
        assert (answer.accepted, answer.digest) == (False, "d")
        assert "the broker's limit" in answer.problems[0].got
    finally:
        owner.client.disconnect()
        owner.client.loop_stop()
