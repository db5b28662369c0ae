"""Flows that change while checkpoints are made and messages come: no broker, but the real database, pool and inbox."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import EdgertError, StoreError
from edgert.mqtt.clients.transport import MqttClient
from edgert.mqtt.packets.packets import Publish
from edgert.mqtt.session.events import Subscribed
from edgert.mqtt.topics import covers
from edgert.operators.base.logic import Logic
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop


@in_loop
async def test_a_new_version_ships_what_the_old_one_held_and_takes_what_comes(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    assert await gateway.flows.deploy(document(), "mqtt") == 1
    assert await gateway.flows.deploy(document(), "mqtt") == 1, "the same document changes nothing"
    gateway.feed(1, 1.0)
    assert await gateway.flows.deploy(document(topic="+/{source}"), "mqtt") == 2
    assert gateway.shipped() == 1
    assert gateway.ingest.inbox.due() == []  # it was acknowledged when the old version ended
    gateway.feed(2, 2.0)
    assert await gateway.flows.remove("f")
    assert not await gateway.flows.remove("f")
    assert gateway.shipped() == 2
    gateway.crash()


@in_loop
async def test_a_new_version_right_after_a_restart_takes_the_redeliveries_that_the_old_one_waited_for(
    tmp_path: Path,
) -> None:
    """two flows; only `other` has committed the message, so the table knows it and `f` has a hole."""
    before = Gateway(tmp_path / "db")
    await before.flows.deploy(document(), "mqtt")
    await before.flows.deploy(document("other"), "mqtt")
    before.feed(1, 1.0)
    assert await before.checkpointer.checkpoint([before.flows.runs["other"]])
    before.crash()
    after = Gateway(tmp_path / "db")
    assert await after.flows.deploy(document(description="new"), "file") == 2
    after.feed(1, 1.0, dup=True)
    for name in ("f", "other"):
        await after.flows.remove(name)
    assert after.shipped() == 2, "once for each flow"
    after.crash()


@in_loop
async def test_a_flow_that_does_not_stop_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(tmp_path / "db")
    gateway.flows.retirement.hold_s = 0.05
    await gateway.flows.deploy(document(), "mqtt")
    entered, leave = threading.Event(), threading.Event()
    run = gateway.flows.runs["f"]
    process = run.stages["minute"].logic.process

    def block(*arguments: Any) -> Any:
        entered.set()
        assert leave.wait(60.0)
        return process(*arguments)

    monkeypatch.setattr(run.stages["minute"].logic, "process", block)
    gateway.ingest.feed([Publish("x/a", b'{"time": 1700000000}', 1, False, False, 1)])
    assert await asyncio.to_thread(entered.wait, 60.0)
    with pytest.raises(EdgertError, match="does not stop"):
        await gateway.flows.deploy(document(description="new"), "mqtt")
    with pytest.raises(EdgertError, match="does not stop"):
        await gateway.flows.remove("f")
    leave.set()
    assert gateway.flows.runs["f"] is run
    gateway.feed(2, 1.0)
    assert await gateway.checkpoint()
    assert gateway.flows.version("f") == 1
    await gateway.flows.remove("f")
    assert gateway.shipped() == 2
    gateway.crash()


@in_loop
async def test_a_compaction_that_fails_does_not_commit_rows_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    for name in ("f", "other"):
        await gateway.flows.deploy(document(name), "mqtt")
    for run in gateway.flows.runs.values():
        monkeypatch.setattr(type(run), "wants_compaction", lambda run: True)

    def full(*arguments: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(gateway.database, "compact_state", full)
    for packet_id, time in ((1, 1.0), (2, 30.0)):
        gateway.clock.advance(1.0)
        gateway.feed(packet_id, time)
    assert await gateway.checkpoint()
    assert await gateway.checkpoint()
    for name in ("f", "other"):
        await gateway.flows.remove(name)
    assert gateway.shipped() == 4
    gateway.crash()


@in_loop
async def test_a_commit_that_fails_acknowledges_nothing_and_is_made_good_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.feed(1, 1.0)

    def full(*arguments: object) -> None:
        raise StoreError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(gateway.database, "commit", full)
        assert not await gateway.checkpoint()
        assert (gateway.checkpointer.status.failures, gateway.checkpointer.status.error) == (1, "disk full")
        assert gateway.ingest.inbox.due() == []
        assert len(gateway.ingest.inbox.owed) == 1
    assert await gateway.checkpoint()
    assert len(gateway.ingest.inbox.owed) == 0
    gateway.crash()
    again = Gateway(tmp_path / "db")
    await again.flows.remove("f")
    assert again.shipped() == 1
    again.crash()


@in_loop
async def test_a_flow_that_was_drained_but_not_ended_is_in_no_later_checkpoint(tmp_path: Path) -> None:
    """SIGTERM between the two: the next start brings the old version back, with its windows open."""
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.feed(1, 1.0)
    assert await gateway.checkpoint()
    run = gateway.flows.runs["f"]
    assert gateway.pool.hold(run.all, 60.0)
    list(gateway.host.checkpoints.run_out(run))
    gateway.pool.release(run.all)
    assert await gateway.checkpoint()
    assert gateway.shipped() == 0
    gateway.crash()
    again = Gateway(tmp_path / "db")
    await again.flows.remove("f")
    assert again.shipped() == 1
    again.crash()


def test_logic_of_a_flow_is_asked_for_its_state_only_where_it_keeps_some() -> None:
    with pytest.raises(TypeError, match="keeps no state"):
        Logic().restore({})
    kept: Mapping[str, Any] | None = Logic().delta()
    assert kept is None


@in_loop
async def test_a_checkpoint_that_finds_nothing_to_write_ends_what_is_kept_for_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a flow without state, fed at QoS 0, would be fed all its input again when a slot dies."""
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    run = gateway.flows.runs["f"]
    assert await gateway.checkpoint()
    ended: list[Any] = []
    monkeypatch.setattr(gateway.host.checkpoints, "committed", ended.append)
    await gateway.checkpoint()
    assert ended == [run]
    gateway.crash()


