"""Brokers that sensors may have: each message of QoS 1 counts once, whatever the broker leaves out of the standard.

`make test-brokers` runs this against Mosquitto, amqtt, mochi-mqtt and rumqttd, with the gateway killed twice amid the
messages, and prints lines for the table of docs/brokers.md.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from benchmarks.ports import free_port
from tests import brokers
from tests.brokers import Broker
from tests.integration.rig import Gateway, Rig
from tests.other_brokers.build import RUMQTTD
from tests.other_brokers.worlds import mochi
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long]

MESSAGES = 3_000
RATE = 200.0
_RUMQTTD = """
id = 0
[router]
id = 0
max_connections = 100
max_outgoing_packet_count = 200
max_segment_size = 104857600
max_segment_count = 10
[v{version}.1]
name = "v{version}-1"
listen = "127.0.0.1:{port}"
next_connection_delay_ms = 1
    [v{version}.1.connections]
    connection_timeout_ms = 60000
    max_payload_size = 204800
    max_inflight_count = 100
    dynamic_filters = true
[console]
listen = "127.0.0.1:{console}"
"""


def mosquitto(folder: Path, version: str) -> Broker:
    """Its queue has no bound: a gateway that starts slowly must not cost a message."""
    return brokers.mosquitto(folder, settings="max_queued_messages 0")


def amqtt(folder: Path, version: str) -> Broker:
    pytest.importorskip("amqtt")
    if version == "5":
        pytest.skip("amqtt speaks 3.1.1 only")
    return brokers.amqtt(folder, anonymous=False)


def rumqttd(folder: Path, version: str) -> Broker:
    if not RUMQTTD.exists():
        pytest.skip(f"{RUMQTTD} is not built (python -m tests.other_brokers.build, needs Rust)")
    port, file = free_port(), folder / "rumqttd.toml"
    file.write_text(_RUMQTTD.format(port=port, console=free_port(), version="5" if version == "5" else "4"))
    return Broker([str(RUMQTTD), "-c", str(file)], port, folder)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """With Mosquitto on the central side."""
    folder = tmp_path / "central"
    folder.mkdir()
    made = Rig(tmp_path, brokers.mosquitto(folder))
    made.broker.start()
    yield made
    made.close()
    made.broker.kill()


def publish(port: int, version: str) -> None:
    """All messages, each with a time of its own. Returns when the broker has them."""
    protocol = paho.MQTTv5 if version == "5" else paho.MQTTv311
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=protocol)  # type: ignore[attr-defined]
    client.username_pw_set("sensor", "secret")
    client.max_inflight_messages_set(50)
    client.connect("127.0.0.1", port)
    client.loop_start()
    began, base = time.monotonic(), time.time() // 1.0
    for n in range(MESSAGES):
        client.publish(f"room/{n % 4}", json.dumps({"time": base + n / RATE, "n": n}), qos=1)
        time.sleep(max(0.0, n / RATE - (time.monotonic() - began)))
    wait_until(lambda: not client._out_messages, "the broker's PUBACKs")
    client.disconnect()
    client.loop_stop()


def password(folder: Path) -> dict[str, str]:
    """The gateway has a name and a password, since amqtt keeps sessions for such clients only."""
    file = folder / "password"
    file.write_text("secret")
    file.chmod(0o600)
    return {"username": "gateway", "password_file": str(file)}


def document() -> dict[str, Any]:
    window = {"type": "tumbling_window", "size_s": 1.0, "late": "ship", "aggregates": {"n": "count()"}}
    return {
        "name": "f",
        "checkpoint": {"interval_s": 1.0},
        "operators": {
            "readings": {"type": "mqtt_source", "topic": "room/{source}"},
            "window": {**window, "input": "readings"},
            "central": {"type": "ship", "input": "window"},
        },
    }


LOSES = pytest.mark.xfail(reason="amqtt 0.12 delivers nothing again, and marks what waited as retained", strict=True)


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize(
    "kind", [mosquitto, pytest.param(amqtt, marks=LOSES), mochi, rumqttd], ids=lambda kind: kind.__name__
)
def test_each_message_counts_once_though_the_gateway_is_killed_twice(
    kind: Callable[[Path, str], Broker], version: str, rig: Rig
) -> None:
    folder = rig.folder / "sensors"
    folder.mkdir()
    broker = kind(folder, version)
    broker.start()
    try:
        sensors = {"port": broker.port, "protocol": version, **password(rig.folder)}
        gateway, collector = rig.gateway(sensors=sensors), rig.collector()
        gateway.progress = lambda: int(2 * gateway.cpu_s)  # a start may take long on a busy machine
        collector.start()
        gateway.start_ready()
        assert rig.deploy(gateway, document())["accepted"]
        sending = threading.Thread(target=publish, args=(broker.port, version), daemon=True)
        sending.start()
        for _ in range(2):
            gateway.wait(lambda s: s["ingest"]["messages"] >= MESSAGES // 6, "messages before a kill")
            gateway.kill()
            gateway.start_ready()
        sending.join(120.0)
        assert not sending.is_alive()
        ingest = finished(rig, gateway)
    finally:
        broker.kill()
    counted = sum(row["n"] for row in rig.landed("f"))
    told = ", ".join(f"{key} {ingest[key]}" for key in ("redelivered", "without_dup", "ambiguous", "broker_dropped"))
    print(f"\n| {kind.__name__} | {version} | {counted:,} of {MESSAGES:,} | {told} | {ingest['broker_drops_unseen']} |")
    assert counted == MESSAGES


def finished(rig: Rig, gateway: Gateway) -> dict[str, Any]:
    """When all has come and landed: the ingest's section of the last status."""
    seen: list[int] = []

    def quiet() -> bool:
        ingest = gateway.status()["ingest"]
        seen.append(ingest["messages"])
        return not ingest["unacknowledged"] and len(seen) > 4 and len(set(seen[-4:])) == 1

    wait_until(quiet, "the last message", poll_s=0.7)
    ingest: dict[str, Any] = gateway.status()["ingest"]
    assert rig.tell(gateway, "flows/f", b"", "flows/f/state")["accepted"]
    rig.drained(gateway)
    return ingest
