"""From a sensor's QoS 1 message to the fleet table, exactly once, whatever is killed on the way."""

from __future__ import annotations

import random
import threading

import pytest

from tests.integration import truth
from tests.integration.rig import Gateway, Rig
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.mark.long
def test_the_fleet_table_of_the_real_trace_equals_plain_python(rig: Rig) -> None:
    packs = truth.packs()
    gateway, collector = rig.gateway(), rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, truth.document(size_s=60.0))["accepted"]
    sent = rig.publish(truth.as_messages(packs))
    assert sent == len(packs) == 1000
    rig.finish(gateway, "city-air", sent)
    rig.run_fleet_job()
    truth.assert_equal(rig.table("fleet/city-air"), truth.expected(packs, 60.0))
    assert gateway.now()["drops"] == []
    assert gateway.terminate() == 0
    assert collector.terminate() == 0


def test_kill_9_of_gateway_and_collector_in_mid_stream_changes_nothing_in_the_table(rig: Rig) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    base = truth.packs()
    packs = [p for n in range(6) for p in truth.shifted(base, 120 * n)]
    gateway, collector = rig.gateway(), rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, truth.document(interval_s=0.2))["accepted"]
    publisher = rig.publishing(truth.as_messages(packs), rate=600.0)
    kills = {"gateway": 0, "collector": 0}
    while publisher.is_alive() or not all(kills.values()):
        # in the very middle of the work: some time after input flows, or while the landing table grows; by turns at
        # first, so that a slow machine, which comes to few kills, kills both
        if draw.random() < 0.6 if min(kills.values()) else not kills["gateway"]:
            _after_messages(gateway, draw.randint(1, 400), publisher)
            gateway.kill()
            gateway.start()
            kills["gateway"] += 1
        else:
            _after_a_commit(rig, publisher)
            collector.kill()
            collector.start()
            kills["collector"] += 1
    publisher.join()
    gateway.wait(lambda s: s["ingest"]["connected"], "the connection")
    gateway.wait(
        # killed at the very end it may have acknowledged everything before, and gets nothing more
        lambda s: (s["ingest"]["messages"] or s["uptime_s"] > 30) and not s["ingest"]["unacknowledged"],
        "the acknowledgements",
    )
    rig.finish(gateway, "city-air", 0)
    rig.run_fleet_job()
    truth.assert_equal(rig.table("fleet/city-air"), truth.expected(packs))


def _after_messages(gateway: Gateway, more: int, publisher: threading.Thread) -> None:
    before = gateway.wait(lambda s: s["ingest"]["connected"], "the connection")["ingest"]["messages"]
    gateway.wait(lambda s: s["ingest"]["messages"] > before + more or not publisher.is_alive(), "input")


def _after_a_commit(rig: Rig, publisher: threading.Thread) -> None:
    log = rig.tables / "landing" / "city-air" / "_delta_log"
    count = len(list(log.glob("*.json")))
    wait_until(lambda: not publisher.is_alive() or len(list(log.glob("*.json"))) > count, "a commit")


@pytest.mark.long
def test_windows_of_two_gateways_merge_into_one_row(rig: Rig) -> None:
    packs = truth.packs()
    gateways = [rig.gateway("g1"), rig.gateway("g2")]
    collector = rig.collector()
    collector.start()
    for n, gateway in enumerate(gateways):
        gateway.start_ready()
        document = truth.document(size_s=60.0, topic=f"half{n}/{{source}}/sense")
        assert rig.deploy(gateway, document)["accepted"]
    # each pack goes to one of the two, so that most windows have parts from both
    for n in (0, 1):
        half = [p for at, p in enumerate(packs * 2) if at % 2 == n]
        rig.publish([(t.replace("city", f"half{n}"), payload) for t, payload in truth.as_messages(half)])
    for gateway in gateways:
        rig.finish(gateway, "city-air", 1000)
    rig.run_fleet_job()
    rows = rig.table("fleet/city-air")
    truth.assert_equal(rows, truth.expected(packs * 2, 60.0))
    assert {r["gateways"] for r in rows} >= {2}
