"""The CPU time of a message does not grow with the rows that are kept: one device sends times in the future, each of
which opens a window that stays open for years."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.brokers import Broker
from tests.integration.rig import Gateway, Message, Rig

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
FEW: Final = 1_000
HONEST: Final = 1_000
RATE: Final = 300.0
"""Messages per second: each is a turn of its own, as on a board."""


def document(topic: str) -> dict[str, Any]:
    window = {"type": "tumbling_window", "input": "in", "size_s": 10.0, "aggregates": {"n": "count()"}}
    return {
        "name": "f",
        "checkpoint": {"interval_s": 1.0},
        "operators": {
            "in": {"type": "mqtt_source", "topic": f"{topic}/{{source}}", "qos": 0},
            "window": window,
            "out": {"type": "publish", "input": "window", "topic": "out/{source}"},
        },
    }


def future(topic: str, rows: int) -> Iterator[Message]:
    begin = time.time() + 10 * 365 * 86_400
    for n in range(rows):
        yield f"{topic}/ahead", json.dumps({"time": begin + 10 * n, "v": 1}).encode()


def honest(*topics: str) -> Iterator[Message]:
    """Messages of other devices, in turns to each of the topics."""
    for n in range(HONEST):
        for topic in topics:
            yield f"{topic}/d{n % 10}", json.dumps({"time": time.time(), "v": 1}).encode()


def cpu_s(gateway: Gateway) -> float:
    """By the kernel's clock of the process (clock_getcpuclockid(3)): ticks, which others count, miss short turns."""
    assert gateway.process is not None
    return time.clock_gettime((~gateway.process.pid << 3) | 2)


@pytest.mark.parametrize("many", [10_000, pytest.param(50_000, marks=pytest.mark.long)])
def test_a_message_costs_no_more_beside_many_future_rows_of_one_device_than_beside_1_000(
    many: int, tmp_path: Path, mosquitto: Callable[..., Broker]
) -> None:
    """After 1,000, 5,000, 20,000 and 50,000 such rows 100 messages/s took 6, 13, 35 and 54 % of a core. Two gateways
    get the same messages at the same time, so that what else the machine does slows both."""
    rig = Rig(tmp_path, mosquitto(settings="max_queued_messages 0"))
    kept = {"few": FEW, "many": many}
    gateways = {name: rig.gateway(name) for name in kept}
    try:
        for name, gateway in gateways.items():
            gateway.progress = lambda gateway=gateway: int(2 * gateway.cpu_s)  # type: ignore[misc]
            gateway.start_ready()
            assert rig.deploy(gateway, document(name))["accepted"]
            rig.publish(future(name, kept[name]), qos=0)
        for name, gateway in gateways.items():
            taken = gateway.wait(lambda s, n=kept[name]: rows(s) == n, "the future rows", 60.0)["checkpoint"]["commits"]
            gateway.wait(lambda s, of=taken: s["checkpoint"]["commits"] > of + 1, "a checkpoint of them", 60.0)
        before = {name: cpu_s(gateway) for name, gateway in gateways.items()}
        rig.publish(honest(*kept), 0, 2 * RATE)
        costs = {name: cpu_s(gateway) - before[name] for name, gateway in gateways.items()}
        for name, gateway in gateways.items():
            status = gateway.wait(lambda s, n=kept[name] + HONEST: rows(s) == n, "all messages", 60.0)
            assert status["flows"][0]["state_bytes"] > 100 * kept[name], "the rows are kept"
        print(f"{HONEST} messages: {costs['few']:.3f} s of CPU beside {FEW:,} future rows, "
              f"{costs['many']:.3f} s beside {many:,}")  # fmt: skip
        assert costs["many"] < 2.0 * costs["few"]
    finally:
        rig.close()


def rows(status: dict[str, Any]) -> int:
    """Rows that the window has taken."""
    return sum(o["rows_in"] for flow in status["flows"] for o in flow["operators"] if o["name"] == "window")
