"""Boards that change from one fleet to another one: what they had begun, what they run, and when they vote."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from agent.simulation.described.events import FleetEvent
from agent.simulation.fleet import VirtualFleet
from edgert.core.errors import EdgertError
from tests.agent.simulation.worlds import FLOW, ask, carry, cut, members, on, restart_agent, tell, two_sites


def _bring_together(fleet: VirtualFleet) -> None:
    """Boards d and e meet the others."""
    for name in "de":
        fleet.apply(FleetEvent(0.0, "heal", (name, "a", "b", "c"), None))
        fleet.agents[name].membership.seeds = [fleet.agents["a"].membership.roster.own.address]


def test_a_board_that_is_carried_to_another_site_takes_no_fleet_along() -> None:
    """Its record named three boards, of which two are elsewhere: those that it met had no vote by it any more."""

    async def story(fleet: VirtualFleet) -> None:
        await two_sites(fleet)
        await ask(fleet, "d", "deploy", document=FLOW, pins={"minute": "e"})
        carry(fleet, "c", "ab", "de")
        await asyncio.sleep(120)
        await ask(fleet, "d", "move", flow="air", moves={"minute": "d"})
        await asyncio.sleep(600)
        assert members(fleet) == {frozenset("abc"), frozenset("cde")}
        fleet.die("c")
        await asyncio.sleep(200)
        await ask(fleet, "d", "move", flow="air", moves={"minute": "e"})

    tell(story, 5)


def test_a_board_that_is_carried_away_runs_nothing_for_those_that_it_left() -> None:
    """They forget it, and give its operators to another board."""

    async def story(fleet: VirtualFleet) -> None:
        await two_sites(fleet)
        await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "c"})
        carry(fleet, "c", "ab", "de")
        for _ in range(30):
            await asyncio.sleep(20)
            assert on(fleet)["c"] == (1, True)
        assert fleet.agents["d"].flows.leases.members == set("cde")
        await ask(fleet, "a", "forget", board="c")
        assert (await ask(fleet, "a", "remove", flow="air"))["lost"]
        await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "b"})
        await asyncio.sleep(60)
        assert on(fleet)["c"] == (1, True)
        carry(fleet, "c", "de", "ab")
        await asyncio.sleep(800)
        assert members(fleet) == {frozenset("abc"), frozenset("cde")}
        assert on(fleet) == {"a": (3, False), "b": (3, False)}

    assert tell(story, 5).watch.violations == []


@pytest.mark.parametrize("deployed_there", [False, True])
def test_a_change_of_plan_that_was_undone_is_not_made_by_another_fleet(
    deployed_there: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A board had prepared it, and lost its power before it was told. The fleet to which it was carried committed the
    plan: its operators ran twice. Carried back, it ended the plan by which the flow ran."""

    async def story(fleet: VirtualFleet) -> None:
        await two_sites(fleet)
        await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "b"})

        async def refuses(__: Mapping[str, Any]) -> Any:
            for _ in range(1_000):
                if "air" not in fleet.agents["c"].virtual_gateway.disk.prepared:
                    await asyncio.sleep(0.001)
            cut(fleet, "c", "ab", 10_000.0)
            fleet.apply(FleetEvent(0.0, "kill", ("c",), 20.0))
            raise EdgertError("disk full")

        fleet.agents["b"].virtual_gateway._verbs["part.prepare"] = refuses
        with pytest.raises(EdgertError, match=r"flow air stays where it is: b: .*disk full"):
            await ask(fleet, "a", "move", flow="air", moves={"minute": "c"})
        await asyncio.sleep(21)
        carry(fleet, "c", "ab", "de")
        await asyncio.sleep(280)
        assert fleet.agents["c"].flows.leases.members == set("cde")
        assert on(fleet) == {"a": (1, False), "b": (1, False)}
        assert "air" in fleet.agents["c"].virtual_gateway.disk.prepared, "its own fleet may have decided for it"
        assert len([line for line in caplog.messages if "is to end that" in line]) == 1
        if deployed_there:  # by people who have a flow of that name, too
            with suppress(EdgertError):
                await ask(fleet, "d", "deploy", document=FLOW, pins={"minute": "c"})
            await asyncio.sleep(30)
            await ask(fleet, "d", "deploy", document=FLOW, pins={"minute": "c"})
            there = on(fleet)
            assert there["c"] == there["d"] != (1, False)
            assert "air" not in fleet.agents["c"].virtual_gateway.disk.prepared
            return
        carry(fleet, "c", "de", "ab")
        await asyncio.sleep(300)
        assert members(fleet) == {frozenset("abc"), frozenset("cde")}
        assert on(fleet) == {"a": (1, False), "b": (1, False)}
        assert not fleet.agents["c"].virtual_gateway.disk.prepared

    fleet = tell(story, 5)
    assert deployed_there or fleet.watch.violations == []  # two fleets with a flow of one name are two owners to it


def test_guests_of_a_board_that_joins_another_fleet_stop_though_its_agent_begins_anew_at_that_moment() -> None:
    """The agent that began knew only the fleet of now, and let them run on."""

    async def story(fleet: VirtualFleet) -> None:
        await two_sites(fleet)
        await ask(fleet, "d", "deploy", document=FLOW, pins={"minute": "e"})
        memory = fleet.agents["e"].flows.leases.memory
        memory.join(fleet.agents["a"].flows.leases.memory.voters)
        await memory.keep()
        await restart_agent(fleet, "e")
        await asyncio.sleep(4)
        assert on(fleet) == {"d": (1, False), "e": (1, True)}

    tell(story, 5)


