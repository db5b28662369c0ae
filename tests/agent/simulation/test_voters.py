"""Boards that are new, lose their card or begin apart, while a fleet is split: never two owners, and a way on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.lease.leases import LeaseError
from agent.network.transport import RequestError
from agent.simulation.described.events import FleetEvent
from agent.simulation.fleet import VirtualFleet
from edgert.core.errors import EdgertError
from tests.agent.simulation.worlds import FLOW, ask, carry, cut, disturb, members, new_board, on, tell, two_sites


async def deploys(fleet: VirtualFleet, *names: str) -> None:
    """Each board tries; the other ones, at the same time."""
    asked = [ask(fleet, name, "deploy", document=FLOW) for name in names]
    await asyncio.gather(*asked, return_exceptions=True)
    await asyncio.sleep(60)


def test_boards_that_start_together_are_one_fleet_in_which_all_vote() -> None:
    async def story(fleet: VirtualFleet) -> None:
        assert members(fleet) == {frozenset("abcd")}

    tell(story)


@pytest.mark.parametrize(("here", "there"), [("b", "c"), ("bd", "ce")])
def test_a_new_board_that_meets_one_side_of_a_split_fleet_makes_it_no_majority(here: str, there: str) -> None:
    """Before, it counted at once: half of the old boards and the new one were a majority, as was the other half."""

    async def story(fleet: VirtualFleet) -> None:
        fleet.die("a")
        await asyncio.sleep(200)
        await ask(fleet, "b", "forget", board="a", force=True)
        await asyncio.sleep(20)
        assert members(fleet) == {frozenset(here + there)}
        cut(fleet, here, "a" + there, 400.0)
        await asyncio.sleep(20)
        new_board(fleet, "a", 0.1)
        await asyncio.sleep(40)
        await deploys(fleet, here[0], there[0])
        await asyncio.sleep(500)
        assert members(fleet) == {frozenset(here + there + "a")}
        assert (await ask(fleet, "c", "deploy", document=FLOW))["assignment"]

    assert tell(story, len(here + there) + 1).watch.violations == []


def test_what_three_boards_agreed_on_is_known_to_every_majority_of_four() -> None:
    """Two of three remembered a flow; the third one and a new board were half of four with the first name."""

    async def story(fleet: VirtualFleet) -> None:
        fleet.die("d")
        await asyncio.sleep(200)
        await ask(fleet, "a", "forget", board="d")
        fleet.die("a")
        await asyncio.sleep(30)
        await ask(fleet, "b", "deploy", document=FLOW)
        await asyncio.sleep(10)
        new_board(fleet, "d", 0.1)
        await asyncio.sleep(40)
        cut(fleet, "bc", "ad", 300.0)
        fleet.start("a")
        await asyncio.sleep(40)
        await deploys(fleet, "d", "a")
        assert on(fleet).keys() == {"b"}

    assert tell(story).watch.violations == []


def test_a_board_with_a_new_card_votes_only_when_it_was_told_what_the_others_remember() -> None:
    async def story(fleet: VirtualFleet) -> None:
        fleet.die("b")
        await asyncio.sleep(30)
        await ask(fleet, "a", "deploy", document=FLOW)
        await asyncio.sleep(5)
        cut(fleet, "a", "bc", 300.0)
        new_board(fleet, "c", 0.1)
        fleet.start("b")
        await asyncio.sleep(40)
        with pytest.raises(EdgertError, match=r"Not reached: a\..* Without a vote: c \(.*new disk\)\."):
            await ask(fleet, "b", "deploy", document=FLOW)
        await asyncio.sleep(330)
        assert fleet.agents["c"].flows.leases.memory.votes
        assert fleet.agents["c"].flows.leases.memory.record("air").state == "runs"

    assert tell(story, 3).watch.violations == []


def test_a_new_board_that_reaches_none_of_its_seeds_begins_no_fleet() -> None:
    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW)
        cut(fleet, "d", "abc", 120.0)
        new_board(fleet, "d", 0.1)
        await asyncio.sleep(30)
        with pytest.raises(LeaseError, match=r"d has not met its fleet yet: start the boards of its agent\.seeds"):
            await ask(fleet, "d", "deploy", document=FLOW)
        await asyncio.sleep(150)
        assert members(fleet) == {frozenset("abcd")}
        assert on(fleet) == {"a": (1, False)}

    assert tell(story).watch.violations == []


def test_the_smaller_side_forgets_no_board_unless_it_is_forced_to() -> None:
    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW)
        cut(fleet, "abc", "de", 500.0)
        await asyncio.sleep(250)
        with pytest.raises(LeaseError, match=r"d|e reaches 2 of the fleet's 5 boards.*--force"):
            await ask(fleet, "d", "forget", board="a")
        await deploys(fleet, "d", "e")
        assert on(fleet).keys() == {"a"}

    assert tell(story, 5).watch.violations == []


def test_of_two_fleets_that_began_apart_the_greater_one_goes_on() -> None:
    """A board that began alone has a flow of its own with the same name; its number is as great."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW)
        cut(fleet, "d", "abc", 100.0)
        new_board(fleet, "d", 0.1)
        await asyncio.sleep(5)
        fleet.agents["d"].membership.seeds = []
        await asyncio.sleep(15)
        for _ in range(2):
            await ask(fleet, "d", "deploy", document=FLOW)
            await ask(fleet, "d", "remove", flow="air")
        await ask(fleet, "d", "deploy", document=FLOW)
        fleet.agents["d"].membership.seeds = fleet.agents["c"].membership.seeds
        await asyncio.sleep(200)
        assert members(fleet) == {frozenset("abcd")}
        assert on(fleet) == {"a": (1, False)}

    tell(story)


