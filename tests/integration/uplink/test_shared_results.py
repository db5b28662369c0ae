"""A real gateway whose collector is killed: another takes its partition, and what is missing is sent again."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from edgert.central.tables.lease import claims
from edgert.core.results.results import PARTITIONS, partition_of
from tests.integration import truth
from tests.integration.rig import Rig
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


def holders(rig: Rig) -> dict[str, str]:
    """Partition → the id of the collector that has it."""
    now = time.time()
    living = [c for c in claims(str(rig.tables)) if c.name.startswith("partition") and c.expires > now]
    return {c.name: c.holder.partition(":")[0] for c in living}


def test_another_collector_takes_the_gateway_over_and_each_message_counts_once(rig: Rig) -> None:
    packs = truth.packs()
    collectors = {
        name: rig.collector(env={"EDGERT_COLLECTOR_ID": name, "EDGERT_COLLECTOR_LEASE_S": "12"}) for name in ("a", "b")
    }
    for collector in collectors.values():
        collector.start()
    gateway = rig.gateway()
    gateway.start_ready()
    wait_until(lambda: sorted(Counter(holders(rig).values()).values()) == [PARTITIONS // 2] * 2, "half for each", 90)
    assert rig.deploy(gateway, truth.document(interval_s=0.2))["accepted"]
    publisher = rig.publishing(truth.as_messages(packs), rate=200.0)
    wait_until((rig.tables / "landing" / "city-air").exists, "the first results", 90)
    mine = f"partition {partition_of(gateway.name)}"
    wait_until(lambda: mine in holders(rig), "a lease that has not run out", 90)
    first = holders(rig)[mine]
    collectors[first].kill()
    publisher.join()
    wait_until(lambda: holders(rig).get(mine) not in (None, first), "the other collector", 90)
    rig.finish(gateway, "city-air", len(packs))
    assert rig.counts("city-air") == {key: row["n"] for key, row in truth.expected(packs).items()}
    other = "b" if first == "a" else "a"
    wait_until(lambda: set(holders(rig).values()) == {other}, "the other collector to have all", 90)
