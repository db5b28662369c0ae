"""Metrics and status of a gateway with as many operators, copies, flows and devices as it takes: bounded, what has no
series of its own is in the sum of the others, and how many these are is said."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edgert.flow.document import to_toml
from edgert.runtime.metrics.bounded import MOST_SERIES, OTHERS
from tests.brokers import Broker
from tests.integration.rig import Gateway, Message, Rig

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
COPIES, WINDOWS = 64, 6
FLOWS, DEVICES = 130, 100
MOST_METRICS_BYTES: Final = 1_500_000
MOST_STATUS_BYTES: Final = 1_000_000


def copies(windows: int) -> dict[str, Any]:
    """Operators of 64 copies, each with another key: each copy feeds all those of the next."""
    operators: dict[str, Any] = {"in": {"type": "mqtt_source", "topic": "room/{source}", "qos": 0}}
    before, key = "in", "source"
    for n in range(windows):
        window = {"type": "tumbling_window", "size_s": 1, "aggregates": {f"n{n}": "count()"}, "instances": COPIES}
        operators[f"by{n}"] = {"type": "key_by", "input": before, "keys": [key]}
        operators[f"w{n}"] = {"input": f"by{n}", **window}
        before, key = f"w{n}", f"n{n}"
    return {"name": "copies", "operators": {**operators, "out": {"type": "ship", "input": before}}}


def small(number: int) -> dict[str, Any]:
    """Four operators, none of which is fused with another."""
    operators: dict[str, Any] = {"in": {"type": "mqtt_source", "topic": "room/{source}", "qos": 0}}
    for n in range(3):
        operators[f"o{n}"] = {"type": "publish", "input": "in", "topic": f"out/{n}/{{source}}", "qos": 0}
    return {"name": f"small{number}", "operators": operators}


def messages() -> Iterator[Message]:
    for n in range(DEVICES):
        yield f"room/device{n}", json.dumps({"time": time.time(), "v": n}).encode()


def read(gateway: Gateway, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.port}{path}", timeout=60) as answer:
        return bytes(answer.read())


def test_metrics_of_many_copies_flows_and_devices_are_bounded_and_say_what_is_summed(
    tmp_path: Path, mosquitto: Callable[..., Broker]
) -> None:
    rig = Rig(tmp_path, mosquitto(settings="max_queued_messages 0"))
    files = [tmp_path / f"small{number}.toml" for number in range(FLOWS)]
    for number, file in enumerate(files):
        file.write_text(to_toml(small(number)))
    gateway = rig.gateway(flows={"files": list(map(str, files))})
    gateway.progress = lambda: int(2 * gateway.cpu_s)
    try:
        gateway.start()
        gateway.wait(lambda s: len(s["flows"]) == FLOWS, "all flows", 60.0)
        gateway.wait(lambda s: s["ingest"]["subscribed"], "the subscriptions", 60.0)
        refused = rig.deploy(gateway, copies(100))
        assert "instances of all operators together" in refused["errors"][0]["expected"]
        assert rig.deploy(gateway, copies(WINDOWS))["accepted"]
        rig.publish(messages(), qos=0)
        done = DEVICES * (FLOWS + 1)
        status = gateway.wait(lambda s: rows(s) >= done, "all rows", 120.0)
        assert len(json.dumps(status)) < MOST_STATUS_BYTES
        (shown,) = (f for f in status["flows"] if f["name"] == "copies")
        assert len([o for o in shown["operators"] if o["name"].startswith("w")]) == WINDOWS
        text = read(gateway, "/metrics")
        print(f"status {len(json.dumps(status)):,} bytes, metrics {len(text):,} bytes")
        assert len(text) < MOST_METRICS_BYTES
        families = {family.name: family for family in text_string_to_metric_families(text.decode())}
        taken = [s for s in families["edgert_operator_rows_in"].samples if s.name.endswith("_total")]
        assert len(taken) == MOST_SERIES + 1
        assert [s.value > 0 for s in taken if s.labels["flow"] == OTHERS] == [True]
        operators = [o for f in status["flows"] for o in f["operators"]]
        assert sum(s.value for s in taken) >= sum(o["rows_in"] for o in operators)
        (summed,) = families["edgert_summed_series"].samples
        assert summed.value >= len(operators) - MOST_SERIES
        assert "device1" not in text.decode(), "no device has a series"
    finally:
        rig.close()


def rows(status: dict[str, Any]) -> int:
    """Rows that all sources have taken."""
    return sum(o["rows_in"] for f in status["flows"] for o in f["operators"] if o["type"].endswith("source"))
