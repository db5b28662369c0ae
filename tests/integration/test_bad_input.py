"""What is malformed is counted and costs nothing else; what is away or full is waited for."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import Broker
from tests.integration import truth
from tests.integration.rig import Message, Rig
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

GOOD = b'[{"bn":"a","bt":1700000000,"n":"temperature","v":20.5}]'
BAD_PAYLOADS = {
    "broken JSON": b'{"e":[{"n":"temperature","v":',
    "not SenML": b'"just a text"',
    "wrong types": b'[{"n":5,"v":1}]',
    "a time that is none": b'[{"n":"temperature","v":1,"t":"noon"}]',
    "bytes": bytes(range(256)),
    "nothing": b"",
}
BAD_VALUES = {
    "NaN": b'{"e":[{"n":"temperature","v":NaN},{"n":"dust","v":"1"}],"bt":1700000001000}',
    "infinite": b'{"e":[{"n":"temperature","v":"-Infinity"},{"n":"dust","v":"1"}],"bt":1700000001000}',
    "a word": b'{"e":[{"n":"temperature","v":"warm"},{"n":"dust","v":"1"}],"bt":1700000001000}',
}


def _reason_counts(status: dict[str, Any]) -> dict[str, int]:
    return {d["reason"]: d["rows"] for d in status["drops"]}


def test_bad_payloads_are_counted_dead_lettered_and_cost_nothing_else(rig: Rig) -> None:
    gateway, collector = rig.gateway(), rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, truth.document(dead_letter="lost/letters"))["accepted"]
    letters: list[bytes] = []
    client = rig.client()
    client.on_message = lambda _c, _d, message: letters.append(bytes(message.payload))
    rig.subscribe(client, "lost/letters")
    huge = b"[" + b" " * 10_000_000 + b"]"
    messages: list[Message] = []
    for payload in [*BAD_PAYLOADS.values(), *BAD_VALUES.values(), huge]:
        messages += [("city/a/sense", GOOD), ("city/a/sense", payload)]
    messages += [("city/a/sense", GOOD), ("elsewhere/entirely", GOOD), ("city/a/b/sense", GOOD)]
    rig.publish(messages)
    bad = len(BAD_PAYLOADS) + len(BAD_VALUES)
    good = bad + 2
    status = gateway.wait(
        lambda s: (
            s["ingest"]["messages"] >= good + bad  # the huge one counts in none of them
            and not s["ingest"]["unacknowledged"]
            and "larger than max_packet_bytes" in _reason_counts(s)
        ),
        "all messages acknowledged",
    )
    reasons = _reason_counts(status)
    assert reasons["bad_payload"] == len(BAD_PAYLOADS)
    assert reasons["bad_value (values)"] == len(BAD_VALUES)
    assert reasons["larger than max_packet_bytes"] == 1
    wait_until(lambda: len(letters) >= len(BAD_PAYLOADS), "the dead letters")
    assert sorted(letters) == sorted(BAD_PAYLOADS.values())
    client.disconnect()
    client.loop_stop()
    assert rig.tell(gateway, "flows/city-air", b"", "flows/city-air/state")["accepted"]
    rig.drained(gateway)
    assert rig.counts("city-air") == {(1_700_000_000.0, "a"): good}
    dropped: Counter[str] = Counter()
    for row in rig.table("drops"):
        dropped[row["reason"]] += row["count"]
    assert dropped == {reason: reasons[reason] for reason in ("bad_payload", "bad_value (values)")}
    wait_until(lambda: "malformed payload on 'city/a/sense'" in gateway.text(), "the log")
    assert gateway.terminate() == 0


def test_a_gateway_that_stops_says_what_it_dropped_since_it_said_so_last(rig: Rig) -> None:
    gateway, collector = rig.gateway(), rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, truth.document())["accepted"]

    def drops(count: int) -> None:
        rig.publish([("city/a/sense", b"")])
        gateway.wait(lambda s: _reason_counts(s).get("bad_payload") == count, "the count")
        gateway.wait(lambda s: not s["ingest"]["unacknowledged"], "a checkpoint")

    drops(1)
    drops(2)
    assert gateway.terminate() == 0
    gateway.start_ready()
    rig.drained(gateway)
    assert [(row["reason"], row["count"]) for row in rig.table("drops")] == [("bad_payload", 1)] * 2
    assert gateway.terminate() == 0


def test_a_document_with_five_errors_is_refused_with_five_and_the_old_version_runs_on(rig: Rig) -> None:
    gateway = rig.gateway()
    gateway.start_ready()
    assert rig.deploy(gateway, truth.document())["version"] == 1
    broken = truth.document()
    operators = broken["operators"]
    operators["readings"]["codec"] = "xml"
    operators["valid"]["where"] = "temperature >"
    operators["window"]["size_s"] = -1
    operators["window"]["aggregates"]["n"] = "median(temperature)"
    broken["checkpoint"] = {"interval_s": 0}
    answer = rig.deploy(gateway, broken)
    assert not answer["accepted"]
    assert answer["running_version"] == 1
    assert sorted(e["path"] for e in answer["errors"]) == [
        "checkpoint.interval_s",
        "operators.readings.codec",
        "operators.valid.where",
        "operators.window.aggregates.n",
        "operators.window.size_s",
    ]
    assert all(e["expected"] and e["got"] for e in answer["errors"])
    garbage = rig.deploy(gateway, "name = [[[")
    assert not garbage["accepted"]
    assert rig.tell(gateway, "config", b"[web]\nport = 1\n", "config/state")["accepted"] is False
    accepted = rig.tell(gateway, "config", b"[pool]\nconsumption_rows = 10\n", "config/state")
    assert accepted["accepted"]
    assert accepted["applied"] == ["pool.consumption_rows"]
    assert gateway.terminate() == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not shutil.which("mount"):
        pytest.skip("not installed: mount")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {made.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def _fill(path: Path) -> None:
    """Writes until the disk is full."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(descriptor, bytes(4096)):
            pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    finally:
        os.close(descriptor)


