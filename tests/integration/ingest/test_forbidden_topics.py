"""A broker whose access rules close the connection (EMQX, HiveMQ, AWS IoT): Mosquitto behind a proxy that hangs up at a
topic and at a subscription. All else goes on, and the status names what does not."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest

from edgert.core.settings.connection import Connection
from edgert.mqtt.clients.control_plane import ControlConnection
from edgert.mqtt.clients.reconnect import Backoff
from edgert.mqtt.hang_ups.forbidden import FIRST_S
from gateway.ingest.publishing import SENDER_BLAMES
from tests.integration.rig import Gateway, Rig
from tests.proxy import Hop, Loop
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

PUBLISH, SUBSCRIBE = 3, 8


def forbidden(packet: bytes) -> bool:
    kind = packet[0] >> 4
    return (kind == PUBLISH and b"secret/" in packet[:40]) or (kind == SUBSCRIBE and b"closed/" in packet)


@pytest.fixture
def hop(rig: Rig) -> Iterator[Hop]:
    loop = Loop()
    hop = Hop(loop, rig.broker.port, "127.0.0.1")
    hop.hang_up("up", forbidden)
    try:
        yield hop
    finally:
        hop.close()
        loop.close()


def document(name: str, reads: str, publishes: str) -> dict[str, Any]:
    operators = {
        "in": {"type": "mqtt_source", "topic": f"{reads}/{{source}}"},
        "tell": {"type": "publish", "input": "in", "topic": f"{publishes}/{{source}}"},
    }
    return {"name": name, "checkpoint": {"interval_s": 0.2}, "operators": operators}


def listen(rig: Rig, heard: list[str]) -> paho.Client:
    """Fills `heard` with the topics of what the flows publish."""
    client, armed = rig.client(), threading.Event()
    client.on_message = lambda _client, _data, message: heard.append(message.topic)
    client.on_subscribe = lambda *_: armed.set()
    client.subscribe([("open/#", 1), ("secret/#", 1)])
    assert armed.wait(60.0)
    return client


def not_sent(status: dict[str, Any]) -> dict[tuple[str, str], int]:
    """Dropped rows of a broker's refusals by flow and operator."""
    return {(d["flow"], d["operator"]): d["rows"] for d in status["drops"] if d["reason"] == "not sent"}


def acknowledged(gateway: Gateway, bad: int) -> dict[str, Any]:
    """The status once all came, of which `bad` messages at least were given up."""
    return gateway.wait_anew(
        lambda s: not s["ingest"]["unacknowledged"] and sum(not_sent(s).values()) >= bad, "the acknowledgements"
    )


def test_forbidden_topics_at_one_message_a_second_and_a_forbidden_filter_stop_nothing_else(rig: Rig, hop: Hop) -> None:
    gateway = Gateway(rig.folder, "g1", hop.port, rig.broker.port, {})
    rig.processes.append(gateway)
    gateway.progress = lambda: int(2 * gateway.cpu_s)
    heard: list[str] = []
    client = listen(rig, heard)
    gateway.start_ready()
    for name, reads, publishes in (("good", "room", "open"), ("bad", "hall", "secret"), ("deaf", "closed", "open")):
        assert rig.deploy(gateway, document(name, reads, publishes))["accepted"]
    sent = 0

    def settled(status: dict[str, Any]) -> bool:
        """Sends a message to both flows each second meanwhile."""
        nonlocal sent
        rig.publish((f"{place}/a", json.dumps({"n": sent}).encode()) for place in ("room", "hall"))
        sent += 1
        time.sleep(1.0)
        ingest = status["ingest"]
        return bool(ingest["connected"] and ingest["refused_topics"] and ingest["refused"])

    status = gateway.wait(settled, "what the broker hangs up at", 90.0)
    before = hop.hung_up
    for _ in range(5):
        settled(status)
    wait_until(lambda: heard.count("open/a") >= sent, "all messages of the good flow")
    status = acknowledged(gateway, sent)
    client.disconnect()
    assert hop.hung_up == before <= 12, "the connection goes on"
    assert "secret/a" not in heard
    (refused,) = status["ingest"]["refused_topics"]
    assert (refused["flow"], refused["operator"], refused["topic"]) == ("bad", "tell", "secret/a")
    assert list(status["ingest"]["refused"]) == ["closed/+"]
    assert "hangs up" in status["ingest"]["refused"]["closed/+"]
    assert not_sent(status) == {("bad", "tell"): sent}
    wait_until(lambda: "hung up at a message of flow bad (operator tell)" in gateway.text(), "the log")


