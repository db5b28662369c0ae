"""A full outbox as the gateway meets it: a flow that keeps all waits, others go on; what is shed is said once."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from edgert.core.errors import StoreError
from edgert.store.outbox import quota
from edgert.store.outbox.quota import FULL, TOO_OLD
from gateway.checkpoint import outbox_room
from gateway.checkpoint.checkpointer import Checkpointer
from tests.gateway.full_outboxes import feed, fill, keeps_all
from tests.gateway.whole_gateway import Gateway, document
from tests.store.quota_world import results
from tests.waiting import in_loop, until


@in_loop
async def test_a_flow_that_keeps_all_is_not_acknowledged_until_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(keeps_all(), "mqtt")
    await gateway.flows.deploy(document("other"), "mqtt")
    run, other = gateway.flows.runs["f"], gateway.flows.runs["other"]
    fill(gateway)
    feed(gateway, 1, 1.0)
    assert await gateway.checkpoint()
    gateway.ingest.acknowledge()
    assert not gateway.ingest.inbox.owed, "state alone needs no room"
    for n in range(2, 6):
        feed(gateway, n, 1_000.0 * n)
        assert await gateway.checkpoint()
        assert other.progress.committed.index == n
        assert run.progress.committed.index == 1
        assert len(run.pending) == 1
    gateway.ingest.acknowledge()
    assert len(gateway.ingest.inbox.owed) == 4
    assert gateway.checkpointer.outbox_room.blocked == {"f"}
    assert gateway.checkpointer.in_vain(), "asking for a checkpoint would not help"
    said = [r.message for r in caplog.records if "keeps all its results" in r.message]
    assert len(said) == 1
    assert said[0].startswith("flow f: the outbox has ")
    gateway.database.quota_bytes = 1e9
    assert await gateway.checkpoint()
    assert await gateway.checkpoint(), "what came meanwhile"
    gateway.ingest.acknowledge()
    assert not gateway.ingest.inbox.owed
    assert not gateway.checkpointer.outbox_room.blocked
    assert not gateway.checkpointer.in_vain()
    assert sum("found room" in r.message for r in caplog.records) == 1
    await gateway.flows.remove("f")
    assert ("f", FULL) not in gateway.database.shed
    shed = sum(gateway.database.shed.values())
    await gateway.flows.remove("other")
    assert gateway.shipped() + shed == 10
    gateway.crash()


@in_loop
async def test_what_a_waiting_flow_took_comes_again_after_a_crash(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(keeps_all(), "mqtt")
    fill(gateway)
    for n in range(1, 4):
        feed(gateway, n, 1_000.0 * n)
        await gateway.checkpoint()
    assert gateway.ingest.inbox.due() == []
    gateway.crash()
    again = Gateway(tmp_path / "db")
    for n in range(1, 4):
        feed(again, n, 1_000.0 * n, dup=True)
    await again.flows.remove("f")
    assert again.shipped() == 3
    again.crash()


@pytest.mark.parametrize("change", ["replace", "remove"])
@in_loop
async def test_a_waiting_flow_can_be_replaced_and_removed(tmp_path: Path, change: str) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(keeps_all(), "mqtt")
    fill(gateway)
    for n in range(1, 4):
        feed(gateway, n, 1_000.0 * n)
        await gateway.checkpoint()
    assert gateway.checkpointer.outbox_room.blocked == {"f"}
    if change == "replace":
        await gateway.flows.deploy(keeps_all(topic="y/{source}"), "mqtt")
    else:
        await gateway.flows.remove("f")
    assert not gateway.checkpointer.outbox_room.blocked
    assert gateway.shipped() == 3, "the results at its end are written in any case"
    gateway.ingest.acknowledge()
    assert not gateway.ingest.inbox.owed
    gateway.crash()


@in_loop
async def test_another_flows_input_in_front_is_still_worth_a_checkpoint(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(keeps_all(topic="y/{source}"), "mqtt")
    await gateway.flows.deploy(document("other"), "mqtt")
    fill(gateway)
    feed(gateway, 1, 1.0)
    assert not gateway.checkpointer.in_vain()
    for n, time in ((2, 1.0), (3, 1_000.0)):
        feed(gateway, n, time, topic="y/a")
    await gateway.checkpoint()
    assert gateway.checkpointer.outbox_room.blocked == {"f"}
    assert gateway.checkpointer.in_vain()
    gateway.crash()


@in_loop
async def test_shedding_is_said_when_it_begins_and_when_it_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    gateway = Gateway(tmp_path / "db", monotonic=lambda: now)
    await gateway.flows.deploy(document(), "mqtt")
    gateway.database.quota_bytes = 2_000
    for n in range(1, 40):
        feed(gateway, n, 1_000.0 * n)
        assert await gateway.checkpoint()
    gateway.ingest.acknowledge()
    assert not gateway.ingest.inbox.owed, "sensors are never stopped"
    assert gateway.database.outbox_size.bytes <= 2_000
    shed = gateway.database.shed["f", FULL]
    assert shed > 20
    (said,) = [r.message for r in caplog.records if r.name.endswith("outbox_room")]
    assert said.startswith(f"flow f: results are dropped from now on ({FULL}): the outbox has ")
    assert said.endswith("of 2000 bytes")
    gateway.database.quota_bytes = 1e9
    for n in (50, 51):
        feed(gateway, n, 1_000.0 * n)
        now += outbox_room.CALM_S / 2
        assert await gateway.checkpoint()
    assert [r.message for r in caplog.records if r.name.endswith("outbox_room")][1:] == [
        f"flow f: no more results are dropped ({FULL}); {shed} rows were, and a gap says so"
    ]
    gateway.crash()


@in_loop
async def test_results_that_wait_too_long_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    gateway = Gateway(tmp_path / "db", greatest_age_s=100.0, monotonic=lambda: now)
    await gateway.flows.deploy(document(), "mqtt")
    for n in (1, 2):
        feed(gateway, n, 1_000.0 * n)
        await gateway.checkpoint()
    now = 90.0
    await gateway.checkpointer.shed_old()
    assert gateway.shipped() == 1
    now = 110.0
    with monkeypatch.context() as broken:

        def fail(_: float) -> None:
            raise StoreError("disk gone")

        broken.setattr(gateway.database, "shed_old", fail)
        assert not await gateway.checkpointer.shed_old(), "not at once again"
    assert "disk gone" in caplog.text
    await gateway.checkpointer.shed_old()
    assert gateway.shipped() == 0
    assert gateway.database.shed == {("f", TOO_OLD): 1}
    assert f"results are dropped from now on ({TOO_OLD})" in caplog.text
    gateway.crash()


@in_loop
async def test_however_many_results_are_too_old_none_of_them_waits_for_another_look(tmp_path: Path) -> None:
    now = 0.0
    gateway = Gateway(tmp_path / "db", monotonic=lambda: now)
    await gateway.flows.deploy(document(), "mqtt")
    for n in range(3 * quota.AT_ONCE + 1):
        gateway.database.commit([results("f", n)], {}, 1)
    now = 110.0
    gateway.database.commit([results("f", -1)], {}, 1)
    checkpointer = Checkpointer(gateway.flow_registry, gateway.host, gateway.ingest, lambda: None, greatest_age_s=100.0)
    running = asyncio.create_task(checkpointer.run())
    await until(lambda: gateway.database.shed[("f", TOO_OLD)] > 3 * quota.AT_ONCE, "all that is too old to go")
    assert gateway.database.outbox_size.rows == 1
    running.cancel()
    gateway.crash()
