"""A flow that comes to no batch boundary holds up no other flow's acknowledgements, and loses nothing of its input."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from edgert.mqtt.packets import Publish
from edgert.runtime import flow_run
from edgert.store import spill
from gateway.blocked import PATIENCE_S, TRIED_S
from tests.gateway.test_fallback import rot
from tests.gateway.test_flows import Gateway, document
from tests.waiting import in_loop


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_run, "HOLD_S", 0.01)


class Blocking:
    """Two flows, one of which can be kept from ending a turn."""

    def __init__(self, path: Path) -> None:
        self.gateway = Gateway(path)
        self.free = threading.Event()
        self.free.set()
        self._entered = threading.Event()

    async def deploy(self) -> None:
        for name in ("f", "other"):
            await self.gateway.flows.deploy(document(name), "mqtt")
        logic = self.gateway.flows.runs["f"].places["minute"].logic
        process = logic.process

        def wait(*arguments: Any) -> Any:
            self._entered.set()
            assert self.free.wait(20.0)
            return process(*arguments)

        logic.process = wait  # type: ignore[method-assign, assignment]

    def feed(self, number: int, *, dup: bool = False) -> None:
        payload = b'{"time": %f}' % (1_700_000_000 + number)
        self.gateway.ingest.feed([Publish("x/a", payload, 1, False, dup, number)])

    async def block(self) -> None:
        """Message 1 is under way, and what comes behind it waits."""
        self.free.clear()
        self.feed(1)
        assert await asyncio.to_thread(self._entered.wait, 10.0)
        self.feed(2)

    async def checkpoint(self, later_s: float = 0.0) -> list[tuple[int, int]]:
        """What is acknowledged by it."""
        owed = [(packet_id, qos) for packet_id, qos, *_ in self.gateway.ingest.inbox.owed]
        self.gateway.clock.advance(later_s)
        assert await self.gateway.checkpoint()
        left = len(self.gateway.ingest.inbox.owed)
        return owed[: len(owed) - left]

    async def go_on(self) -> None:
        self.free.set()
        runs = self.gateway.flows.runs.values()
        assert await asyncio.to_thread(self.gateway.pool.wait_empty, [i for r in runs for i in r.all], 10.0)

    def die(self) -> None:
        """What the blocked operator does from now on is in vain."""
        self.gateway.database.close()
        self.free.set()
        self.gateway.pool.stop()


async def counted(path: Path, *again: int) -> dict[str, int]:
    """By flow, what a gateway ships in the end that starts there and to which these are delivered again."""
    after = Gateway(path)
    for number in again:
        after.feed(number, number, dup=True)
    assert after.pool.wait_empty([i for r in after.flows.runs.values() for i in r.all], 10.0)
    found = {}
    for name in ("f", "other"):
        before = after.shipped()
        await after.flows.remove(name)
        found[name] = after.shipped() - before
    after.crash()
    return found


@in_loop
async def test_its_input_goes_to_the_database_and_is_acknowledged(tmp_path: Path) -> None:
    world = Blocking(tmp_path / "db")
    await world.deploy()
    await world.block()
    assert await world.checkpoint() == [], "it may still come to an end"
    assert await world.checkpoint(PATIENCE_S) == [(1, 1), (2, 1)]
    world.feed(3)
    assert await world.checkpoint() == [(3, 1)]
    assert world.gateway.checkpointer.blocked.messages(world.gateway.flows.runs["f"]) == 3
    world.feed(4)
    world.die()
    assert await counted(tmp_path / "db", 4) == {"f": 4, "other": 4}


@in_loop
async def test_what_was_not_acknowledged_in_time_is_recognized(tmp_path: Path) -> None:
    """The PUBACKs of what was spilled got lost."""
    world = Blocking(tmp_path / "db")
    await world.deploy()
    await world.block()
    await world.checkpoint()
    await world.checkpoint(PATIENCE_S)
    world.die()
    assert await counted(tmp_path / "db", 1, 2) == {"f": 2, "other": 2}
    assert await counted(tmp_path / "db") == {"f": 0, "other": 0}


@in_loop
async def test_its_next_checkpoint_covers_what_was_spilled(tmp_path: Path) -> None:
    world = Blocking(tmp_path / "db")
    await world.deploy()
    await world.block()
    await world.checkpoint()
    await world.checkpoint(PATIENCE_S)
    database = world.gateway.database
    assert database.spilled("f") is not None
    await world.go_on()
    world.feed(3)
    await world.go_on()
    await world.checkpoint()
    assert database.spilled("f") is not None, "it is not tried yet"
    assert await world.checkpoint(TRIED_S) == []
    assert database.spilled("f") is None
    assert not world.gateway.checkpointer.blocked.is_blocked(world.gateway.flows.runs["f"])
    world.die()
    assert await counted(tmp_path / "db") == {"f": 3, "other": 3}


@in_loop
async def test_it_is_tried_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try may take two seconds, in which no other flow has a checkpoint."""
    world = Blocking(tmp_path / "db")
    await world.deploy()
    await world.block()
    tries: list[str] = []
    capture = world.gateway.host.capture

    def count(run: Any, position: Any) -> bool:
        tries.append(run.flow.name)
        return capture(run, position)

    monkeypatch.setattr(world.gateway.host, "capture", count)
    for _ in range(60):
        await world.checkpoint(1.0)
    assert tries.count("other") == 60
    assert tries.count("f") <= PATIENCE_S + 1 + 60 / TRIED_S
    world.die()