@pytest.mark.root
def test_a_full_disk_acknowledges_nothing_and_loses_nothing(rig: Rig, small_disk: Path) -> None:
    """The collector comes later: what it takes makes room in the database, so that commits go on."""
    base = truth.packs()
    packs = [pack for n in range(4) for pack in truth.shifted(base, 120 * n)]
    gateway, collector = rig.gateway(gateway={"data_dir": str(small_disk)}), rig.collector()
    gateway.start_ready()
    assert rig.deploy(gateway, truth.document(interval_s=0.2))["accepted"]
    ballast = small_disk / "ballast"
    _fill(ballast)
    rig.publish(truth.as_messages(packs))
    status = gateway.wait(lambda s: s["checkpoint"]["failures"] >= 2, "failing checkpoints")
    assert "full" in status["checkpoint"]["error"]
    assert status["ingest"]["unacknowledged"]
    ballast.unlink()
    collector.start()
    gateway.wait(lambda s: not s["ingest"]["unacknowledged"], "acknowledgements once there is room")
    rig.finish(gateway, "city-air", len(packs))
    want = {key: row["n"] for key, row in truth.expected(packs).items()}
    assert rig.counts("city-air") == want
    assert gateway.terminate() == 0


def test_a_broker_that_is_away_at_start_and_goes_away_later_costs_nothing(rig: Rig) -> None:
    packs = truth.packs()
    rig.broker.stop()
    gateway, collector = rig.gateway(), rig.collector()
    collector.start()
    gateway.start()
    status = gateway.wait(lambda s: s["ingest"]["error"], "an error that says so")
    assert "cannot connect" in status["ingest"]["error"]
    assert not status["ingest"]["connected"]
    rig.broker.start()
    gateway.wait(lambda s: s["ingest"]["connected"] and s["central"]["connected"], "the connections")
    assert rig.deploy(gateway, truth.document())["accepted"]
    gateway.wait(lambda s: s["flows"], "the flow")
    rig.publish(truth.as_messages(packs[:500]))
    rig.broker.restart()
    gateway.wait(lambda s: s["ingest"]["reconnects"] and s["ingest"]["connected"], "the reconnect")
    rig.publish(truth.as_messages(packs[500:]))
    gateway.wait(lambda s: s["central"]["connected"], "the central connection", 90.0)
    rig.finish(gateway, "city-air", len(packs))
    assert rig.counts("city-air") == {key: row["n"] for key, row in truth.expected(packs).items()}
    assert gateway.terminate() == 0
    assert collector.terminate() == 0


