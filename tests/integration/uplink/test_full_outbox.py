"""An outage that fills the outbox, as real processes: one flow keeps all, the other says what it shed."""

from __future__ import annotations

import json
import random
import string
import time
import urllib.request
from typing import Any

import pytest

from tests.integration.rig import Gateway, Message, Rig

pytestmark = pytest.mark.integration

SENSORS = 300
ROUNDS = 5


def document(name: str, full: str) -> dict[str, Any]:
    return {
        "name": name,
        "checkpoint": {"interval_s": 0.5},
        "outbox": {"full": full},
        "operators": {
            "readings": {"type": "mqtt_source", "topic": "x/{source}", "idle_timeout_s": 0.5},
            "by-sensor": {"type": "key_by", "input": "readings", "keys": ["source"]},
            "window": {"type": "tumbling_window", "input": "by-sensor", "size_s": 10, "aggregates": {"n": "count()"}},
            "out": {"type": "ship", "input": "window"},
        },
    }


def name(number: int) -> str:
    """Long, and hardly to be compressed."""
    return "".join(random.Random(number).choices(string.ascii_letters + string.digits, k=1_400))


def readings(first: float) -> list[Message]:
    """One of each sensor, whose long names fill the outbox, and one much later that closes their windows."""
    many = [(f"x/{name(n)}", {"time": first}) for n in range(SENSORS)]
    return [(topic, json.dumps(row).encode()) for topic, row in [*many, ("x/later", {"time": first + 100})]]


def state(status: dict[str, Any], flow: str) -> str:
    return str(next(f["state"] for f in status["flows"] if f["name"] == flow))


def waits(gateway: Gateway) -> dict[str, Any]:
    return gateway.wait(lambda s: s["flows"] and state(s, "keep") == "blocked", "the full outbox")


def test_after_an_outage_one_flow_has_all_and_the_other_states_what_is_missing(rig: Rig) -> None:
    gateway = rig.gateway(outbox={"quota_bytes": 1_048_576})
    gateway.start_ready()
    assert rig.deploy(gateway, document("keep", "stop-acknowledging"))["accepted"]
    assert rig.deploy(gateway, document("shed", "shed-oldest"))["accepted"]
    start = time.time() // 10 * 10 - 1_000
    for number in range(ROUNDS - 1):
        rig.publish(readings(start + 200 * number))
        gateway.wait(lambda s: any(f["name"] == "keep" and f["rows_shipped"] for f in s["flows"]), "the first results")
    status = waits(gateway)
    assert state(status, "shed") == "running"
    rig.publish(readings(start + 200 * (ROUNDS - 1)))
    gateway.wait(lambda s: s["ingest"]["unacknowledged"] >= SENSORS, "input that is not acknowledged")
    assert status["central"]["outbox_bytes"] <= status["central"]["outbox_quota_bytes"] == 1_048_576
    gateway.wait(lambda s: any(d["operator"] == "outbox" and d["flow"] == "shed" for d in s["drops"]), "what is shed")
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.port}/metrics", timeout=60) as answer:
        metrics = answer.read().decode()
    assert 'edgert_flow_blocked{flow="keep"} 1.0' in metrics
    assert 'edgert_flow_blocked{flow="shed"} 0.0' in metrics
    assert 'edgert_dropped_rows_total{flow="shed",operator="outbox",reason="outbox full"}' in metrics
    assert gateway.text().count("flow shed: results are dropped from now on") == 1
    gateway.kill()
    gateway.start()
    waits(gateway)
    rig.collector().start()
    gateway.wait(lambda s: not s["ingest"]["unacknowledged"] and state(s, "keep") == "running", "room")
    for flow in ("keep", "shed"):
        rig.finish(gateway, flow, 0)
    expected = {
        (start + 200 * number + late, name(n) if not late else "later")
        for number in range(ROUNDS)
        for late in (0, 100)
        for n in range(SENSORS)
    }
    assert rig.counts("keep") == dict.fromkeys(expected, 1)
    landed, gaps = rig.counts("shed"), rig.table("gaps")
    assert set(landed.values()) == {1}
    assert set(landed) <= expected
    assert {(g["flow"], g["reason"]) for g in gaps} == {("shed", "outbox full")}
    assert sum(g["rows"] for g in gaps) == len(expected) - len(landed)
    assert gateway.terminate() == 0