@in_loop
async def test_nobody_waits_for_a_turn_that_is_long_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Blocking(tmp_path / "db")
    await world.deploy()
    await world.block()
    held: list[object] = []
    hold = world.gateway.pool.hold

    def note(instances: Any, timeout_s: float) -> bool:
        held.append(instances)
        return hold(instances, timeout_s)

    monkeypatch.setattr(world.gateway.pool, "hold", note)
    f, other = (world.gateway.flows.runs[name] for name in ("f", "other"))
    await world.checkpoint()
    assert held == [f.all, other.all]
    await world.checkpoint(PATIENCE_S)
    await world.checkpoint(TRIED_S)
    assert held[2:] == [other.all, other.all]
    world.die()


@in_loop
async def test_a_flow_whose_state_cannot_be_taken_counts_as_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Blocking(tmp_path / "db")
    await world.deploy()
    logic = world.gateway.flows.runs["f"].places["minute"].logic

    def raises() -> None:
        raise RuntimeError("no state")

    monkeypatch.setattr(logic, "delta", raises)
    world.feed(1)
    await world.go_on()
    assert await world.checkpoint() == []
    assert await world.checkpoint(PATIENCE_S) == [(1, 1)]
    world.die()
    assert await counted(tmp_path / "db", 1) == {"f": 1, "other": 1}


@in_loop
async def test_what_has_no_room_is_counted_if_it_comes_to_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "QUOTA_BYTES", 400)
    world = Blocking(tmp_path / "db")
    await world.deploy()
    await world.block()
    await world.checkpoint()
    await world.checkpoint(PATIENCE_S)
    for number in range(3, 8):
        world.feed(number)
        assert await world.checkpoint() == [(number, 1)]
    world.die()
    gateway = Gateway(tmp_path / "db")
    assert gateway.flows.gaps["f"].startswith("4 messages of flow f")
    gateway.crash()
    assert await counted(tmp_path / "db") == {"f": 3, "other": 7}


@in_loop
async def test_damaged_input_is_a_gap(tmp_path: Path) -> None:
    world = Blocking(tmp_path / "db")
    await world.deploy()
    await world.block()
    await world.checkpoint()
    await world.checkpoint(PATIENCE_S)
    world.die()
    rot(tmp_path / "db", "spill")
    gateway = Gateway(tmp_path / "db")
    gateway.crash()
    assert "waited in its queues" in gateway.flows.gaps["f"]
    assert await counted(tmp_path / "db", 1, 2) == {"f": 0, "other": 2}
