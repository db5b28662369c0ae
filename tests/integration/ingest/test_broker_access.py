"""The ACL file of `edgert fleet acl` at a real Mosquitto: what each may write arrives, and nothing else does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edgert.cli.main import main
from edgert.core.results.results import acks_topic, results_topic
from edgert.core.toml import to_toml
from tests.brokers import Broker
from tests.integration.rig import FLEET, Rig
from tests.integration.worlds import AIR
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

USERS = {name: f"secret of {name}" for name in ("g1", "g2", "central", "ops", "stranger")}
BASE = f"edgert/v1/{FLEET}"
DENIED = 0x87


@pytest.fixture(params=[("g1", "g2"), ()], ids=["gateways by name", "any gateway"])
def guarded(
    request: pytest.FixtureRequest,
    mosquitto: Callable[..., Broker],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Broker:
    assert main(["fleet", "acl", *request.param, "--fleet", FLEET, "--operator", "ops"]) == 0
    file = tmp_path / "acl"
    file.write_text(capsys.readouterr().out)
    file.chmod(0o644)
    return mosquitto(users=USERS, settings=f"acl_file {file}")


@contextmanager
def client(broker: Broker, user: str) -> Iterator[paho.Client]:
    made = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    made.username_pw_set(user, USERS[user])
    made.connect("127.0.0.1", broker.port)
    made.loop_start()
    try:
        yield made
    finally:
        made.disconnect()
        made.loop_stop()


def may_write(broker: Broker, user: str, topic: str) -> bool:
    """As the broker's PUBACK says."""
    reasons: list[int] = []
    with client(broker, user) as made:
        made.on_publish = lambda _client, _data, _mid, reason, _properties: reasons.append(reason.value)
        wait_until(made.is_connected, "the connection")
        made.publish(topic, b"{}", qos=1)
        wait_until(lambda: reasons, "the PUBACK")
    return reasons[0] != DENIED


@pytest.mark.parametrize(
    ("user", "topic", "allowed"),
    [
        ("g1", results_topic(FLEET, "g1", "air"), True),
        ("g1", results_topic(FLEET, "g2", "air"), False),
        ("g1", acks_topic(FLEET, "g1"), False),
        ("g2", acks_topic(FLEET, "g1"), False),
        ("central", acks_topic(FLEET, "g1"), True),
        ("central", results_topic(FLEET, "g1", "air"), False),
        ("ops", acks_topic(FLEET, "g1"), False),
        ("ops", results_topic(FLEET, "g1", "air"), False),
        ("g1", f"{BASE}/g1/status", True),
        ("g1", f"{BASE}/g2/status", False),
        ("g1", f"{BASE}/g2/flows/air", False),
        ("g1", f"{BASE}/g1/flows/air", True),  # it writes back what an older broker lost
        ("g1", f"{BASE}/g1/update/state", True),
        ("g1", f"{BASE}/g2/update/state", False),
        ("g1", f"{BASE}/g1/crl/state", True),
        ("g1", f"{BASE}/@crl", False),
        ("ops", f"{BASE}/@crl", True),
        ("g1", f"{BASE}/g2/cmd/update", False),
        ("g1", f"{BASE}/g1/cmd/update", False),
        ("ops", f"{BASE}/g1/cmd/update", True),
        ("ops", f"{BASE}/g1/update/state", False),
        ("g1", f"{BASE}/@models/m", False),
        ("ops", f"{BASE}/g1/flows/air", True),
        ("ops", f"{BASE}/g1/cmd/status", True),
        ("stranger", f"{BASE}/g1/flows/air", False),
        ("stranger", results_topic(FLEET, "g1", "air"), False),
        ("stranger", acks_topic(FLEET, "g1"), False),
    ],
)
def test_each_writes_what_is_its_own_and_nothing_else(guarded: Broker, user: str, topic: str, allowed: bool) -> None:
    assert may_write(guarded, user, topic) == allowed


def test_a_gateway_hears_nothing_that_is_meant_for_another(guarded: Broker) -> None:
    heard: list[str] = []
    with client(guarded, "g2") as spy, client(guarded, "ops") as ops, client(guarded, "central") as central:
        armed = threading.Event()
        spy.on_message = lambda _client, _data, message: heard.append(message.topic)
        spy.on_subscribe = lambda *_: armed.set()
        wait_until(lambda: spy.is_connected() and ops.is_connected() and central.is_connected(), "the connections")
        spy.subscribe([(f"{BASE}/#", 1), (f"{BASE}/+/flows/+", 1), (acks_topic(FLEET, "g2"), 1)])
        assert armed.wait(60.0)
        ops.publish(f"{BASE}/g1/flows/air", b"{}", qos=1).wait_for_publish(10)
        central.publish(acks_topic(FLEET, "g1"), b"{}", qos=1).wait_for_publish(10)
        central.publish(acks_topic(FLEET, "g2"), b"{}", qos=1).wait_for_publish(10)
        wait_until(lambda: acks_topic(FLEET, "g2") in heard, "what is its own")
    assert set(heard) == {acks_topic(FLEET, "g2")}


def test_results_go_from_gateway_to_table_through_a_broker_with_these_rules(
    guarded: Broker, mosquitto: Callable[..., Broker], tmp_path: Path
) -> None:
    for name in ("g1", "central"):
        (tmp_path / f"{name}.password").write_text(USERS[name])
        (tmp_path / f"{name}.password").chmod(0o600)
    sensors = mosquitto()
    rig = Rig(tmp_path, guarded)
    try:
        login: dict[str, Any] = {"username": "g1", "password_file": str(tmp_path / "g1.password")}
        flow = tmp_path / "air.toml"
        flow.write_text(to_toml(AIR))
        gateway = rig.gateway(sensors={"port": sensors.port}, central=login, flows={"files": [str(flow)]})
        user = {
            "EDGERT_CENTRAL_USERNAME": "central",
            "EDGERT_CENTRAL_PASSWORD_FILE": str(tmp_path / "central.password"),
        }
        rig.collector(env=user).start()
        gateway.start_ready()
        gateway.wait(lambda s: s["central"]["connected"], "the central connection")
        messages = [("s/a", b'{"time": %d, "v": 1.5}' % (1_700_000_000 + 60 * n)) for n in range(10)]
        Rig(tmp_path, sensors).publish(messages)
        wait_until((rig.tables / "landing" / "air" / "_delta_log").exists, "the landing table")
        wait_until(lambda: len(rig.landed("air")) >= 8, "the windows in the table", poll_s=0.2)
        rig.drained(gateway)
    finally:
        rig.close()
