"""A fleet whose boards do not all hear each other, and boards that are gone: never two owners, and a way on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.lease.grants import LEASE_S
from agent.lease.leases import LeaseError
from agent.simulation.described.events import FleetEvent
from agent.simulation.fleet import VirtualFleet
from agent.simulation.gateway import BoardPart
from edgert.core.errors import EdgertError
from tests.agent.simulation.worlds import COPIES, FLOW, ask, cut, disturb, members, on, tell

APART = {"minute": "b", "central": "c"}


@pytest.mark.parametrize("apart_s", [0.5, 60.0])
def test_only_the_greater_side_of_a_split_fleet_deploys(apart_s: float) -> None:
    """Before, both did, and both flows stayed. 0.5 s after the cut no board has noticed it."""

    async def story(fleet: VirtualFleet) -> None:
        cut(fleet, "abe", "cd", 200.0)
        await asyncio.sleep(apart_s)
        await asyncio.gather(
            ask(fleet, "a", "deploy", document=FLOW),
            ask(fleet, "c", "deploy", document=FLOW),
            return_exceptions=True,
        )
        await asyncio.sleep(30)
        if apart_s > 1:
            lacking = r"c|d reaches 2 of the fleet's 5 boards.*Not reached: a, b, e"
            with pytest.raises(EdgertError, match=lacking) as refused:
                await ask(fleet, "c", "deploy", document=FLOW)
            assert "edgert fleet forget" not in str(refused.value), "so early it is refused"
            await ask(fleet, "b", "deploy", document=FLOW)
        await asyncio.sleep(240)

    fleet = tell(story, 5)
    assert fleet.watch.violations == []
    assert not any(stands for _, stands in on(fleet).values())
    if apart_s > 1:
        assert on(fleet).keys() <= {"a", "b", "e"}


def test_neither_half_of_a_fleet_that_is_split_evenly_changes_a_flow() -> None:
    async def story(fleet: VirtualFleet) -> None:
        cut(fleet, "ab", "cd", 200.0)
        await asyncio.sleep(60)
        for board in "ac":
            with pytest.raises(LeaseError, match=r"reaches 2 of the fleet's 4 boards"):
                await ask(fleet, board, "deploy", document=FLOW)
        await asyncio.sleep(200)
        assert (await ask(fleet, "a", "deploy", document=FLOW))["assignment"]

    assert tell(story).watch.violations == []


def test_a_board_that_runs_a_flow_alone_and_is_cut_off_goes_on_and_the_others_do_not_deploy_it_again() -> None:
    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "c", "deploy", document=FLOW)
        cut(fleet, "c", "abd", 300.0)
        await asyncio.sleep(150)
        assert on(fleet) == {"c": (1, False)}
        with pytest.raises(EdgertError, match="flow air has a part on c, which does not answer"):
            await ask(fleet, "a", "deploy", document=FLOW)

    assert tell(story).watch.violations == []


def test_a_board_that_is_cut_off_stops_its_guests_and_they_go_on_after_the_heal() -> None:
    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins=APART)
        cut(fleet, "b", "acd", 200.0)
        await asyncio.sleep(130)
        assert on(fleet) == {"a": (1, False), "b": (1, True), "c": (1, False)}
        await asyncio.sleep(120)
        assert on(fleet) == {"a": (1, False), "b": (1, False), "c": (1, False)}

    tell(story)


@pytest.mark.parametrize(("count", "one_way"), [(4, False), (11, False), (11, True)])
def test_a_board_that_is_cut_off_has_stopped_its_guests_after_the_length_of_a_lease(count: int, one_way: bool) -> None:
    """It went by what it believed of the others: of 11 boards it stopped 87 s after the cut. A board that hears all
    and is heard by none is cut off, too."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins=APART)
        await asyncio.sleep(20)
        cut(fleet, "b", fleet.agents.keys() - {"b"}, 60.0, one_way)
        await asyncio.sleep(LEASE_S)
        assert on(fleet) == {"a": (1, False), "b": (1, True), "c": (1, False)}
        await asyncio.sleep(120)
        assert on(fleet) == {"a": (1, False), "b": (1, False), "c": (1, False)}

    tell(story, count)


@pytest.mark.parametrize("count", [3, 11, 30])
def test_no_board_takes_itself_for_cut_off_because_packets_are_lost(count: int, caplog: Any) -> None:
    async def story(fleet: VirtualFleet) -> None:
        await asyncio.sleep(180)  # each board that joins is asked about by a request or two that are lost
        await ask(fleet, "a", "deploy", document=FLOW, pins=APART)
        await asyncio.sleep(200)
        assert all(agent.presence.status()["majority"] for agent in fleet.agents.values())

    tell(story, count, loss=0.1)
    assert "stands still" not in caplog.text


