"""The CPU time of a message does not grow with the rows that are kept: one device sends times in the future, each of
which opens a window that stays open for years."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.brokers import Broker
from tests.integration.rig import Gateway, Message, Rig

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
FEW, MANY = 1_000, 50_000
HONEST: Final = 1_500
RATE: Final = 300.0
"""Messages per second: each is a turn of its own, as on a board."""
FLOW: Final = {
    "name": "f",
    "checkpoint": {"interval_s": 60.0},
    "operators": {
        "in": {"type": "mqtt_source", "topic": "room/{source}", "qos": 0},
        "window": {"type": "tumbling_window", "input": "in", "size_s": 10.0, "aggregates": {"n": "count()"}},
        "out": {"type": "publish", "input": "window", "topic": "out/{source}"},
    },
}


def future(first: int, last: int) -> Iterator[Message]:
    begin = time.time() + 10 * 365 * 86_400
    for n in range(first, last):
        yield "room/ahead", json.dumps({"time": begin + 10 * n, "v": 1}).encode()


def cpu_s_of_honest(rig: Rig, gateway: Gateway, taken: int) -> float:
    """Seconds of the gateway's CPU for `HONEST` messages of other devices, sent at `RATE`."""
    before = gateway.cpu_s
    rig.publish(
        ((f"room/d{n % 10}", json.dumps({"time": time.time(), "v": 1}).encode()) for n in range(HONEST)), 0, RATE
    )
    gateway.wait(lambda s: s["ingest"]["messages"] >= taken + HONEST, "the honest messages", 60.0)
    return gateway.cpu_s - before


def test_a_message_costs_no_more_beside_50_000_future_rows_of_one_device_than_beside_1_000(
    tmp_path: Path, mosquitto: Callable[..., Broker]
) -> None:
    """After 1,000, 5,000, 20,000 and 50,000 such rows 100 messages/s took 6, 13, 35 and 54 % of a core."""
    rig = Rig(tmp_path, mosquitto(settings="max_queued_messages 0"))
    gateway = rig.gateway()
    gateway.progress = lambda: int(2 * gateway.cpu_s)
    try:
        gateway.start_ready()
        assert rig.deploy(gateway, FLOW)["accepted"]
        costs = []
        taken = 0
        for first, last in ((0, FEW), (FEW, MANY)):
            taken += rig.publish(future(first, last), qos=0)
            gateway.wait(lambda s, taken=taken: s["ingest"]["messages"] >= taken, "the future rows", 60.0)
            gateway.wait_anew(lambda s: not s["flows"][0]["operators"][0]["queue_rows"], "empty queues", 60.0)
            costs.append(cpu_s_of_honest(rig, gateway, taken))
            taken += HONEST
        kept = gateway.wait_anew(lambda s: s, "the status")["flows"][0]["state_bytes"]
        few, many = costs
        print(f"{HONEST} messages: {few:.2f} s of CPU beside {FEW:,} future rows, {many:.2f} s beside {MANY:,}")
        assert kept > 100 * MANY, "the rows are kept"
        assert many < 2.0 * few
    finally:
        rig.close()
