"""The board's own broker loses what it had not written: what the gateway accepted counts, not an older document."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from edgert.core.settings.connection import Connection
from edgert.core.toml import to_toml
from edgert.mqtt.clients.deployment import Deployment
from tests.integration.rig import FLEET, Gateway, Rig
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


def flow(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "operators": {
            "in": {"type": "mqtt_source", "topic": "x/{source}"},
            "out": {"type": "publish", "input": "in", "topic": "y"},
        },
    }


def versions(gateway: Gateway) -> dict[str, int]:
    return {
        one["name"]: one["version"] for one in gateway.wait_anew(lambda s: s["central"]["connected"], "it")["flows"]
    }


def test_neither_a_removed_flow_nor_an_older_version_comes_back(rig: Rig) -> None:
    gateway = rig.gateway()
    gateway.start_ready()
    rig.deploy(gateway, flow("changed", "first"))
    rig.deploy(gateway, flow("removed", "first"))
    rig.broker.save()
    shutil.copy(rig.broker.folder / "mosquitto.db", rig.folder / "older.db")
    rig.deploy(gateway, flow("changed", "second"))
    assert rig.tell(gateway, "flows/removed", b"", "flows/removed/state")["existed"]

    gateway.kill()  # a power cut; the broker had written its database before the changes
    rig.broker.kill()
    shutil.copy(rig.folder / "older.db", rig.broker.folder / "mosquitto.db")
    rig.broker.start()
    gateway.start_ready()
    wait_until(lambda: gateway.text().count("the broker went back in time") == 2, "the two older documents")
    assert versions(gateway) == {"changed": 2}

    retained: dict[str, bytes] = {}
    client = rig.client()
    client.on_message = lambda _c, _d, m: retained.update({m.topic.rsplit("/", 1)[1]: bytes(m.payload)})

    def written_back() -> bool:
        retained.clear()
        rig.subscribe(client, f"edgert/v1/{FLEET}/{gateway.name}/flows/+")
        return b"second" in retained.get("changed", b"") and "removed" not in retained

    wait_until(written_back, "the documents that the gateway writes back")
    client.disconnect()
    client.loop_stop()
    gateway.kill()
    gateway.start_ready()
    assert versions(gateway) == {"changed": 2}
    assert gateway.text().count("the broker went back in time") == 2


def test_an_older_document_that_is_meant_is_taken_also_while_the_gateway_was_away(rig: Rig) -> None:
    gateway = rig.gateway()
    gateway.start_ready()
    first = to_toml(flow("f", "first")).encode()
    rig.tell(gateway, "flows/f", first, "flows/f/state")
    rig.deploy(gateway, flow("f", "second"))
    gateway.kill()
    connection = Connection(port=rig.broker.port)
    deployment = Deployment(connection, "operator", FLEET, "f", first, gateway=gateway.name, written=b"anew")
    deployment.start()
    client, kept = rig.client(), list[bytes]()
    client.on_message = lambda _c, _d, message: kept.append(bytes(message.payload))
    rig.subscribe(client, f"edgert/v1/{FLEET}/{gateway.name}/flows/f")
    wait_until(lambda: first in kept, "the document at the broker")
    client.disconnect()
    client.loop_stop()
    deployment.close()
    gateway.start_ready()
    gateway.wait(lambda s: [one["version"] for one in s["flows"]] == [3], "version 3")