@in_loop
async def test_a_new_version_that_fails_while_the_old_one_is_brought_to_its_end_is_said_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot finds that it cannot build it when it has taken over the input already."""
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.feed(1, 1.0)
    old = gateway.flows.runs["f"]
    begun: list[Any] = []
    begin, ending = gateway.host.begin, gateway.flows.retirement.ending

    def note(run: Any, *checkpoint: Any, **how: Any) -> None:
        begun.append(run)
        begin(run, *checkpoint, **how)

    async def meanwhile(*arguments: Any) -> Any:
        gateway.flows.fail(begun[0], "no such operator here")
        gateway.flows.fail(old, "its slots died")  # it needs them no more
        return await ending(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(gateway.host, "begin", note)
        patch.setattr(gateway.flows.retirement, "ending", meanwhile)
        with pytest.raises(EdgertError, match="version 2 of flow f took over and cannot go on: no such operator here"):
            await gateway.flows.deploy(document(topic="+/{source}"), "mqtt")
    assert gateway.flows.failed == {"f": "no such operator here"}
    assert gateway.flows.version("f") is None
    assert gateway.shipped() == 1, "the old version's windows"
    gateway.ingest.feed([Publish("x/a", b"{}", 1, False, False, 2)])
    assert gateway.ingest.inbox.due() == [], "a gap is to say that it is missing"
    await asyncio.gather(*gateway.flows.losses.telling.running)
    gateway.ingest.feed([Publish("x/a", b"{}", 1, False, False, 3)])
    assert gateway.ingest.inbox.due() == [(3, 1)], "nobody waits for it"
    assert await gateway.flows.deploy(document(description="newer"), "mqtt") == 3
    assert gateway.flows.failed == {}
    gateway.feed(3, 1.0)
    await gateway.flows.remove("f")
    assert gateway.shipped() == 2
    gateway.crash()


class AgreeingClient(MqttClient):
    """A client whose broker takes each subscription under token 7. It has no connection."""

    def __init__(self) -> None:
        self.has: set[str] = set()
        self.moments: list[set[str]] = []
        """What it had after each change."""

    def subscribe(self, subscriptions: Any) -> int:
        self.has.update(s.filter for s in subscriptions)
        self.moments.append(set(self.has))
        return 7

    def unsubscribe(self, filters: Any) -> int:
        self.has.difference_update(filters)
        self.moments.append(set(self.has))
        return 8


@in_loop
async def test_a_flow_is_deployed_when_the_broker_has_answered_to_its_subscription(tmp_path: Path) -> None:
    """Or what a sensor sends right after the answer might be lost."""
    gateway = Gateway(tmp_path / "db")
    ingest = gateway.ingest
    ingest.subscriber.open, ingest.subscriber.client = True, AgreeingClient()
    deploying = asyncio.ensure_future(gateway.flows.deploy(document(), "mqtt"))
    async with asyncio.timeout(60.0):
        while not ingest.subscriber.unanswered:  # noqa: ASYNC110 - nothing says when
            await asyncio.sleep(0)
    assert not deploying.done()
    ingest.subscriber.answered(Subscribed(7, (("x/+", 1),)))
    assert await asyncio.wait_for(deploying, 60.0) == 1
    gateway.crash()


@in_loop
async def test_a_subscription_that_is_refused_or_gets_a_lower_qos_is_an_error_until_it_gets_its_own_or_goes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = Gateway(tmp_path / "db")
    ingest = gateway.ingest
    ingest.subscriber.patience_s, ingest.subscriber.open, ingest.subscriber.client = 0.01, True, AgreeingClient()
    await gateway.flows.deploy(document(), "mqtt")
    for _ in range(2):  # at each connection
        ingest.subscriber.answered(Subscribed(7, (("x/+", 0),)))
    assert ingest.subscriber.grants.error == "subscription to x/+ has QoS 0 instead of 1"
    assert [r.getMessage() for r in caplog.records if "QoS" in r.msg or "grants" in r.msg] == [
        "the broker grants QoS 0 instead of 1 to the subscription to x/+"
    ]
    ingest.subscriber.answered(Subscribed(7, (("x/+", 0x87),)))
    assert ingest.subscriber.grants.error == "subscription to x/+ refused: not authorized (0x87)"
    ingest.subscriber.answered(Subscribed(7, (("x/+", 1),)))
    assert ingest.subscriber.grants.error == ""
    ingest.subscriber.answered(Subscribed(7, (("x/+", 0),)))
    assert await gateway.flows.remove("f")
    await ingest.subscriber.subscribe()
    assert ingest.subscriber.grants.error == ""
    gateway.crash()


@pytest.mark.parametrize("by_id", [False, True])
@in_loop
async def test_in_3_1_1_what_others_read_is_subscribed_at_every_moment(tmp_path: Path, by_id: bool) -> None:
    """There filters are merged, so that a flow's may change with another flow."""
    gateway = Gateway(tmp_path / "db")
    ingest, client = gateway.ingest, AgreeingClient()
    ingest.subscriber.patience_s, ingest.subscriber.open, ingest.subscriber.client = 0.01, True, client
    ingest.subscriber.by_id = by_id
    await gateway.flows.deploy(document("a", "", "x/a"), "mqtt")
    await gateway.flows.deploy(document("b", "", "x/{source}"), "mqtt")
    await gateway.flows.remove("b")
    await ingest.subscriber.subscribe()
    assert client.has - {ingest.drops.topic} == {"x/a"}
    assert all(any(covers(f, "x/a") for f in moment) for moment in client.moments)
    gateway.crash()


