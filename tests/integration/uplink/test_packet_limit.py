"""A central broker with a small limit on packets: results go there in pieces, all of them land, and a row that no
collector takes is a gap that says so."""

from __future__ import annotations

import json
import random
import string
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgert.core.toml import to_toml
from tests.brokers import Broker
from tests.integration.harms import dropped
from tests.integration.rig import FLEET, Gateway, Message, Rig
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

LIMIT = 2_000
NAMES, LONG = 40, 5_000
"""Names of so many characters: each row alone is above the limit, and a batch of them far above."""
TOO_LONG = 9 << 20


def document() -> dict[str, Any]:
    window = {
        "type": "tumbling_window", "input": "by-name", "size_s": 1.0, "late": "ship", "aggregates": {"n": "count()"}
    }  # fmt: skip
    return {
        "name": "f",
        "checkpoint": {"interval_s": 0.5},
        "operators": {
            "readings": {"type": "mqtt_source", "topic": "room/{source}"},
            "by-name": {"type": "key_by", "input": "readings", "keys": ["name"]},
            "window": window,
            "central": {"type": "ship", "input": "window"},
        },
    }


@pytest.mark.parametrize("protocol", ["5", pytest.param("3.1.1", marks=pytest.mark.long)])
def test_results_above_the_limit_land_in_pieces_and_a_row_that_no_collector_takes_is_said(
    protocol: str, tmp_path: Path, mosquitto: Callable[..., Broker]
) -> None:
    """In 3.1.1 no broker says what its limit is: the gateway finds out."""
    sensors = mosquitto()
    central = mosquitto(settings=f"max_packet_size {LIMIT}\nmax_queued_messages 0")
    rig = Rig(tmp_path, central)
    settings: dict[str, dict[str, Any]] = {
        "sensors": {"max_packet_bytes": 2 * TOO_LONG}, "central": {"protocol": protocol}
    }  # fmt: skip
    gateway = Gateway(tmp_path, "g1", sensors.port, central.port, settings)
    rig.processes.append(gateway)
    gateway.progress = lambda: int(2 * gateway.cpu_s)
    draw, now = random.Random(28), time.time()
    names = ["".join(draw.choices(string.ascii_letters, k=LONG)) for _ in range(NAMES)]
    rows = [{"time": now + n % 2, "name": name} for name in names for n in range(4)]
    rows.insert(0, {"time": now - 60, "name": "x" * TOO_LONG})
    messages: list[Message] = [("room/hall", json.dumps(row).encode()) for row in rows]
    try:
        collector = rig.collector()
        collector.start()
        gateway.start_ready()
        assert rig.deploy(gateway, document())["accepted"]
        rig.broker = sensors
        rig.publish(messages)
        gateway.wait(lambda s: s["ingest"]["messages"] >= len(rows), "all messages")
        gateway.wait(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")
        rig.broker = central
        assert rig.tell(gateway, "flows/f", b"", "flows/f/state")["accepted"]
        status = gateway.wait_anew(lambda s: not s["central"]["outbox_batches"], "an empty outbox", 120.0)
        landed: Counter[str] = Counter()
        for row in rig.landed("f"):
            landed[row["name"]] += row["n"]
        assert landed == dict.fromkeys(names, 4)
        (gap,) = rig.table("gaps")
        assert (gap["rows"], gap["reason"]) == (1, "row too large")
        assert f"{TOO_LONG:,} bytes" in gap["text"]
        assert dropped(status, "row too large") == 1
        wait_until(lambda: "flow f: results are dropped from now on (row too large)" in gateway.text(), "the log")
    finally:
        rig.close()


def test_a_birth_above_an_unstated_limit_is_published_without_the_names_of_flows_and_the_connection_stands(
    tmp_path: Path, mosquitto: Callable[..., Broker]
) -> None:
    """It was published anew at each connect, and the broker hung up each time, for ever."""
    rig = Rig(tmp_path, mosquitto(settings="max_packet_size 300"))
    files = [tmp_path / f"{n}.toml" for n in range(10)]
    source = {"type": "mqtt_source", "topic": "room/{source}", "qos": 0}
    out = {"type": "publish", "input": "in", "topic": "out/{source}"}
    for n, file in enumerate(files):
        file.write_text(to_toml({"name": f"flow-of-a-long-name-{n:020}", "operators": {"in": source, "out": out}}))
    gateway = rig.gateway(central={"protocol": "3.1.1"}, flows={"files": list(map(str, files))})
    births: list[dict[str, Any]] = []
    watcher = rig.client()
    watcher.on_message = lambda _client, _data, message: births.append(json.loads(message.payload))
    watcher.subscribe(f"edgert/v1/{FLEET}/g1/status", 1)
    try:
        gateway.start_ready()
        wait_until(lambda: births and births[-1]["state"] == "online", "a birth")
        assert births[-1].keys() == {"state", "version"}
        wait_until(lambda: "published without the names of its flows" in gateway.text(), "the log")
        status = gateway.wait_anew(lambda s: s["central"]["connected"], "the connection")
        assert 1 <= status["central"]["hung_up"] <= 3  # one for each connection until then
    finally:
        watcher.disconnect()
        watcher.loop_stop()
        rig.close()
