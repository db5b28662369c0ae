"""An operator that does not end its turn: the other flows of its topic go on, and what it was fed is safe."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.integration import truth
from tests.integration.rig import Gateway, Rig
from tests.integration.worlds import package, state, with_waiting
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("slots", [0, 1])
def test_it_holds_up_nobody_and_loses_nothing_when_the_gateway_is_killed(rig: Rig, slots: int) -> None:
    packs, there = truth.packs()[:600], rig.folder / "there"
    gateway, collector = rig.gateway(pool={"slots": slots}), rig.collector()
    gateway.env = package(rig.folder / "installed")
    there.touch()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, with_waiting(there))["accepted"]
    assert rig.deploy(gateway, truth.document("free", size_s=3600.0, interval_s=0.5))["accepted"]
    rig.publish(truth.as_messages(packs[:1]))  # from its turn on no checkpoint has any of what comes
    wait_until(there.with_suffix(".begun").exists, "the turn that does not end")
    rig.publish(truth.as_messages(packs[1:200]))
    _acknowledged(gateway, 200)
    rig.publish(truth.as_messages(packs[200:400]))
    status = _acknowledged(gateway, 400)
    assert (state(status, "stuck"), state(status, "free")) == ("stuck", "running")
    (spilled,) = [f["spilled_messages"] for f in status["flows"] if f["name"] == "stuck"]
    assert spilled in (399, 400)  # the first may be in a checkpoint from before its turn
    gateway.kill()
    there.unlink()
    gateway.start_ready()
    rig.publish(truth.as_messages(packs[400:]))
    for flow in ("stuck", "free"):
        rig.finish(gateway, flow, 200)
    wanted = Counter({key: row["n"] for key, row in truth.expected(packs, 3600.0).items()})
    assert rig.counts("free") == wanted
    assert rig.counts("stuck") == wanted


def _acknowledged(gateway: Gateway, messages: int) -> dict[str, Any]:
    def all_of_it(status: dict[str, Any]) -> bool:
        return status["ingest"]["messages"] >= messages and not status["ingest"]["unacknowledged"]

    return gateway.wait(all_of_it, "the acknowledgements")


@pytest.mark.parametrize("slots", [pytest.param(0, marks=pytest.mark.long), 1])
def test_alarms_beside_it_go_out_though_its_queue_is_full(rig: Rig, slots: int) -> None:
    there = rig.folder / "there"
    gateway = rig.gateway(pool={"slots": slots})
    gateway.env = package(rig.folder / "installed")
    there.touch()
    gateway.start_ready()
    operators = {
        "in": {"type": "mqtt_source", "topic": "s/{source}", "qos": 0},
        "hot": {"type": "filter", "input": "in", "where": "v > 0"},
        "alarm": {"type": "publish", "input": "hot", "topic": "alarm/{source}"},
        "waits": {"type": "waiting", "input": "in", "path": str(there)},
        "out": {"type": "publish", "input": "waits", "topic": "out/{source}"},
    }
    assert rig.deploy(gateway, {"name": "fork", "operators": operators})["accepted"]
    # to the broker they go at QoS 1, which shows that all are there
    long = json.dumps({"v": 1, "text": "x" * 50_000}).encode()
    rig.publish([("s/d0", long)])  # what comes after it needs another worker, which is started as input comes
    sent = 1
    try:
        wait_until(there.with_suffix(".begun").exists, "the turn that does not end")
        for _ in range(8):  # of 2 MB each: what comes while a checkpoint is tried has room in the queue, of 4 MB
            rig.publish([(f"s/d{n}", long) for n in range(40)])
            sent += 40
            status = gateway.wait(lambda s: _rows_in(s, "alarm") == sent, "the alarms")  # noqa: B023 - called here
    finally:
        there.unlink()
    dropped = {d["operator"]: d["rows"] for d in status["drops"] if d["reason"] == "queue over budget"}
    assert set(dropped) == {"waits"}
    assert dropped["waits"] > 150

    gateway.wait(lambda s: _rows_in(s, "out") == sent - dropped["waits"], "the rows that had room")


def _rows_in(status: dict[str, Any], operator: str) -> int:
    flows = status.get("flows", ())
    return next((int(o["rows_in"]) for f in flows for o in f["operators"] if o["name"] == operator), -1)