def test_a_board_with_a_source_takes_its_input_on_while_it_is_cut_off() -> None:
    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "b", "deploy", document=FLOW, pins={"minute": "a"})
        cut(fleet, "b", "acd", 200.0)
        await asyncio.sleep(150)
        assert on(fleet)["b"] == (1, False)

    tell(story)


def test_a_coordinator_that_hears_one_board_only_gives_way_to_one_that_hears_a_majority() -> None:
    """All others held it for alive, through that board, and asked it; it got no lease, as long as this lasted."""

    async def story(fleet: VirtualFleet) -> None:
        deaf = fleet.agents["a"].flows.coordinator_of("air")
        heard, *others = (name for name in "abcd" if name != deaf)
        await ask(fleet, heard, "deploy", document=FLOW, pins={"readings": heard, "minute": others[0]})
        cut(fleet, deaf, others, 900.0)
        await asyncio.sleep(60)
        for board in (heard, *others):
            await ask(fleet, board, "move", flow="air", moves={"minute": board})
        with pytest.raises(LeaseError, match=f"{deaf} reaches 2 of the fleet's 4 boards"):
            await ask(fleet, deaf, "remove", flow="air")

    tell(story)


def test_a_first_voter_that_hears_one_board_only_leaves_new_boards_to_the_next() -> None:
    async def story(fleet: VirtualFleet) -> None:
        fleet.die("d")
        await asyncio.sleep(200)
        await ask(fleet, "b", "forget", board="d")
        cut(fleet, "a", "cde", 900.0)
        await asyncio.sleep(60)
        fleet.start("d")
        await asyncio.sleep(60)
        assert fleet.agents["b"].flows.leases.members == set("abcde")

    tell(story, 5)


def test_a_board_of_a_large_fleet_has_stopped_its_guests_before_it_can_be_forgotten() -> None:
    """It asks one board after the other, and is cut off once half of them are dead to it."""

    async def story(fleet: VirtualFleet) -> None:
        names = sorted(fleet.agents)
        await asyncio.sleep(20)
        await ask(fleet, names[0], "deploy", document=FLOW, pins={"minute": names[5], "central": names[2]})
        for other in names[:5] + names[6:]:
            fleet.apply(FleetEvent(0.0, "cut", (names[5], other), 1_000.0))
        for _ in range(200):
            await asyncio.sleep(3)
            with suppress(EdgertError):
                await ask(fleet, names[0], "forget", board=names[5])
                break
        else:
            pytest.fail("expected that the board can be forgotten within 600 s")
        assert on(fleet)[names[5]] == (1, True)

    tell(story, 40)