def test_a_board_that_joined_another_fleet_votes_there_within_a_minute() -> None:
    """It was tried in vain before, at last every 300 s, as one that stores nothing; each time all stored a number."""

    async def story(fleet: VirtualFleet) -> None:
        await two_sites(fleet)
        carry(fleet, "c", "ab", "de")
        before = fleet.agents["d"].flows.leases.memory.voters.number
        for _ in range(300):
            if fleet.agents["c"].flows.leases.memory.voters.names != ("d", "e"):
                await asyncio.sleep(1)
        assert (fleet.agents["d"].flows.leases.memory.voters.number - before) >> 32 < 4
        await asyncio.sleep(60)
        assert fleet.agents["c"].flows.leases.memory.votes

    tell(story, 5)


def test_a_flow_that_one_side_runs_stays_though_the_other_side_that_was_forced_to_go_on_removed_it() -> None:
    """Of four boards each half forgot the other by force, on each board. That one remembered the removal by a great
    number, and no part of the flow could go on after a start."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "c", "deploy", document=FLOW, pins={"minute": "d"})
        cut(fleet, "ab", "cd", 400.0)
        await asyncio.sleep(250)
        for side, gone in (("cd", "ab"), ("ab", "cd")):
            for here, board in product(side, gone):
                with suppress(EdgertError):  # the board on which it was said last may know it by the others
                    await ask(fleet, here, "forget", board=board, force=True)
                await asyncio.sleep(3)
            assert {fleet.agents[here].flows.leases.members for here in side} == {frozenset(side)}
        for _ in range(4):  # so it has the greater number
            await fleet.agents["c"].presence._electorate._change(lambda _: ())
        for _ in range(4):
            await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "b"})
            await ask(fleet, "a", "remove", flow="air")
        await asyncio.sleep(300)
        assert members(fleet) == {frozenset("abcd")}
        fleet.apply(FleetEvent(0.0, "kill", ("d",), 5.0))
        await asyncio.sleep(60)
        assert on(fleet) == {"c": (1, False), "d": (1, False)}
        await ask(fleet, "b", "move", flow="air", moves={"minute": "c"})

    tell(story)


def test_the_last_boards_of_a_fleet_that_joins_another_one_follow_at_once() -> None:
    """Its first boards joined, as the other fleet was greater; those left had no majority, and waited for 180 s with
    what they ran for others."""

    async def story(fleet: VirtualFleet) -> None:
        await two_sites(fleet)
        await ask(fleet, "d", "deploy", document=FLOW, pins={"minute": "e"})
        await restart_agent(fleet, "e")  # so they do not look at the same time
        await asyncio.sleep(20)
        _bring_together(fleet)
        await asyncio.sleep(90)
        assert members(fleet) == {frozenset("abcde")}
        assert on(fleet) == {"d": (1, False), "e": (1, False)}

    tell(story, 5)


def test_a_change_that_is_asked_for_while_the_boards_of_the_flow_join_says_that_they_do() -> None:
    """People were told that the flow does not exist, then that a board that joined was gone for good; to be removed,
    its part was given up."""

    async def story(fleet: VirtualFleet) -> None:
        await two_sites(fleet)
        await ask(fleet, "d", "deploy", document=FLOW, pins={"minute": "e"})
        await asyncio.sleep(20)
        _bring_together(fleet)
        told, again = list[str](), "try again in a moment"
        while told[-1:] != ["made"]:
            await asyncio.sleep(0.5)
            try:
                await ask(fleet, "a", "move", flow="air", moves={"minute": "e"})
                told.append("made")
            except EdgertError as error:
                told += [str(error)] if str(error) not in told else []
            if "part on e" in told[-1]:
                with pytest.raises(EdgertError, match=again):  # e may have joined since that was told
                    await ask(fleet, "a", "remove", flow="air")
        unknown = "expected a flow of the fleet, got 'air'"
        joins = f"(there, but not in this fleet yet): {again}; if it stays so, stop the agent there"
        assert told == [
            unknown,
            f"{unknown}. It may be on d, e {joins}",
            f"flow air has a part on e {joins}",
            "the plan of flow air is being changed, or a part of it stands still: " + again,
            "made",
        ]

    assert tell(story, 5).watch.violations == []


def test_a_deployment_while_boards_join_that_have_a_flow_of_that_name_is_refused() -> None:
    """Both ran, and that of the boards which joined was removed."""

    async def story(fleet: VirtualFleet) -> None:
        await two_sites(fleet)
        await ask(fleet, "d", "deploy", document=FLOW, pins={"minute": "e"})
        await asyncio.sleep(20)
        _bring_together(fleet)
        await asyncio.sleep(8)
        assert fleet.agents["a"].flows.joining() == {"d", "e"}
        with pytest.raises(EdgertError, match=r"air has a part on d, e \(there, but not in this fleet yet\): try"):
            await ask(fleet, "a", "deploy", document=FLOW)
        await asyncio.sleep(90)
        assert on(fleet) == {"d": (1, False), "e": (1, False)}

    assert tell(story, 5).watch.violations == []