async def returns(fleet: VirtualFleet) -> None:
    """Boards a and b got new cards while c was off, and began a fleet. Now c is back with what it knew."""
    fleet.apply(FleetEvent(0.0, "kill", ("c",), 160.0))
    await asyncio.sleep(5)
    for name in "ab":
        new_board(fleet, name, 20.0)
    await asyncio.sleep(60)
    assert members(fleet) == {frozenset("ab")}
    await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "b"})
    await asyncio.sleep(120)


def test_a_board_that_returns_with_old_voters_does_not_end_a_fleet_that_works() -> None:
    """Its record named more boards: the two others took it over, had no vote by it, and no flow was changed again."""

    async def story(fleet: VirtualFleet) -> None:
        await returns(fleet)
        await ask(fleet, "a", "move", flow="air", moves={"minute": "a"})
        await ask(fleet, "a", "move", flow="air", moves={"minute": "b"})
        assert [fleet.agents[name].presence.status()["majority"] for name in "abc"] == [True, True, False]
        with pytest.raises(LeaseError, match=r"c reaches 1 of.*Without a vote: a \(it is of another fleet\), b"):
            await fleet.agents["c"].flows.leases.read("air")
        await asyncio.sleep(600)
        assert members(fleet) == {frozenset("abc")}
        fleet.apply(FleetEvent(0.0, "kill", ("b",), 3.0))
        await asyncio.sleep(60)
        assert on(fleet) == {"a": (5, False), "b": (5, False)}

    assert tell(story, 3).watch.violations == []


def test_half_of_an_old_fleet_gives_way_to_a_new_one_of_as_many_boards() -> None:
    async def story(fleet: VirtualFleet) -> None:
        old = fleet.agents["a"].flows.leases.memory.voters.fleet
        new_board(fleet, "c", 230.0)
        await asyncio.sleep(200)
        await ask(fleet, "a", "forget", board="c")
        fleet.apply(FleetEvent(0.0, "kill", ("b",), 100.0))
        await asyncio.sleep(5)
        new_board(fleet, "a", 20.0)
        await asyncio.sleep(60)
        assert members(fleet) == {frozenset("ac")}
        assert old > fleet.agents["a"].flows.leases.memory.voters.fleet, "the old one would go on, if both worked"
        await asyncio.sleep(60)
        await ask(fleet, "a", "deploy", document=FLOW)
        await asyncio.sleep(400)
        assert members(fleet) == {frozenset("abc")}

    tell(story, 3, seed=5)


def test_a_board_without_a_vote_is_none_of_a_majority_for_people_either() -> None:
    async def story(fleet: VirtualFleet) -> None:
        for name in "ab":
            new_board(fleet, name, 10.0)
        await asyncio.sleep(60)
        for name in "abc":
            told = fleet.agents[name].presence.status()
            assert (told["reached"], told["blank"], told["majority"]) == (["a", "b", "c"], ["a", "b"], False)
        with pytest.raises(LeaseError, match=r"boards, and a change .* half of them\. Without a vote: a \(") as refused:
            await fleet.agents["a"].flows.leases.read("air")
        assert "Not reached" not in str(refused.value)
        for name in "ab":
            await ask(fleet, "c", "forget", board=name, force=True)
        await asyncio.sleep(60)
        assert members(fleet) == {frozenset("abc")}
        assert all(agent.presence.status()["majority"] for agent in fleet.agents.values())

    tell(story, 3)


