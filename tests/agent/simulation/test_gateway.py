"""The simulated gateway keeps the rules of the real one's parts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agent.simulation.gateway import PATIENCE_S, Disk, VirtualGateway
from agent.simulation.loop import LoopClock, VirtualLoop
from edgert.core.errors import EdgertError
from tests.agent.simulation.worlds import COPIES, FLOW, shapes

ON_A = {name: ["a", -1] for name in COPIES}
WINDOW_TO_B = {**ON_A, "minute#2": ["b", -1]}


class World:
    """Two gateways, started anew on their disks at will."""

    def __init__(self) -> None:
        self.clock = LoopClock(asyncio.get_running_loop())
        self.disks = {"a": Disk(), "b": Disk()}
        self.shapes = shapes()
        self.at = {name: self.start(name) for name in self.disks}

    def start(self, name: str) -> VirtualGateway:
        return VirtualGateway(name, self.disks[name], self.shapes, self.clock, lambda: None)

    async def deploy(self, fence: int = 1) -> None:
        told = {"document": FLOW, "assignment": ON_A, "plan": 1, "fence": fence, "rules": {"heuristic": "even"}}
        await self.at["a"].call("part.deploy", told)

    async def prepare(self, fence: int = 2) -> None:
        await self.at["a"].call("part.stop", {"flow": "air", "fence": fence})
        export = await self.at["a"].call("part.export", {"flow": "air", "operators": ["minute#2"], "taken": {}})
        told = {"document": FLOW, "assignment": WINDOW_TO_B, "plan": 2, "imports": [export], "fence": fence}
        for gateway in self.at.values():
            await gateway.call("part.prepare", told)

    async def part(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.at[name].call("part.status")).get("air", {})
        return found


def run(test: Callable[[World], Awaitable[None]]) -> None:
    async def inside() -> None:
        await test(World())

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(inside())


def test_a_plan_is_changed_by_its_steps_and_telling_twice_does_no_harm() -> None:
    async def test(world: World) -> None:
        await world.deploy()
        await world.prepare()
        assert (await world.part("b"))["state"] == "prepared"
        for _ in range(2):
            for gateway in world.at.values():
                await gateway.call("part.commit", {"flow": "air", "plan": 2, "fence": 2})
        parts = [await world.part(name) for name in "ab"]
        assert [(part["state"], part["plan"]) for part in parts] == [("running", 2)] * 2
        assert parts[0]["rules"] == {"heuristic": "even"}
        figures = await world.at["b"].call("figures")
        assert list(figures["flows"]["air"]["instances"]) == ["minute#2"]

    run(test)


def test_a_coordinator_with_a_smaller_fencing_number_is_refused() -> None:
    async def test(world: World) -> None:
        await world.deploy(fence=5)
        for verb in ("stop", "abort", "commit", "rules", "remove"):
            with pytest.raises(EdgertError, match="obeys a coordinator with fencing number 5, got 4"):
                await world.at["a"].call(f"part.{verb}", {"flow": "air", "plan": 2, "fence": 4, "rules": {}})

    run(test)


def test_a_later_coordinator_is_obeyed_after_what_an_earlier_one_began() -> None:
    async def test(world: World) -> None:
        deploying = asyncio.create_task(world.deploy(fence=5))
        await asyncio.sleep(0)
        assert await world.at["a"].call("part.fence", {"flow": "air", "fence": 6}) == {"fence": 6}
        assert (await world.part("a"))["state"] == "running"
        with pytest.raises(EdgertError, match="obeys a coordinator with fencing number 6, got 5"):
            await world.at["a"].call("part.stop", {"flow": "air", "fence": 5})
        await deploying

    run(test)


def test_a_stopped_part_goes_on_by_itself_unless_its_next_plan_is_prepared() -> None:
    async def test(world: World) -> None:
        await world.deploy()
        await world.at["a"].call("part.stop", {"flow": "air", "fence": 2})
        assert (await world.part("a"))["state"] == "stopped"
        await asyncio.sleep(PATIENCE_S + 1)
        assert (await world.part("a"))["state"] == "running"
        await world.prepare(fence=3)
        await asyncio.sleep(2 * PATIENCE_S)
        assert (await world.part("a"))["state"] == "prepared"
        with pytest.raises(EdgertError, match="is being changed"):
            await world.deploy(fence=9)

    run(test)


def test_a_prepared_plan_outlives_a_restart_and_a_stop_does_not() -> None:
    async def test(world: World) -> None:
        await world.deploy()
        await world.at["a"].call("part.stop", {"flow": "air", "fence": 2})
        world.at["a"] = world.start("a")
        assert (await world.part("a"))["state"] == "running"
        await world.prepare(fence=3)
        world.at["a"] = world.start("a")
        assert (await world.part("a"))["state"] == "prepared"
        assert world.at["a"].runs["air"].stopped
        for gateway in world.at.values():
            await gateway.call("part.abort", {"flow": "air", "plan": 2, "fence": 3})
        assert (await world.part("a"))["state"] == "running"
        assert await world.part("b") == {}

    run(test)


def test_a_part_that_runs_prepares_nothing_and_what_is_not_there_is_named() -> None:
    async def test(world: World) -> None:
        await world.deploy()
        told = {"document": FLOW, "assignment": WINDOW_TO_B, "plan": 2, "imports": [], "fence": 2}
        with pytest.raises(EdgertError, match="runs: stop it before"):
            await world.at["a"].call("part.prepare", told)
        with pytest.raises(EdgertError, match="expected a flow that runs here, got 'air'"):
            await world.at["b"].call("part.stop", {"flow": "air", "fence": 2})
        with pytest.raises(EdgertError, match="expected a verb of a gateway, got 'place'"):
            await world.at["b"].call("place")

    run(test)