@pytest.mark.parametrize(("count", "after_s"), [(4, 180), (50, 200)])
def test_an_agent_that_began_after_a_board_was_gone_waits_as_long_until_it_forgets_it(count: int, after_s: int) -> None:
    """Its membership tells it of no dead board, and it forgot one at once, also before it had joined again: then the
    flow was deployed beside the part that still ran."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins=APART)
        await asyncio.sleep(20)
        cut(fleet, "b", fleet.agents.keys() - {"b"}, 1_000.0)
        await asyncio.sleep(9.5)
        fleet.apply(FleetEvent(0.0, "kill", ("c",), 1.0))
        await asyncio.sleep(1.1)
        for _ in range(20):
            with pytest.raises(EdgertError, match=rf"for \d+ s only: try again after {after_s} s"):
                await ask(fleet, "c", "forget", board="b")
            await asyncio.sleep(3)
        assert on(fleet)["b"] == (1, True)
        if count == 4:
            await asyncio.sleep(125)
            assert (await ask(fleet, "c", "forget", board="b"))["told"] == ["a", "d"]

    tell(story, count)


def test_an_agent_that_was_alone_counts_from_when_it_met_the_others() -> None:
    """Only since then they could tell it of a board that lives."""

    async def story(fleet: VirtualFleet) -> None:
        cut(fleet, "b", "acd", 1_000.0)
        await asyncio.sleep(120)
        cut(fleet, "c", "ad", 170.0)
        fleet.apply(FleetEvent(0.0, "kill", ("c",), 1.0))
        await asyncio.sleep(200)
        with pytest.raises(EdgertError, match=r"b is not heard of here for \d\d s only"):
            await ask(fleet, "c", "forget", board="b")
        await asyncio.sleep(180)
        assert (await ask(fleet, "c", "forget", board="b"))["told"] == ["a", "d"]

    tell(story)


def test_of_two_boards_one_goes_on_alone_when_people_say_that_the_other_is_gone() -> None:
    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "b", "deploy", document=FLOW)
        fleet.apply(FleetEvent(0.0, "kill", ("a",), 1_000.0))
        await asyncio.sleep(60)
        assert on(fleet) == {"b": (1, False)}
        with pytest.raises(LeaseError, match="b reaches 1 of the fleet's 2 boards"):
            await ask(fleet, "b", "remove", flow="air")
        with pytest.raises(EdgertError, match=r"held for dead for .* only"):
            await ask(fleet, "b", "forget", board="a", force=True)
        await asyncio.sleep(200)
        with pytest.raises(LeaseError, match="edgert fleet forget BOARD --force"):
            await ask(fleet, "b", "forget", board="a")
        assert (await ask(fleet, "b", "forget", board="a", force=True))["lost"] == {}
        assert (await ask(fleet, "b", "remove", flow="air"))["removed"]
        await asyncio.sleep(800)
        assert (await ask(fleet, "a", "deploy", document=FLOW))["assignment"]
        assert fleet.agents["b"].flows.leases.members == {"a", "b"}

    tell(story, 2)


def test_what_one_side_remembers_holds_where_people_forced_both_sides_of_a_cut_to_go_on() -> None:
    """The other side had removed the flow by a greater number: the one that ran was removed, too."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "b", "deploy", document=FLOW)
        cut(fleet, "a", "b", 600.0)
        await asyncio.sleep(250)
        await ask(fleet, "a", "forget", board="b", force=True)
        await ask(fleet, "b", "forget", board="a", force=True)
        for _ in range(3):
            await ask(fleet, "a", "deploy", document=FLOW)
            await asyncio.sleep(5)
            await ask(fleet, "a", "remove", flow="air")
        await asyncio.sleep(500)
        assert fleet.agents["a"].flows.leases.members == set("ab")
        assert on(fleet) == {"b": (1, False)}

    tell(story, 2)


def test_a_board_that_was_forgotten_by_force_still_tells_what_the_next_one_ran() -> None:
    """It has to be forced, too: it could not change the voters, as the other board goes by others."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "b"})
        cut(fleet, "c", "a", 300.0)
        fleet.die("b")
        await asyncio.sleep(250)
        await ask(fleet, "c", "forget", board="a", force=True)
        for _ in range(1_000):
            if fleet.agents["c"].flows.joining() != {"a"}:
                await asyncio.sleep(0.1)
        with pytest.raises(EdgertError, match=r"'zz' does not vote in this fleet \(any more\).*that vote: b$"):
            await ask(fleet, "c", "forget", board="zz")
        found = await ask(fleet, "c", "forget", board="b", force=True)
        assert found["lost"] == {"air": ["central", "minute#1", "minute#2"]}
        with pytest.raises(LeaseError, match=r"other boards count for c than for a: .* forget BOARD --force"):
            await ask(fleet, "a", "forget", board="b")
        await ask(fleet, "a", "forget", board="b", force=True)
        await asyncio.sleep(60)
        assert members(fleet) == {frozenset("ac")}

    tell(story, 3)


def test_a_flow_whose_board_is_gone_for_good_is_removed_and_deployed_again() -> None:
    """Before, the fleet refused both for ever. The board comes back though: what it had is given up."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins=APART)
        fleet.apply(FleetEvent(0.0, "kill", ("b",), 600.0))
        await asyncio.sleep(60)
        with pytest.raises(EdgertError, match=r"part on b, which does not answer: start it, or mend the network$"):
            await ask(fleet, "a", "remove", flow="air")
        assert fleet.agents["a"].presence.status()["long_gone"] == []
        await asyncio.sleep(200)
        assert fleet.agents["a"].presence.status()["long_gone"] == ["b"]
        with pytest.raises(EdgertError, match=r"which does not answer.*gone for good: edgert fleet forget b, then"):
            await ask(fleet, "a", "remove", flow="air")
        forgotten = await ask(fleet, "c", "forget", board="b")
        assert forgotten["lost"] == {"air": ["minute#1", "minute#2"]}
        assert forgotten["told"] == ["a", "d"]
        removed = await ask(fleet, "d", "remove", flow="air")
        assert removed["lost"] == {"b": ["minute#1", "minute#2"]}
        assert on(fleet) == {}
        await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "d"})
        await asyncio.sleep(400)
        assert on(fleet) == {"a": (3, False), "d": (3, False)}, "its removal had a number, too"

    assert tell(story).watch.violations == []


