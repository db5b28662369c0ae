"""An agent that ends, or leaves the fleet, while the gateway of its board runs on; and a machine that was suspended."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from agent.fleet.presence import COMPARE_S
from agent.lease.voters import DEAD_S, GUESTS_S, LATELY_S, LOOK_S
from agent.simulation.described.events import FleetEvent
from agent.simulation.fleet import VirtualFleet
from agent.simulation.loop import LoopClock
from edgert.core.errors import EdgertError
from tests.agent.simulation.worlds import FLOW, ask, tell

APART = {"minute": "b", "central": "c"}


class Suspended(LoopClock):
    """The clock of a machine that was suspended for so long."""

    def monotonic(self) -> float:
        return super().monotonic() + 2 * DEAD_S


def test_guests_stop_when_their_agent_has_ended_before_the_board_can_be_forgotten() -> None:
    """They ran on for ever, beside those of the flow that was deployed anew."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins=APART)
        await asyncio.sleep(20)
        agent = fleet.agents.pop("b")
        agent.end()
        fleet.kill("b")
        runs = agent.virtual_gateway.runs
        for after_s, stopped in ((GUESTS_S, False), (LATELY_S + LOOK_S, True)):
            await asyncio.sleep(after_s)
            assert runs["air"].stopped is stopped
        assert GUESTS_S + LATELY_S + LOOK_S < DEAD_S

    tell(story)


def test_a_board_whose_agent_ended_keeps_its_links_until_it_is_forgotten() -> None:
    """The others' gateways dropped it after 7 s, and with it the rows of its sources."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins=APART)
        fleet.agents.pop("b").end()
        fleet.kill("b")
        for _ in range(int(DEAD_S) + 10):
            await asyncio.sleep(1.0)
            assert all("b" in agent.virtual_gateway.told.peers for agent in fleet.agents.values())
        await ask(fleet, "a", "forget", board="b")
        await asyncio.sleep(COMPARE_S * len(fleet.agents))
        assert not any("b" in agent.virtual_gateway.told.peers for agent in fleet.agents.values())

    tell(story)


def test_a_gateway_that_its_agent_does_not_reach_for_a_while_keeps_its_links() -> None:
    """Its agent told that it had no port, and the other gateways dropped it."""

    async def story(fleet: VirtualFleet) -> None:
        unreached = fleet.agents["b"].gateway
        unreached.look = pass_by  # type: ignore[method-assign]
        unreached._lost("no answer within 5 s")
        for _ in range(20):
            await asyncio.sleep(1.0)
            assert all("b" in fleet.agents[name].virtual_gateway.told.peers for name in "acd")

    tell(story)


async def pass_by() -> None:
    """Finds no gateway."""


def leave(fleet: VirtualFleet, board: str, **args: Any) -> Any:
    """As `agent.daemon` leaves, but for its end."""
    agent = fleet.agents[board]

    async def leaves() -> None:
        await agent.presence.take_leave(args)
        agent.membership.leave(fleet.now)
        fleet.step(board)

    return agent.begin(leaves())


def test_a_board_with_parts_of_flows_does_not_leave() -> None:
    """It did; its gateway ran on, and the flow could be deployed on another board beside it."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins=APART)
        with pytest.raises(
            EdgertError, match=r"this board has parts of air: run `edgert fleet drain b` first.*--force"
        ):
            await leave(fleet, "b")
        await leave(fleet, "d")
        await asyncio.sleep(5)
        assert fleet.agents["a"].flows.alive() == ["a", "b", "c"]

    tell(story)


def test_a_board_that_the_fleet_still_counts_after_it_left_says_what_to_do() -> None:
    async def story(fleet: VirtualFleet) -> None:
        assert await fleet.agents["c"].begin(fleet.agents["c"].presence._electorate.resign()) == ""
        fleet.apply(FleetEvent(0.0, "kill", ("a",), 60.0))
        await asyncio.sleep(20)
        await leave(fleet, "b")
        told = await fleet.agents["b"].begin(fleet.agents["b"].presence._electorate.resign())
        assert told.startswith("the fleet still counts b, ")
        assert "edgert fleet forget b" in told

    tell(story, 3)


def test_all_boards_leave_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """The simulation looked for the coordinator among none, and raised."""

    async def story(fleet: VirtualFleet) -> None:
        await asyncio.gather(*(leave(fleet, board) for board in "abc"))
        await asyncio.sleep(5)

    tell(story, 3)
    assert "ValueError" not in caplog.text


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.04, 0.06, 0.08, 0.1])
def test_a_board_that_leaves_gets_no_part_meanwhile(after_s: float) -> None:
    """It looked for parts, and left with one that came a moment later."""

    async def story(fleet: VirtualFleet) -> None:
        board = min(fleet.agents.keys() - {fleet.agents["a"].flows.coordinator_of("air"), "a"})
        deploys = asyncio.ensure_future(ask(fleet, "a", "deploy", document=FLOW, pins={"minute": board}))
        await asyncio.sleep(after_s)
        agent, left = fleet.agents[board], False
        with suppress(EdgertError):
            await leave(fleet, board)
            left = True
        await asyncio.gather(deploys, return_exceptions=True)
        await asyncio.sleep(10)
        assert left is not ("air" in agent.virtual_gateway.runs)
        assert left is (deploys.exception() is not None)

    tell(story)


def test_a_board_that_leaves_nevertheless_has_stopped_its_guests_and_nothing_of_it_is_called_lost() -> None:
    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins=APART)
        await asyncio.sleep(20)
        gateway = fleet.agents["b"].virtual_gateway
        await leave(fleet, "b", force=True)
        for _ in range(10):
            assert gateway.runs["air"].stopped
            await asyncio.sleep(0.1)
        fleet.agents.pop("b").end()
        fleet.kill("b")
        await asyncio.sleep(5)
        told = await ask(fleet, "a", "remove", flow="air")
        assert (told["lost"], told["left"]) == ({}, {"b": ["minute#1", "minute#2"]})
        await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "d"})
        await asyncio.sleep(60)
        assert gateway.runs["air"].stopped

    tell(story)


def test_a_machine_that_was_suspended_stops_its_guests_before_it_asks_the_fleet() -> None:
    """It took two looks, in which another board may have run them, too."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins=APART)
        await asyncio.sleep(20)
        runs = fleet.agents["b"].virtual_gateway.runs
        for clock, after_s in ((Suspended, LOOK_S + 0.1), (LoopClock, 20.0)):  # the network has no other clock
            fleet._clocks["b"].__class__ = clock
            await asyncio.sleep(after_s)
            assert runs["air"].stopped is (clock is Suspended)

    tell(story)