async def refused(*_: Any) -> Any:
    raise RequestError("refused")


def test_a_board_whose_agent_takes_no_requests_does_not_make_the_others_write_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its packets arrive, its requests fail: as behind a firewall that lets UDP through only."""

    async def story(fleet: VirtualFleet) -> None:
        new_board(fleet, "d", 200.0)
        await asyncio.sleep(190)
        await ask(fleet, "a", "forget", board="d")
        for _ in range(200):
            if "d" in fleet.agents:
                break
            await asyncio.sleep(0.1)
        monkeypatch.setattr(fleet.agents["d"], "serve", refused)
        await asyncio.sleep(20)
        before = fleet.agents["b"].flows.leases.memory.voters.number
        await asyncio.sleep(600)
        assert fleet.agents["a"].flows.leases.members == set("abc")
        chosen = {fleet.agents["a"].flows.coordinator_of(f"flow-{number}") for number in range(20)}
        assert chosen <= set("abc"), "it can change no flow"
        assert (fleet.agents["b"].flows.leases.memory.voters.number - before) >> 32 < 10

    tell(story)


def test_a_flow_can_be_deployed_on_boards_that_have_just_started() -> None:
    """A new one is alive for some seconds before it votes: the fleet asks voters only."""

    async def story(fleet: VirtualFleet) -> None:
        new_board(fleet, "d", 200.0)
        await asyncio.sleep(190)
        await ask(fleet, "a", "forget", board="d")
        for _ in range(200):
            if "d" in fleet.agents["a"].alive():
                break
            await asyncio.sleep(0.1)
        assert "d" not in fleet.agents["a"].flows.leases.members
        found = await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "d"})
        assert found["assignment"]["minute#1"] == "d"

    tell(story)


apart = st.lists(
    st.tuples(
        st.sampled_from(["carry", "carry", "cut", "kill"]), st.sampled_from("abcde"), st.sampled_from("abcde"),
        st.floats(0.1, 300.0), st.floats(0.0, 200.0),
    ),
    max_size=6,
)  # fmt: skip


@pytest.mark.long
@given(apart, st.integers(0, 9))
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_two_fleets_that_meet_or_exchange_boards_become_one_that_works(
    steps: list[tuple[str, str, str, float, float]], seed: int
) -> None:
    async def story(fleet: VirtualFleet) -> None:
        await two_sites(fleet)
        await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "b"})
        for step in steps:
            if step[0] != "carry":
                await disturb(fleet, [step], 0.0)
            elif fleet.agents.keys() >= set("abcde"):
                here, there = ("abc", "de") if step[2] in "de" else ("de", "abc")
                carry(fleet, step[1], here.replace(step[1], ""), there.replace(step[1], ""))
                await asyncio.sleep(step[4])
        fleet.apply(FleetEvent(0.0, "heal", tuple("abcde"), None))
        for name in "bcde":
            fleet.apply(FleetEvent(0.0, "heal", (name,), None))
        await asyncio.sleep(1_500)
        assert members(fleet) == {frozenset("abcde")}
        for name in "ad":
            await ask(fleet, name, "deploy", document=FLOW)

    assert tell(story, 5, seed=seed).watch.violations == []


faults = st.lists(
    st.tuples(
        st.sampled_from(["cut", "one-way", "kill", "card", "deploy", "deploy", "remove", "move"]),
        st.sampled_from("abcde"), st.sampled_from("abcde"), st.floats(0.1, 80.0), st.floats(0.0, 40.0),
    ),
    max_size=12,
)  # fmt: skip


@pytest.mark.long  # some seconds an example
@given(faults, st.integers(0, 9))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_cuts_and_new_cards_make_two_owners(steps: list[tuple[str, str, str, float, float]], seed: int) -> None:
    """One card at a time: where most boards lose theirs, nobody remembers."""

    async def story(fleet: VirtualFleet) -> None:
        await disturb(fleet, steps)
        assert members(fleet) == {frozenset("abcde")}

    fleet = tell(story, 5, seed=seed)
    assert fleet.watch.violations == []
