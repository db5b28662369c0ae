"""What a flow lacks that could not go on is said; one that could soon is not given up."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from edgert.core.errors import DamagedError, EdgertError, StoreError
from edgert.mqtt.packets.packets import Publish
from edgert.store.database import Database
from tests.gateway.daemons import daemon, ends
from tests.gateway.whole_gateway import Gateway, document
from tests.gateway.worlds import gaps, rot, with_messages
from tests.waiting import in_loop


@in_loop
async def test_a_gateway_that_cannot_read_a_flow_takes_nothing_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "db"
    await with_messages(path)

    def unreadable(self: Database, flow: str) -> bytes:
        raise StoreError("the database could not be read: disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "queue", unreadable)
        with pytest.raises(StoreError, match="disk I/O error"):
            Gateway(path)
    gateway = await _again(path)
    assert sorted(gateway.flows.runs) == ["f", "other"]
    gateway.crash()


@in_loop
async def test_a_fallback_that_cannot_be_written_lets_nothing_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "db"
    await with_messages(path)
    rot(path, "state")

    def full(self: Database, *_: Any) -> None:
        raise StoreError("the database could not be written: disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "fall_back", full)
        with pytest.raises(EdgertError, match="so the gateway does not start"):
            Gateway(path)
    gateway = await _again(path)
    assert "messages up to number 4" in gateway.flows.gaps["f"]
    gateway.crash()


async def _again(path: Path) -> Gateway:
    """A start after one that was given up within this process, whose lock is still held."""
    import gc

    gc.collect()
    return Gateway(path)


@pytest.mark.parametrize("damage", ["document", "opening"])
@in_loop
async def test_a_flow_that_is_not_started_says_so_in_the_tables_and_can_be_removed(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "db"
    await with_messages(path)
    with sqlite3.connect(path) as db:
        if damage == "document":
            db.execute("UPDATE flow SET document = '{}' WHERE name = 'f'")
        else:
            db.execute("UPDATE opening SET payload = x'c1' WHERE flow = 'f'")
    if damage == "opening":
        rot(path, "state")
    gateway = Gateway(path)
    assert (sorted(gateway.flows.runs), list(gateway.flows.failed)) == (["other"], ["f"])
    assert len(gaps(gateway)) == 1
    assert await gateway.flows.remove("f")
    assert gateway.flows.failed == {}
    gateway.crash()
    gateway = Gateway(path)
    assert (sorted(gateway.flows.runs), gateway.flows.failed) == (["other"], {})
    gateway.crash()


@in_loop
async def test_a_flow_that_is_stopped_says_so_in_the_tables(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.pool.hold(gateway.flows.runs["f"].all, 60.0)
    gateway.flows.fail(gateway.flows.runs["f"], "its slots died")
    await asyncio.gather(*gateway.flows.losses.telling.running)
    (gap,) = gaps(gateway)
    assert "its slots died" in gap.text
    gateway.crash()


@in_loop
async def test_what_the_broker_retains_does_not_cost_a_stopped_flow_its_windows(tmp_path: Path) -> None:
    """It comes again with each connection to the central broker."""
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.feed(1, 1.0)
    assert await gateway.checkpoint()
    gateway.pool.hold(gateway.flows.runs["f"].all, 60.0)
    gateway.flows.fail(gateway.flows.runs["f"], "its slots died")
    await asyncio.gather(*gateway.flows.losses.telling.running)
    with pytest.raises(EdgertError, match=r"flow f is stopped \(its slots died\) and its document is the same"):
        await gateway.flows.deploy(document(), "mqtt")
    assert (sorted(gateway.flows.runs), sorted(gateway.flows.failed)) == ([], ["f"])
    gateway.crash()
    gateway = Gateway(tmp_path / "db")
    assert await gateway.flows.remove("f")
    assert gateway.shipped() == 1
    gateway.crash()


@in_loop
async def test_another_document_replaces_a_stopped_flow(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    for description, version in (("another", 2), ("a third", 3)):
        gateway.pool.hold(gateway.flows.runs["f"].all, 60.0)
        gateway.flows.fail(gateway.flows.runs["f"], "its slots died")
        assert await gateway.flows.deploy(document(description=description), "mqtt") == version
        assert gateway.flows.failed == {}
    gateway.crash()


@in_loop
async def test_what_a_stopped_flow_lacks_is_acknowledged_only_when_a_gap_says_so(tmp_path: Path) -> None:
    path = tmp_path / "db"
    gateway = Gateway(path)
    gateway.flow_registry.retry_s = 0.001
    await gateway.flows.deploy(document(), "mqtt")
    gateway.feed(1, 1.0)
    assert await gateway.checkpoint()
    gateway.feed(2, 2.0)
    put_gap, tried = gateway.database.put_gap, asyncio.Event()
    loop = asyncio.get_running_loop()

    def full(*_: Any, **__: Any) -> None:
        loop.call_soon_threadsafe(tried.set)
        raise StoreError("disk full")

    gateway.database.put_gap = full  # type: ignore[method-assign]
    gateway.flows.fail(gateway.flows.runs["f"], "its slots died")
    await tried.wait()
    gateway.ingest.feed([Publish("x/a", b'{"time": 1700000003}', 1, False, False, 3)])
    assert await gateway.checkpoint()
    assert [packet_id for packet_id, *_ in gateway.ingest.inbox.owed] == [2, 3]
    gateway.database.put_gap = put_gap  # type: ignore[method-assign]
    await asyncio.gather(*gateway.flows.losses.telling.running)
    assert (len(gaps(gateway)), len(gateway.ingest.inbox.owed)) == (1, 0)
    assert gateway.ingest.subscriptions.sources == []
    gateway.crash()


@in_loop
async def test_a_gateway_that_ends_does_not_wait_for_what_cannot_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, tried, loop = daemon(tmp_path), asyncio.Event(), asyncio.get_running_loop()
    await board.start()
    await board.flows._deploy(document(), "mqtt", {}, 0)

    def full(*_: Any, **__: Any) -> None:
        loop.call_soon_threadsafe(tried.set)
        raise StoreError("disk full")

    monkeypatch.setattr(board.database, "put_gap", full)
    board.flows.fail(board.flows.runs["f"], "its slots died")
    (saying,) = board.flows.losses.telling.running
    await tried.wait()
    await ends(board)
    assert saying.cancelled()
    gateway = Gateway(tmp_path / "gateway.db")
    assert list(gateway.flows.runs) == ["f"], "nothing was said, so it goes on"
    gateway.crash()


@in_loop
async def test_a_damaged_opening_holds_up_no_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.feed(1, 1.0)
    with sqlite3.connect(tmp_path / "db") as db:
        db.execute("UPDATE opening SET payload = x'c1'")
    monkeypatch.setattr(gateway.host.checkpoints, "run_out", mock.Mock(side_effect=RuntimeError("an operator's fault")))
    async with asyncio.timeout(60.0):
        assert await gateway.flows.remove("f")
    (gap,) = gaps(gateway)
    assert "could not be brought to its end" in gap.text
    gateway.crash()


@in_loop
async def test_state_that_rots_while_it_runs_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "db"
    gateway = Gateway(path)
    await gateway.flows.deploy(document(), "mqtt")
    gateway.flows.runs["f"].size.compact_bytes = 400
    for number in range(1, 4):
        gateway.feed(number, number)
        assert await gateway.checkpoint()
    rot(path, "state", [0])
    for number in range(4, 30):
        gateway.feed(number, number)
        assert await gateway.checkpoint()
    assert len(gateway.database.state("f")) < 10
    gateway.crash()
    gateway = Gateway(path)
    assert gateway.flows.gaps == {}
    await gateway.flows.remove("f")
    assert gateway.shipped() == 29
    gateway.crash()


@pytest.mark.parametrize("table", ["state", "spill"])
@in_loop
async def test_a_flow_that_is_to_go_back_to_what_is_damaged_ends_the_gateway(table: str, tmp_path: Path) -> None:
    """A slot died. A start goes back to what is whole."""
    path = tmp_path / "db"
    await with_messages(path)
    gateway = Gateway(path)
    if table == "spill":
        with sqlite3.connect(path) as db:
            db.execute("INSERT INTO spill VALUES ('f', 1, 10, 1, x'00')")
            db.execute("INSERT INTO spilled VALUES ('f', 9, x'90', 0)")
    else:
        rot(path, "state")
    with pytest.raises(DamagedError):
        async with gateway.flow_registry.last_checkpoint("f"):
            pytest.fail("expected no restore")
    assert "damaged" in gateway.database.damaged
    assert not gateway.flow_registry.busy.locked()
    gateway.crash()


@in_loop
async def test_what_had_no_room_is_said_once_however_often_the_flow_goes_back_to_it(tmp_path: Path) -> None:
    path = tmp_path / "db"
    await with_messages(path)
    gateway = Gateway(path)
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO spilled VALUES ('f', 9, x'90', 4)")
    for _ in range(2):  # slots die
        async with gateway.flow_registry.last_checkpoint("f"):
            pass
    (gap,) = gaps(gateway)
    assert "4 messages of its input had no room" in gap.text
    assert gateway.checkpointer.drops.lost_input == {"f": 4}
    gateway.crash()
    gateway = Gateway(path)
    assert (len(gaps(gateway)), gateway.checkpointer.drops.lost_input) == (1, {})
    gateway.crash()


@in_loop
async def test_nobody_waits_for_a_database_that_is_known_to_be_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the gateway could not end, so that a start looks at it."""
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.feed(1, 1.0)
    gateway.database.damaged = "database disk image is malformed"
    refused = StoreError("nothing is written any more")
    monkeypatch.setattr(gateway.database, "go_back", mock.Mock(side_effect=refused))
    monkeypatch.setattr(gateway.host.checkpoints, "run_out", mock.Mock(side_effect=refused))
    async with asyncio.timeout(60.0):
        with pytest.raises(DamagedError, match="nothing is written"):
            async with gateway.flow_registry.last_checkpoint("f"):
                pytest.fail("expected no restore")
        with pytest.raises(StoreError, match="nothing is written"):
            await gateway.flows.remove("f")
    assert not gateway.flow_registry.busy.locked()
    gateway.crash()
