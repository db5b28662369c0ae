"""The CPU time that a message costs does not grow with what the gateway keeps, in the process with a real broker."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import pytest

from tests.integration.rig import Gateway, Message, Rig

pytestmark = pytest.mark.integration

KEPT: Final = 50_000
"""Rows of one device with times in the future, each in a window of its own."""
RATE: Final = 100.0
COUNT: Final = 400
TIMES: Final = 3.0
"""The most that a message may cost with them, to one without."""
FLOW: Final = {
    "name": "kept",
    "checkpoint": {"interval_s": 1.0},
    "operators": {
        "readings": {"type": "mqtt_source", "topic": "kept/x", "codec": "json"},
        "by-name": {"type": "key_by", "input": "readings", "keys": ["source"]},
        "second": {"type": "tumbling_window", "input": "by-name", "size_s": 1.0, "aggregates": {"n": "count()"}},
        "out": {"type": "ship", "input": "second"},
    },
}


def message(rows: list[dict[str, Any]]) -> Message:
    return "kept/x", json.dumps(rows).encode()


def messages_in(gateway: Gateway) -> int:
    status = gateway.wait(lambda s: s["flows"] and s["flows"][0]["operators"], "the flow")
    return int(status["flows"][0]["operators"][0]["rows_in"])


def taken(gateway: Gateway, count: int) -> None:
    gateway.wait(lambda s: s["flows"][0]["operators"][0]["rows_in"] >= count, "the messages")
    gateway.wait(lambda s: not s["ingest"]["unacknowledged"], "the checkpoint")


def cost_s(rig: Rig, gateway: Gateway) -> float:
    """CPU seconds for each of some messages that come evenly: the less of two measurements, since a checkpoint may
    be written anew beside one of them."""
    costs = []
    for _ in range(2):
        before, began = messages_in(gateway), gateway.cpu_s
        rig.publish((message([{"source": "honest", "v": 1.0}]) for _ in range(COUNT)), rate=RATE)
        taken(gateway, before + COUNT)
        costs.append((gateway.cpu_s - began) / COUNT)
    return min(costs)


def test_a_message_costs_no_more_where_many_windows_wait_for_their_time_nor_after_a_restart(rig: Rig) -> None:
    gateway = rig.gateway()
    gateway.start_ready()
    assert rig.deploy(gateway, FLOW)["accepted"]
    costs = {"without": cost_s(rig, gateway)}
    later = int(time.time()) + 86_400
    rows = [{"source": "ahead", "v": 1.0, "time": later + number} for number in range(KEPT)]
    before = messages_in(gateway)
    rig.publish(message(rows[first : first + 1_000]) for first in range(0, KEPT, 1_000))
    taken(gateway, before + KEPT // 1_000)
    costs["with"] = cost_s(rig, gateway)
    gateway.terminate()
    gateway.start_ready()
    costs["after a restart"] = cost_s(rig, gateway)
    status = gateway.wait(lambda s: s["flows"], "the flow")
    print({name: f"{1e3 * cost:.2f} ms" for name, cost in costs.items()}, status["flows"][0]["state_bytes"])
    assert status["flows"][0]["state_bytes"] > 100 * KEPT, "the windows are there"
    assert max(costs.values()) < TIMES * costs["without"], costs
