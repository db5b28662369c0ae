"""The lock protocol of the registry: who waits for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgert.core.clock import VirtualClock
from edgert.store.database import Database
from gateway.registry.registry import FlowRegistry
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop


def registry(path: Path) -> FlowRegistry:
    async def store(call: Callable[[], Any]) -> Any:
        return call()

    return FlowRegistry(Database(path, "g1"), store, VirtualClock())


async def steps(*coroutines: Any) -> None:
    """Lets others go as far as they come."""
    for _ in range(20):
        await asyncio.sleep(0)


@in_loop
async def test_a_flow_is_brought_back_only_while_nothing_else_changes_or_commits(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    one, restored = gateway.flow_registry, []
    one.on_restored = lambda: restored.append("f")
    for held in (one.busy, one.succession):
        async with held:
            waiting = asyncio.create_task(bring_back(one, "f"))
            await steps()
            assert not waiting.done()
            assert restored == []
        await waiting
        assert restored.pop() == "f"
    async with one.last_checkpoint("f"):
        assert one.busy.locked()
        assert one.succession.locked()
    gateway.crash()


@in_loop
async def test_while_a_flow_works_off_what_it_has_others_commit_and_are_brought_back(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document("other"), "mqtt")
    one = gateway.flow_registry
    async with one.alone():
        async with one.others_go_on():
            assert await gateway.checkpoint()
            async with asyncio.timeout(60):
                await bring_back(one, "other")
        assert one.busy.locked()
        assert one.succession.locked(), "the flow that ends has both again"
    assert not one.busy.locked()
    assert not one.succession.locked()
    gateway.crash()


@in_loop
async def test_one_that_is_cancelled_while_others_go_on_gives_both_locks_back(tmp_path: Path) -> None:
    one = registry(tmp_path / "db")

    async def ends() -> None:
        async with one.alone(), one.others_go_on():
            await asyncio.Event().wait()

    task = asyncio.create_task(ends())
    await steps()
    assert not one.busy.locked()
    async with one.busy:
        task.cancel()
        await steps()
        assert not task.done(), "it takes its locks before it gives them back"
    await asyncio.gather(task, return_exceptions=True)
    assert not one.busy.locked()
    assert not one.succession.locked()


async def bring_back(one: FlowRegistry, flow: str) -> None:
    async with one.last_checkpoint(flow):
        pass
