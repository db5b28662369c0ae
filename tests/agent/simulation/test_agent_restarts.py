"""An agent that begins anew while the gateway of its board runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from agent.lease.voters import LATELY_S, LOOK_S
from agent.simulation.described.events import FleetEvent
from agent.simulation.fleet import VirtualFleet
from tests.agent.simulation.worlds import FLOW, ask, restart_agent, tell


def stopped(fleet: VirtualFleet, board: str) -> bool:
    return fleet.agents[board].virtual_gateway.runs["air"].stopped


@pytest.mark.parametrize("count", [11, 30])
def test_guests_run_on_while_their_agent_begins_anew(count: int) -> None:
    """In fleets of 30 and more boards all of them were stopped: an agent asks 16 boards at a look."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "j"})
        await asyncio.sleep(20)
        await restart_agent(fleet, "j")
        for _ in range(150):
            assert not stopped(fleet, "j")
            await asyncio.sleep(0.1)

    tell(story, count)


def test_guests_of_a_board_that_is_cut_off_stop_after_its_agent_began_anew_and_go_on_after_the_heal() -> None:
    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "b"})
        await asyncio.sleep(20)
        for other in "acd":
            fleet.apply(FleetEvent(0.0, "cut", ("b", other), 60.0))
        await asyncio.sleep(5)
        await restart_agent(fleet, "b")
        await asyncio.sleep(LATELY_S + 2 * LOOK_S)
        assert stopped(fleet, "b")
        await restart_agent(fleet, "b")
        fleet.apply(FleetEvent(0.0, "kill", ("b",), 1.0))
        await asyncio.sleep(1.1)
        for _ in range(60):
            assert stopped(fleet, "b"), "only a majority lets guests go on after a start"
            await asyncio.sleep(0.5)
        await asyncio.sleep(60)
        assert not stopped(fleet, "b")

    tell(story)


def test_a_board_that_was_forgotten_where_nobody_could_tell_of_it_counts_again_after_the_heal() -> None:
    """Cut off later, its part was given up while it still ran."""

    async def story(fleet: VirtualFleet) -> None:
        for other in "abd":
            fleet.apply(FleetEvent(0.0, "cut", ("c", other), 200.0))
        fleet.apply(FleetEvent(0.0, "kill", ("c",), 1.0))
        await asyncio.sleep(190)
        assert (await ask(fleet, "c", "forget", board="b", force=True))["told"] == []
        await asyncio.sleep(70)
        assert all(agent.flows.leases.members == set("abcd") for agent in fleet.agents.values())

    tell(story)


async def watched(fleet: VirtualFleet, work: Awaitable[None]) -> float:
    """Does `work`; returns the seconds in which the flow stood still on a board, or a board was no peer of another."""
    ends, stood_s = asyncio.ensure_future(work), 0.0
    gateways = {name: agent.virtual_gateway for name, agent in fleet.agents.items()}
    while not ends.done():
        linked = all(gateways.keys() - {name} <= gateway.told.peers.keys() for name, gateway in gateways.items())
        stood_s += 0.0 if linked and not any(gateway.runs["air"].stopped for gateway in gateways.values()) else 0.1
        await asyncio.sleep(0.1)
    await ends
    return stood_s


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_rolling_restart_of_slow_agents_stops_no_flow(seed: int) -> None:
    """Two restarts of a minute each stopped guests twice, and parted the gateways of the agents that were away."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "b", "central": "c"})
        await asyncio.sleep(20)

        async def one_after_the_other() -> None:
            for board in "cba":
                for busy in fleet.agents:
                    fleet.starve(busy, 3.0)
                await restart_agent(fleet, board, after_s=60.0)
                await asyncio.sleep(5.0)
            await asyncio.sleep(30)

        assert await watched(fleet, one_after_the_other()) == 0.0

    tell(story, 3, seed, loss=0.1)
