"""When the gateway stops reading, and that it goes on; what a failing disk or operator costs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import StoreError
from edgert.flow.document import from_plain
from edgert.mqtt.packets.packets import Publish, Publishes
from edgert.operators.registry import REGISTRY
from gateway.ingest.read_limits import UNCOMMITTED_BYTES
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop


def fill(gateway: Gateway) -> int:
    """Feeds QoS 1 messages up to the bound on uncommitted input; how many they were."""
    payload = b'{"time": 1700000000, "x": "' + b"y" * 1000 + b'"}'
    count = UNCOMMITTED_BYTES // len(payload) + 1
    for first in range(1, count + 1, 100):
        gateway.ingest.feed(
            [Publish("x/a", payload, 1, False, False, n) for n in range(first, min(first + 100, count + 1))]
        )
    gateway.ingest.read_limits.check()
    return count


def read_until_the_bound(gateway: Gateway, topic: str) -> int:
    """Feeds messages of QoS 1 with no payload to speak of; how many it took until reading stopped, or 1,000."""
    for n in range(1, 1_001):
        gateway.ingest.feed([Publish(topic, b'{"time": 1700000000}', 1, False, False, n)])
        gateway.ingest.read_limits.check()
        if not reads(gateway):
            return n
    return 1_000


def reads(gateway: Gateway) -> bool:
    """Whether it takes what its broker sends."""
    return not gateway.ingest.client._paused


@in_loop
async def test_at_the_bound_nothing_more_is_read_and_a_commit_sets_it_going_again(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    assert gateway.ingest.read_limits.paused_s == 0.0
    fill(gateway)
    assert not reads(gateway)
    gateway.clock.advance(7.0)
    gateway.ingest.read_limits.regulate()
    assert gateway.ingest.read_limits.paused_s == 7.0
    assert await gateway.checkpoint()
    assert reads(gateway)
    assert gateway.ingest.read_limits.paused_s == 0.0
    gateway.crash()


@in_loop
async def test_long_topics_stop_the_reading_too(tmp_path: Path) -> None:
    """With an outbox that is full nothing is committed."""
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    run = gateway.flows.runs["f"]
    assert gateway.pool.hold(run.all, 60.0)
    topic = "x/" + "a" * 60_000
    count = read_until_the_bound(gateway, topic)
    assert UNCOMMITTED_BYTES // len(topic) <= count + 1 <= UNCOMMITTED_BYTES // len(topic) + 2
    assert run.stages["in"].instance.queue.size >= UNCOMMITTED_BYTES
    gateway.pool.release(run.all)
    gateway.crash()


@pytest.mark.parametrize("change", ["replace", "remove", "disconnect"])
@in_loop
async def test_whatever_frees_the_input_sets_reading_going_again(tmp_path: Path, change: str) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    fill(gateway)
    assert not reads(gateway)
    if change == "replace":
        await gateway.flows.deploy(document(description="new"), "mqtt")
    elif change == "remove":
        await gateway.flows.remove("f")
    else:
        gateway.ingest.disconnected("the broker went away")
    assert reads(gateway)
    gateway.crash()


@pytest.mark.parametrize("overload", ["shed-oldest", "shed-newest", "sample"])
@pytest.mark.parametrize("flood_first", [True, False])
@in_loop
async def test_input_that_an_acknowledgement_is_owed_for_is_never_shed_before_reading_stops(
    tmp_path: Path, overload: str, flood_first: bool
) -> None:
    """Small messages: what they cost beside their payload counts for the bound as it does for the queue. A flood of QoS
    0 takes none of their room."""
    gateway = Gateway(tmp_path / "db")
    plain = copy.deepcopy(document().document)
    plain["operators"]["in"]["overload"] = overload
    await gateway.flows.deploy(from_plain(plain, REGISTRY), "mqtt")
    run = gateway.flows.runs["f"]
    assert gateway.pool.hold(run.all, 60.0)
    flood: Publishes = [Publish("x/a", b'{"time": 1700000000, "x": "' + b"y" * 1000 + b'"}')] * 1_000
    floods = 20 if flood_first else 0
    for _ in range(floods):
        gateway.ingest.feed(flood)
    packet_id = 0
    while reads(gateway):
        read: Publishes = [
            Publish("x/a", b'{"time": 1700000000}', 1, False, False, packet_id + n) for n in range(1, 101)
        ]
        gateway.ingest.feed(read)
        gateway.ingest.read_limits.check()
        packet_id += 100
    for _ in range(20 - floods):
        gateway.ingest.feed(flood)
    queue = run.stages["in"].instance.queue
    assert sum(len(e.batch) for e in queue.entries if e.batch.owed) == packet_id
    assert queue.size <= 3 * UNCOMMITTED_BYTES + 2_000_000
    assert sum(len(e.batch) for e in queue.entries) == packet_id + 20_000 - run.stages["in"].instance.delivery.shed
    gateway.pool.release(run.all)
    gateway.crash()


@in_loop
async def test_retries_of_a_commit_keep_one_capture_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    run = gateway.flows.runs["f"]
    with monkeypatch.context() as full:

        def fail(*_: Any) -> None:
            raise StoreError("full")

        full.setattr(gateway.database, "commit", fail)
        for n in range(1, 6):
            gateway.feed(n, float(n))
            assert not await gateway.checkpoint()
            assert len(run.pending) == 1
    assert await gateway.checkpoint()
    assert await gateway.checkpoint(), "what came meanwhile"
    gateway.ingest.acknowledge()
    assert not gateway.ingest.inbox.owed
    gateway.crash()
    again = Gateway(tmp_path / "db")
    await again.flows.remove("f")
    assert again.shipped() == 5
    again.crash()


@in_loop
async def test_an_operator_that_cannot_tell_its_state_holds_up_its_own_flow_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    await gateway.flows.deploy(document("other"), "mqtt")
    run, other = gateway.flows.runs["f"], gateway.flows.runs["other"]
    gateway.feed(1, 1.0)
    with monkeypatch.context() as broken:

        def fail() -> Any:
            raise RuntimeError("no state today")

        broken.setattr(run.stages["minute"].logic, "delta", fail)
        await gateway.checkpoint()
        assert other.progress.committed.index == 1
        assert run.progress.committed.index == 0
        assert "no state today" in gateway.checkpointer.status.error
    assert await gateway.checkpoint()
    assert run.progress.committed.index == 1
    gateway.crash()
    again = Gateway(tmp_path / "db")
    for name in ("f", "other"):
        await again.flows.remove(name)
    assert again.shipped() == 2, "the source's part, taken at the failed pause, was not lost"
    again.crash()