def test_a_guest_that_waits_for_a_board_that_was_forgotten_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    """After a start its operators stood still without a word. The other board may live, in a fleet that moved them."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins=APART)
        fleet.die("b")
        await asyncio.sleep(200)
        await ask(fleet, "a", "forget", board="b")
        fleet.apply(FleetEvent(0.0, "kill", ("c",), 5.0))
        await asyncio.sleep(60)
        assert on(fleet) == {"a": (1, False), "c": (1, True)}
        assert (await ask(fleet, "d", "flows"))["flows"]["air"]["boards"]["b"] == "is not in this fleet"
        what = "flow air waits here: b is not in this fleet; where it is gone for good: edgert fleet remove air, then"
        assert [what in line for line in caplog.messages].count(True) == 1
        assert (await ask(fleet, "d", "remove", flow="air"))["lost"] == {"b": ["minute#1", "minute#2"]}
        await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "d", "central": "c"})
        assert set(on(fleet)) == set("acd")

    assert tell(story).watch.violations == []


def test_a_flow_whose_board_has_a_new_card_is_deployed_again() -> None:
    """People were told to forget the board, which the fleet refuses: it is alive."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins=APART)
        fleet.apply(FleetEvent(0.0, "card", ("b",), 60.0))
        await asyncio.sleep(50)
        with pytest.raises(EdgertError, match="on b, which does not answer: start it, or mend the network"):
            await ask(fleet, "a", "move", flow="air", moves={"minute": "a"})
        await asyncio.sleep(60)
        with pytest.raises(EdgertError, match="flow air has no part on b, as with a new card: deploy the flow again"):
            await ask(fleet, "a", "move", flow="air", moves={"minute": "a"})
        await ask(fleet, "a", "deploy", document=FLOW, pins=APART)
        assert on(fleet) == {"a": (1, False), "b": (1, False), "c": (1, False)}

    tell(story)


def test_two_parts_of_before_end_with_one_owner() -> None:
    """As fleets had them that were split before there were leases."""

    async def story(fleet: VirtualFleet) -> None:
        for number, board in enumerate("ac"):
            disk = fleet.agents[board].virtual_gateway.disk
            disk.parts["air"], disk.fences["air"] = BoardPart(FLOW, dict.fromkeys(COPIES, board), 1), number + 1
        for board in "ac":
            fleet.apply(FleetEvent(0.0, "kill", (board,), 1.0))
        await asyncio.sleep(60)
        assert on(fleet) == {"c": (1, False)}

    tell(story)


@pytest.mark.parametrize("after_s", [0.004, 0.008, 0.02, 0.03, 0.05, 0.07, 0.1])
def test_a_deployment_is_handed_over_when_its_coordinator_dies_in_the_midst(after_s: float) -> None:
    """Before, the flow stayed without the parts that were not deployed yet."""

    async def story(fleet: VirtualFleet) -> None:
        chosen = next(iter(set(fleet.watch.coordinators.values())))
        others = [name for name in "abcde" if name != chosen]
        pins = {"readings": others[0], "minute": others[1], "central": others[2]}
        asked = asyncio.ensure_future(ask(fleet, others[0], "deploy", document=FLOW, pins=pins))
        await asyncio.sleep(after_s)
        fleet.apply(FleetEvent(0.0, "kill", (chosen,), 300.0))
        await asyncio.sleep(30)
        found = on(fleet)
        assert found in ({}, dict.fromkeys(others[:3], (1, False)))
        asked.cancel()

    tell(story, 5)


faults = st.lists(
    st.tuples(
        st.sampled_from(["cut", "one-way", "kill", "deploy", "remove", "move"]),
        st.sampled_from("abcd"), st.sampled_from("abcd"), st.floats(0.1, 80.0), st.floats(0.0, 40.0),
    ),
    max_size=10,
)  # fmt: skip


@pytest.mark.long  # some seconds an example
@given(faults, st.integers(0, 9))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_cuts_and_heals_make_two_owners(steps: list[tuple[str, str, str, float, float]], seed: int) -> None:
    async def story(fleet: VirtualFleet) -> None:
        await disturb(fleet, steps)
        found = on(fleet)
        assert len({plan for plan, _ in found.values()}) <= 1
        assert not any(stands for _, stands in found.values())
        parts = [run.part for agent in fleet.agents.values() if (run := agent.virtual_gateway.runs.get("air"))]
        assert len({tuple(part.assignment.items()) for part in parts}) <= 1
        assert not parts or set(parts[0].assignment.values()) == found.keys()

    fleet = tell(story, seed=seed)
    assert fleet.watch.violations == []
