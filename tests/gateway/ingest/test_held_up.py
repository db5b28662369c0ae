"""Input of QoS 0 while nothing of its flow can be committed: it is bounded, and what has no room is counted."""

from __future__ import annotations

from pathlib import Path

from edgert.core.errors import StoreError
from edgert.mqtt.packets.packets import Publish
from gateway.ingest.message_size import MESSAGE_BYTES
from tests.gateway.full_outboxes import feed as owed
from tests.gateway.full_outboxes import fill, keeps_all
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop

PAYLOAD = b'{"time": 1700000000.000000}'


def room_for_ten(gateway: Gateway) -> None:
    for run in gateway.flows.runs.values():
        run.progress.most_held_bytes = 10 * (len(PAYLOAD) + MESSAGE_BYTES)


def feed(gateway: Gateway, count: int, qos: int = 0) -> None:
    for number in range(1, count + 1):
        gateway.ingest.feed([Publish("x/a", PAYLOAD, qos, False, False, qos and number)])
    assert gateway.pool.wait_empty([i for run in gateway.flows.runs.values() for i in run.all], 60.0)


def no_room(gateway: Gateway, name: str = "f") -> int:
    run = gateway.flows.runs[name]
    return sum(n for (_, reason), n in run.drops().items() if reason == "no checkpoint, QoS 0")


def taken(gateway: Gateway, name: str = "f") -> int:
    run = gateway.flows.runs[name]
    return next(iter(run.stages.values())).rows_in


def full_disk(*given: object) -> None:
    raise StoreError("disk full")


@in_loop
async def test_a_full_disk_lets_in_so_much_of_qos_0_and_all_of_qos_1(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    room_for_ten(gateway)
    feed(gateway, 50)
    commit = gateway.database.commit
    gateway.database.commit = full_disk  # type: ignore[method-assign, assignment]
    assert not await gateway.checkpoint()
    feed(gateway, 15)
    assert not await gateway.checkpoint(), "that it is tried again makes no room"
    feed(gateway, 5)
    feed(gateway, 5, qos=1)
    assert (taken(gateway), no_room(gateway)) == (50 + 10 + 5, 10)
    gateway.database.commit = commit  # type: ignore[method-assign]
    assert await gateway.checkpoint()
    feed(gateway, 50)
    assert (taken(gateway), no_room(gateway)) == (65 + 50, 10)
    gateway.crash()


@in_loop
async def test_a_flow_that_waits_for_room_in_the_outbox_holds_up_no_other_ones_input(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(keeps_all(), "mqtt")
    await gateway.flows.deploy(document("other"), "mqtt")
    room_for_ten(gateway)
    fill(gateway)
    for number, time in enumerate((1.0, 2_000.0, 3_000.0), 1):
        owed(gateway, number, time)
        assert await gateway.checkpoint()
    assert gateway.checkpointer.outbox_room.blocked == {"f"}
    before = taken(gateway)
    feed(gateway, 30)
    assert (taken(gateway) - before, no_room(gateway)) == (10, 20)
    assert (taken(gateway, "other"), no_room(gateway, "other")) == (before + 30, 0)
    gateway.database.quota_bytes = 1e9
    assert await gateway.checkpoint()
    feed(gateway, 30)
    assert no_room(gateway) == 20
    gateway.crash()