def test_the_small_window_of_mqtt_311_is_followed_by_checkpoints(
    tmp_path: Path, mosquitto: Callable[..., Broker]
) -> None:
    rig = Rig(tmp_path, mosquitto(settings="max_queued_messages 0"))  # 20 in flight: Mosquitto's default
    try:
        packs = truth.packs()
        gateway, collector = rig.gateway(sensors={"protocol": "3.1.1"}), rig.collector()
        collector.start()
        gateway.start_ready()
        assert rig.deploy(gateway, truth.document(interval_s=60.0))["accepted"]
        rig.publish(truth.as_messages(packs))
        status = gateway.wait(lambda s: s["ingest"]["messages"] >= 990, "the messages")
        # nothing but the window can have asked for them (the interval is a minute); without them all would stand still
        # after 20 messages. Mosquitto sends up to a full window per PUBACK that it gets, so there are few.
        assert status["checkpoint"]["commits"] >= 1
        assert status["ingest"]["window_checkpoints"] >= 1
        assert rig.tell(gateway, "flows/city-air", b"", "flows/city-air/state")["accepted"]
        rig.drained(gateway)
        assert rig.counts("city-air") == {key: row["n"] for key, row in truth.expected(packs).items()}
    finally:
        rig.close()


def test_results_of_a_replaced_and_a_removed_flow_all_arrive(rig: Rig) -> None:
    packs = truth.packs()
    gateway, collector = rig.gateway(), rig.collector()
    collector.start()
    gateway.start_ready()
    first = truth.document(size_s=3600.0)
    assert rig.deploy(gateway, first)["version"] == 1
    publisher = rig.publishing(truth.as_messages(packs[:700]), rate=400.0)
    gateway.wait(lambda s: s["ingest"]["messages"] > 200, "input")
    second = json.loads(json.dumps(first))
    second["operators"]["window"]["aggregates"]["humid"] = "mean(humidity)"
    assert rig.deploy(gateway, second)["version"] == 2
    gateway.wait(lambda s: s["ingest"]["messages"] > 500, "more input")
    assert rig.deploy(gateway, second)["version"] == 2  # the same again changes nothing
    publisher.join()
    rig.publish(truth.as_messages(packs[700:]))  # for version 2, however late it came
    rig.finish(gateway, "city-air", len(packs))
    assert rig.counts("city-air") == {key: row["n"] for key, row in truth.expected(packs, 3600.0).items()}
    assert {r["flow_version"] for r in rig.table("landing/city-air")} == {1, 2}
    assert rig.deploy(gateway, first)["version"] == 3
    assert gateway.terminate() == 0


def test_a_row_that_gives_a_topic_at_which_the_broker_would_hang_up_costs_no_other(rig: Rig) -> None:
    """Mosquitto ends the connection at a control character in a topic; the same packet would come first again."""
    gateway = rig.gateway()
    gateway.start_ready()
    document = {
        "name": "states",
        "checkpoint": {"interval_s": 0.5},
        "operators": {
            "in": {"type": "mqtt_source", "topic": "lines/{source}"},
            "out": {"type": "publish", "input": "in", "topic": "out/{name}/state"},
        },
    }
    assert rig.deploy(gateway, document)["accepted"]
    got: list[str] = []
    client = rig.client()
    client.on_message = lambda _c, _d, message: got.append(message.topic)
    rig.subscribe(client, "out/#")
    names = ["line 1", "line 1\t", "line\u0085", "line\ufffe", "line 2"]
    rig.publish([("lines/a", json.dumps({"name": name, "v": 2}).encode()) for name in names])
    wait_until(lambda: len(got) >= 2, "what can be published")
    status = gateway.wait(lambda s: s["drops"], "the drops")
    assert got == ["out/line 1/state", "out/line 2/state"]
    assert sum(_reason_counts(status).values()) == 3
    assert status["ingest"]["reconnects"] == 0
    client.disconnect()
    client.loop_stop()
