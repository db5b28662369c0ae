"""What flows have dropped stays counted when they are replaced or removed, or fail."""

from __future__ import annotations

import random
from pathlib import Path

from edgert.mqtt.packets.packets import Publish
from gateway.ledger.drop_counts import DropCounts, Drops
from tests.gateway.slots_walk import JOINED, Walk
from tests.gateway.whole_gateway import Gateway, document
from tests.runtime.worlds import CHAINED
from tests.waiting import in_loop

BAD = ("f", "in", "bad_payload")


def dropped(gateway: Gateway) -> Drops:
    return gateway.flows.dropped.all(gateway.flows.runs.values())


def feed_bad(gateway: Gateway, packet_id: int) -> None:
    gateway.ingest.feed([Publish("x/a", b"{", 1, False, False, packet_id)])
    assert gateway.pool.wait_empty([i for run in gateway.flows.runs.values() for i in run.all], 60.0)


@in_loop
async def test_a_new_version_counts_on_and_what_is_removed_stays_counted(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    for version in (1, 2, 3):
        feed_bad(gateway, version)
        assert dropped(gateway) == {BAD: version}
        await gateway.flows.deploy(document(description=f"{version + 1}"), "mqtt")
        assert dropped(gateway) == {BAD: version}
    await gateway.flows.remove("f")
    assert dropped(gateway) == {BAD: 3}
    await gateway.flows.deploy(document(), "mqtt")
    feed_bad(gateway, 4)
    assert dropped(gateway) == {BAD: 4}
    gateway.crash()


@in_loop
async def test_what_the_old_version_drops_while_it_is_brought_to_its_end_counts(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.pool.begin_hold(gateway.flows.runs["f"].all)
    gateway.ingest.feed([Publish("x/a", b"{", 1, False, False, 1)])
    assert dropped(gateway) == {}
    await gateway.flows.deploy(document(description="new"), "mqtt")
    assert dropped(gateway) == {BAD: 1}
    gateway.crash()


@in_loop
async def test_what_a_flow_that_fails_has_dropped_stays_counted(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    feed_bad(gateway, 1)
    gateway.flows.fail(gateway.flows.runs["f"], "its slots died")
    assert dropped(gateway) == {BAD: 1}
    await gateway.flows.deploy(document(description="new"), "mqtt")
    feed_bad(gateway, 2)
    assert dropped(gateway) == {BAD: 2}
    gateway.crash()


@in_loop
async def test_a_message_that_the_broker_refuses_when_its_version_has_ended_counts_once(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    (old,) = gateway.flows.runs["f"].all
    old.delivery.unsent[0] += 1
    await gateway.flows.deploy(document(description="2"), "mqtt")
    assert dropped(gateway) == {("f", "in", "not sent"): 1}
    old.delivery.unsent[0] += 2
    for description in ("3", "4"):
        assert dropped(gateway) == {("f", "in", "not sent"): 3}
        await gateway.flows.deploy(document(description=description), "mqtt")
    assert dropped(gateway) == {("f", "in", "not sent"): 3}
    gateway.crash()


@in_loop
async def test_what_a_flow_in_slots_drops_at_its_end_counts() -> None:
    """Reported or not, and in the daemon, where it is brought to its end."""
    walk = Walk(random.Random(1), CHAINED, "locality", 1, "full")
    counts = DropCounts(walk.slots)
    walk.slots.begin(walk.run)
    (process,) = walk.processes
    process.start()
    walk.draw = random.Random(2)
    walk.feed(bad=True)
    assert await walk.while_it_waits(lambda: walk.slots.checkpoints.halt(walk.run, walk.feeding, 60.0))
    for _ in range(3):
        walk.feed(bad=True)
    list(walk.slots.checkpoints.run_out(walk.run))
    counts.ends(walk.run)
    walk.slots.remove(walk.run)
    assert counts.all([]) == {BAD: 4}
    process.stop_now()


@in_loop
async def test_messages_of_the_end_of_a_flow_in_slots_are_those_of_its_own_instances() -> None:
    """What becomes of them is counted there."""
    walk = Walk(random.Random(1), JOINED, "locality", 1, "full")
    walk.slots.begin(walk.run)
    (process,) = walk.processes
    process.start()
    walk.draw = random.Random(2)
    assert await walk.while_it_waits(lambda: walk.slots.checkpoints.halt(walk.run, walk.feeding, 60.0))
    for _ in range(3):
        walk.feed()
    sent = [(instance, messages) for instance, messages in walk.slots.checkpoints.run_out(walk.run) if messages]
    assert sent
    assert all(any(instance is own for own in walk.run.all) for instance, _ in sent)
    process.stop_now()