@in_loop
async def test_what_comes_while_a_flow_is_removed_is_acknowledged_when_that_is_written(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    tried, loop = asyncio.Event(), asyncio.get_running_loop()

    def full(*_: Any) -> None:
        loop.call_soon_threadsafe(tried.set)
        raise StoreError("disk full")

    gateway.database.remove_flow = full  # type: ignore[assignment, method-assign]
    removing = asyncio.create_task(gateway.flows.remove("f"))
    await tried.wait()
    gateway.ingest.feed([Publish("x/a", b'{"time": 1700000001}', 1, False, False, 1)])
    assert gateway.ingest.inbox.due() == []
    removing.cancel()
    await asyncio.gather(removing, return_exceptions=True)
    gateway.crash()
    gateway = Gateway(tmp_path / "db")
    gateway.feed(1, 1.0, dup=True)
    assert await gateway.flows.remove("f")
    assert (gateway.shipped(), len(gateway.ingest.inbox.owed)) == (1, 0)
    assert gateway.ingest.subscriptions.sources == []
    gateway.crash()


@in_loop
async def test_a_malformed_payload_is_in_the_log_though_the_flow_is_removed_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No tick comes in between: that may take a second."""
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.ingest.feed([Publish("x/a", b"no JSON", 1, False, False, 1)])
    assert await gateway.flows.remove("f")
    assert "flow f, in: malformed payload on 'x/a'" in caplog.text
    gateway.crash()
