"""Two agents that both take themselves for a flow's coordinator move the same operator at nearly the same time."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from agent.simulation.fleet import VirtualFleet
from agent.simulation.loop import VirtualLoop
from agent.simulation.rows import SimulatedRows
from edgert.core.errors import EdgertError
from tests.agent.simulation.worlds import FLOW, boards, job


async def _both_move(seed: int, apart_s: float) -> VirtualFleet:
    asked = job(boards(1, 1, 1, 1), seed=seed)
    fleet = VirtualFleet(asked.description, asked.shapes, SimulatedRows(1.0, 200.0, ["readings"]), seed)
    await asyncio.sleep(20)
    first = fleet.agents["a"]
    await first.begin(first.flows.control["fleet.deploy"]({"document": FLOW}))

    async def move(board: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        agent, args = fleet.agents[board], {"flow": "air", "moves": {"minute#1": board}}
        with suppress(EdgertError):
            await agent.begin(agent.flows.serve_coordinator("d", {"verb": "move", "args": args}))

    await asyncio.gather(move("b", 0.0), move("c", apart_s))
    await asyncio.sleep(30)
    await fleet.stop()
    return fleet


@pytest.mark.parametrize("apart_s", [0.0, 0.004, 0.03, 0.05, 0.075, 0.09])
def test_one_goes_after_the_other_and_the_operator_has_one_owner(apart_s: float) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        fleet = runner.run(_both_move(1, apart_s))
    assert fleet.watch.violations == []
    runs = {name: agent.virtual_gateway.runs.get("air") for name, agent in fleet.agents.items()}
    owners = [name for name, run in runs.items() if run and run.part.assignment["minute#1"] == name]
    assert owners in (["b"], ["c"])
    left = [run for run in runs.values() if run]
    assert len({run.part.plan for run in left}) == 1  # the second one waits for the lease, or is refused
    assert not any(run.stopped for run in left)


async def _both_deploy(seed: int, apart_s: float) -> VirtualFleet:
    asked = job(boards(1, 1, 1, 1), seed=seed)
    fleet = VirtualFleet(asked.description, asked.shapes, SimulatedRows(1.0, 200.0, ["readings"]), seed)
    await asyncio.sleep(20)

    async def deploy(board: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        agent, args = fleet.agents[board], {"document": FLOW, "pins": {"minute": board}, "asked": "a"}
        with suppress(EdgertError):
            await agent.begin(agent.flows.serve_coordinator("d", {"verb": "deploy", "args": args}))

    await asyncio.gather(deploy("b", 0.0), deploy("c", apart_s))
    await asyncio.sleep(30)
    await fleet.stop()
    return fleet


@pytest.mark.parametrize("apart_s", [0.0, 0.003, 0.01, 0.02, 0.05, 0.1])
@pytest.mark.parametrize("seed", [1, 2])
def test_two_first_deployments_at_the_same_time_leave_one_flow(seed: int, apart_s: float) -> None:
    """With seed 2 and no time apart, each deployed on its own board what the other one had not heard of."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        fleet = runner.run(_both_deploy(seed, apart_s))
    assert fleet.watch.violations == []
    runs = {name: run for name, agent in fleet.agents.items() if (run := agent.virtual_gateway.runs.get("air"))}
    assert len({run.part.plan for run in runs.values()}) == 1
    assert len({tuple(run.part.assignment.items()) for run in runs.values()}) == 1
    assert not any(run.stopped for run in runs.values())


async def _again() -> VirtualFleet:
    asked = job(boards(1, 1, 1), seed=1)
    fleet = VirtualFleet(asked.description, asked.shapes, SimulatedRows(1.0, 200.0, ["readings"]), 1)
    await asyncio.sleep(20)
    agent = fleet.agents["a"]
    for verb, args in (
        ("deploy", {"document": FLOW}), ("move", {"flow": "air", "moves": {"minute#1": "b"}}),
        ("remove", {"flow": "air"}), ("deploy", {"document": FLOW}),
    ):  # fmt: skip
        await agent.begin(agent.flows.control[f"fleet.{verb}"](args))
    await fleet.stop()
    return fleet


def test_a_flow_that_was_removed_is_deployed_again() -> None:
    """Gateways remembered its fencing number, and refused the first one of the new deployment, for good."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        fleet = runner.run(_again())
    assert "air" in fleet.agents["a"].virtual_gateway.runs
