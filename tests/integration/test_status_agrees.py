"""Page, `/healthz`, `cmd/status`, `edgert status`, `edgert flows` and the demo's screen say the same of one gateway."""

from __future__ import annotations

import contextlib
import io
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edgert.cli.main import main
from edgert.demo.screen import DemoStage, View, plain_line
from tests.brokers import Broker
from tests.integration.rig import FLEET, Gateway, Rig
from tests.integration.worlds import socket_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(400)]


def flow(name: str) -> dict[str, Any]:
    return {
        "name": name, "checkpoint": {"interval_s": 0.5},
        "operators": {
            "in": {"type": "mqtt_source", "topic": f"{name}/{{source}}", "out_of_order_s": 0.0},
            "second": {"type": "tumbling_window", "input": "in", "size_s": 1.0, "aggregates": {"n": "count()"}},
            "out": {"type": "ship", "input": "second"},
        },
    }  # fmt: skip


def printed(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(list(arguments))
    return code, out.getvalue()


def healthz(gateway: Gateway) -> tuple[int, list[str]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{gateway.port}/healthz", timeout=60) as answer:
            return answer.status, answer.read().decode().splitlines()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().splitlines()


def over_mqtt(rig: Rig, gateway: Gateway) -> dict[str, Any]:
    """The answer to `cmd/status`."""
    client, answers, armed = rig.client(), list[dict[str, Any]](), threading.Event()
    client.on_message = lambda _client, _data, message: answers.append(json.loads(message.payload))
    client.on_subscribe = lambda *_: armed.set()
    client.subscribe("test/answers", 1)
    assert armed.wait(60.0)
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.ResponseTopic = "test/answers"
    client.publish(f"edgert/v1/{FLEET}/{gateway.name}/cmd/status", b"{}", 1, properties=properties)
    wait_until(lambda: answers, "an answer to cmd/status")
    client.disconnect()
    client.loop_stop()
    return answers[0]


Told = dict[tuple[str, str], tuple[str, str]]
"""(part, name) -> (level, state)."""


def told_of(status: dict[str, Any]) -> Told:
    return {(p["part"], p["name"]): (p["level"], p["state"]) for p in status["health"]["parts"]}


def agreed(rig: Rig, gateway: Gateway, holds: Callable[[Told], object], what: str, deadline_s: float) -> Told:
    """Waits until the page says so; then all the others say the same."""
    page = gateway.wait(lambda s: holds(told_of(s)), what, deadline_s)
    told = told_of(page)
    badges = {f["name"]: (f["condition"]["level"], f["condition"]["state"]) for f in page["flows"]}
    assert badges == {name: of for (part, name), of in told.items() if part == "flow"}
    assert told_of(over_mqtt(rig, gateway)) == told
    ill = [(part, name) for (part, name), (level, _) in told.items() if level == "bad"]

    code, lines = healthz(gateway)
    assert code == (503 if ill else 200), lines
    socket = ("--socket", str(socket_of(gateway)))
    code, shown = printed("status", *socket)
    assert code == bool(ill)
    screen = plain_line(View(1.0, "", gateway.name, (DemoStage("flow", "ready"),), "f", status=page))
    for part, name in ill:
        begins = {"flow": f"flow {name}: ", "sensors": "sensors' broker: "}.get(part, f"{part}: ")
        assert any(line.startswith(f"- {begins}") for line in lines), lines
        assert f"! {begins}" in shown
        assert f"PROBLEM: {begins}" in screen
    code, listed = printed("flows", "--json", *socket)
    conditions = {f["name"]: (f["condition"]["level"], f["condition"]["state"]) for f in json.loads(listed)}
    assert conditions == badges
    assert code == any(level == "bad" for level, _ in badges.values())
    return told


@contextlib.contextmanager
def publishing(broker: Broker, payloads: dict[str, Callable[[], bytes]]) -> Iterator[None]:
    client, stopping = paho.Client(paho.CallbackAPIVersion.VERSION2), threading.Event()  # type: ignore[attr-defined]
    client.connect(broker.host, broker.port)
    client.loop_start()

    def publish() -> None:
        while not stopping.wait(0.3):
            for topic, payload in payloads.items():
                client.publish(topic, payload(), qos=1)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
        client.disconnect()
        client.loop_stop()


def test_all_views_agree_while_one_part_after_the_other_fails(rig: Rig, mosquitto: Callable[..., Broker]) -> None:
    sensors = mosquitto()
    collector = rig.collector()
    collector.start()
    refused = rig.tables / "landing" / "b"
    refused.parent.mkdir(parents=True)
    refused.write_text("a file where the table of flow b should be")
    gateway = rig.gateway(sensors={"port": sensors.port, "keep_alive_s": 5})
    gateway.start_ready()
    for name in "abc":
        assert rig.deploy(gateway, flow(name))["accepted"]

    def well() -> bytes:
        return json.dumps({"time": time.time(), "v": 1}).encode()

    with publishing(sensors, {"a/x": well, "b/x": well, "c/x": lambda: b"21.5 C"}):
        told = agreed(
            rig, gateway, lambda t: t.get(("flow", "c")) == ("bad", "refuses all") and t["central", ""][0] == "good",
            "a flow that refuses all", 30.0,
        )  # fmt: skip
        assert told["flow", "a"] == ("good", "running")
        told = agreed(
            rig,
            gateway,
            lambda t: t.get(("flow", "b")) == ("bad", "not landing"),
            "a flow whose results do not land",
            120.0,
        )
        assert told["flow", "a"] == ("good", "running")
        assert told["central", ""][0] == "good"
        collector.kill()
        told = agreed(
            rig, gateway, lambda t: t["central", ""] == ("bad", "no collector"), "a collector that is dead", 120.0
        )
        assert told["flow", "a"] == ("warning", "results wait")
        with sensors.frozen():
            told = agreed(
                rig, gateway, lambda t: t["sensors", ""] == ("bad", "disconnected"), "a broker that hangs", 60.0
            )
            assert told["flow", "a"] == ("warning", "no input")
