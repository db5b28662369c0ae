"""The link between gateway and central side drops every few seconds, or for long: all lands exactly once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.flaky_link import FlakyLink
from tests.integration import truth
from tests.integration.rig import Rig
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.fixture
def link(rig: Rig) -> Iterator[FlakyLink]:
    made = FlakyLink(rig.broker.port)
    yield made
    made.close()


def assert_each_once(rig: Rig, packs: list[dict[str, Any]]) -> set[tuple[int, int]]:
    """Every window has exactly its rows; returns the (epoch, stream) that hold some."""
    expected = {key: row["n"] for key, row in truth.expected(packs).items()}
    assert rig.counts("city-air") == expected
    rows = [r for r in rig.table("landing/city-air") if r["window_start"] is not None]
    contributions = Counter((r["epoch"], r["stream"], r["sequence"], r["window_start"], r["source"]) for r in rows)
    assert set(contributions.values()) == {1}, "a contribution stands twice in the table"
    return {(r["epoch"], r["stream"]) for r in rows}


def landed_streams(rig: Rig) -> list[set[int]]:
    """The streams of each commit of the landing table, in order."""
    found = []
    for path in sorted((rig.tables / "landing" / "city-air" / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        found.append({int(a["txn"]["appId"].rsplit("/", 1)[1]) for a in actions if "txn" in a})
    return found


@pytest.mark.long
def test_over_a_link_that_drops_every_few_seconds_all_lands_exactly_once(rig: Rig, link: FlakyLink) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    packs = [p for n in range(10) for p in truth.shifted(truth.packs(), 120 * n)]
    gateway = rig.gateway(central={"port": link.port})
    rig.collector().start()
    gateway.start_ready()
    assert rig.deploy(gateway, truth.document(interval_s=0.1))["accepted"]
    link.flap(random.Random(seed), up_s=(0.5, 4.0), down_s=(0.1, 1.5))
    sent = rig.publish(truth.as_messages(packs), rate=500.0)
    gateway.wait(lambda s: s["ingest"]["messages"] >= sent, "all messages")
    wait_until(lambda: link.cuts >= 5, "five cuts, between which the back-off doubles", 150.0)
    link.steady()
    # nobody hears of a removal that is published while it is away
    gateway.wait_anew(lambda s: s["central"]["connected"], "the connection: its back-off may be a minute by now", 90.0)
    rig.finish(gateway, "city-air", sent)
    assert_each_once(rig, packs)


@pytest.mark.long
def test_after_a_long_outage_new_results_land_before_the_backlog_and_all_of_it_once(rig: Rig, link: FlakyLink) -> None:
    packs = [p for n in range(12) for p in truth.shifted(truth.packs(), 120 * n)]
    gateway = rig.gateway(central={"port": link.port}, uplink={"outage_s": 1, "backlog_rate": 5_000})
    rig.collector().start()
    gateway.start_ready()
    assert rig.deploy(gateway, truth.document(interval_s=0.1))["accepted"]
    rig.publish(truth.as_messages(packs[:1_000]), rate=1_000.0)
    link.down()
    rig.publish(truth.as_messages(packs[1_000:9_000]), rate=1_000.0)
    piled_up = gateway.wait(lambda s: not s["central"]["connected"], "the outage")["central"]["outbox_batches"]
    assert piled_up > 30
    link.up()
    gateway.wait(lambda s: s["central"]["connected"], "the connection")
    rig.publish(truth.as_messages(packs[9_000:]), rate=1_000.0)
    rig.finish(gateway, "city-air", len(packs))
    assert {stream for _, stream in assert_each_once(rig, packs)} == {0, 1}
    commits = landed_streams(rig)
    first_new = next(at for at, streams in enumerate(commits) if 1 in streams)
    assert any(0 in streams for streams in commits[first_new + 1 :]), "the backlog was still landing"
