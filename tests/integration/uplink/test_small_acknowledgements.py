"""A central broker with a limit below an acknowledgement of many flows: each gateway hears what has landed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgert.core.results.macs import gateway_key
from edgert.core.text.key_lines import key_line
from edgert.core.toml import to_toml
from tests.brokers import Broker
from tests.integration.rig import FLEET, Gateway, Rig

pytestmark = pytest.mark.integration
LIMIT, FLOWS = 2_000, 30
CENTRAL = bytes(range(32))


def document(name: str, topic: str) -> dict[str, Any]:
    return {
        "name": name,
        "checkpoint": {"interval_s": 0.5},
        "operators": {
            "readings": {"type": "mqtt_source", "topic": topic},
            "bare": {"type": "tumbling_window", "input": "readings", "size_s": 1.0, "aggregates": {"n": "count()"}},
            "central": {"type": "ship", "input": "bare"},
        },
    }


def files(folder: Path, gateway: str, flows: int) -> list[str]:
    """A document for each flow, with names of 60 characters."""
    made = [folder / f"{gateway}-{n}.toml" for n in range(flows)]
    for n, file in enumerate(made):
        file.write_text(to_toml(document(f"{gateway}-{n:057}", f"{gateway}/{{source}}")))
    return list(map(str, made))


def key_file(path: Path, key: bytes) -> str:
    path.write_text(f"{key_line(key)}\n")
    path.chmod(0o600)
    return str(path)


def test_many_flows_of_long_names_are_acknowledged_under_a_small_limit(
    tmp_path: Path, mosquitto: Callable[..., Broker]
) -> None:
    """One acknowledgement named them all and was above the limit, for ever: no gateway heard anything any more. Each of
    several has a MAC."""
    sensors, central = mosquitto(), mosquitto(settings=f"max_packet_size {LIMIT}\nmax_queued_messages 0")
    rig = Rig(tmp_path, central)
    for name, flows in (("g1", FLOWS), ("g2", 1)):
        mac_key_file = key_file(tmp_path / f"{name}.key", gateway_key(CENTRAL, FLEET, name))
        settings: dict[str, Any] = {
            "central": {"mac_key_file": mac_key_file},
            "flows": {"files": files(tmp_path, name, flows)},
        }
        rig.processes.append(Gateway(tmp_path, name, sensors.port, central.port, settings))
    many, one = rig.processes
    assert isinstance(many, Gateway)
    assert isinstance(one, Gateway)
    collector = rig.collector(env={"EDGERT_COLLECTOR_MAC_KEY_FILE": key_file(tmp_path / "central.key", CENTRAL)})
    collector.start()
    try:
        many.start_ready()
        one.start_ready()
        rig.broker, now = sensors, time.time()
        rig.publish([(f"{name}/s", json.dumps({"time": now + n}).encode()) for name in ("g1", "g2") for n in (-60, 0)])
        many.wait(lambda s: s["central"]["acknowledged"] >= 2 * FLOWS, "openings and results")
        one.wait(lambda s: s["central"]["acknowledged"] >= 2, "opening and results")
        for gateway in (many, one):
            status = gateway.wait(lambda s: not s["central"]["outbox_batches"], "an empty outbox")
            assert (status["central"]["bad_acks"], status["central"]["not_authentic_acks"]) == (0, 0)
        assert "ERROR" not in collector.text()
    finally:
        rig.close()