def test_a_forbidden_topic_on_the_central_connection_stops_no_other(rig: Rig, hop: Hop) -> None:
    """As the topic for an answer that somebody asked for."""
    heard, soon = list[str](), Backoff(0.05, 0.1, 10.0)
    client, made = listen(rig, heard), ControlConnection(Connection(port=hop.port), "made", reconnect=soon)
    made.start()
    try:
        sent = refusals = 0

        def refused() -> bool:
            """For a second, while other messages go out."""
            nonlocal sent, refusals
            took, refuses = made.publish("open/a", b"x"), not made.publish("secret/a", b"x")
            sent, refusals = sent + took, refusals + 1 if took and refuses else 0
            return refusals >= 10

        wait_until(refused, "the forbidden topic to be refused", poll_s=0.1)
        wait_until(lambda: made.connected, "the connection")
        before = hop.hung_up
        for _ in range(20):
            assert not made.publish("secret/a", b"x")
            assert made.publish("open/a", b"x")
        wait_until(lambda: heard.count("open/a") >= sent + 20, "all other messages")
        assert (hop.hung_up, made.connected) == (before, True)
        assert made.limits.hung_up + made.limits.too_large >= 20
    finally:
        made.stop()
        client.disconnect()


def test_hundreds_of_forbidden_topics_of_one_operator_hold_no_other_flow_up_for_long(rig: Rig, hop: Hop) -> None:
    gateway = Gateway(rig.folder, "g1", hop.port, rig.broker.port, {})
    rig.processes.append(gateway)
    gateway.progress = lambda: int(2 * gateway.cpu_s)
    heard: list[str] = []
    client = listen(rig, heard)
    gateway.start_ready()
    for name, reads, publishes in (("good", "room", "open"), ("bad", "hall", "secret")):
        assert rig.deploy(gateway, document(name, reads, publishes))["accepted"]
    rig.publish((f"hall/d{n}", b'{"n":1}') for n in range(500))
    gateway.wait(lambda _: hop.hung_up > 0, "the first hang-up")
    sent = 0

    def heard_all() -> bool:
        nonlocal sent
        rig.publish([("room/a", b'{"n":1}'), (f"hall/e{sent}", b'{"n":1}')])
        sent += 1
        time.sleep(0.5)
        return len(heard) > sent - 3 and sent > 3

    wait_until(heard_all, "the messages of the good flow")
    refused = gateway.wait(lambda s: s["ingest"]["connected"], "the connection")["ingest"]["refused_topics"]
    before, refusals = hop.hung_up, [one for one in refused if one["topic"] == "#"]
    for _ in range(6):
        heard_all()
    wait_until(lambda: heard.count("open/a") >= sent, "all messages of the good flow")
    client.disconnect()
    assert hop.hung_up == before <= 2 * SENDER_BLAMES + 3
    assert [(one["flow"], one["operator"]) for one in refusals] == [("bad", "tell")]
    assert refusals[0]["for_s"] <= FIRST_S
    assert not any(topic.startswith("secret/") for topic in heard)
    assert not_sent(acknowledged(gateway, 500 + sent)) == {("bad", "tell"): 500 + sent}
    assert gateway.text().count("ERROR gateway.ingest.publishing") == 2
