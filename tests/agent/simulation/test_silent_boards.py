"""Boards that fall silent before a change or amid it: cut off from the coordinator only, or without power a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from agent.membership.transport import UnansweredError
from agent.simulation.described.events import FleetEvent
from agent.simulation.fleet import VirtualFleet
from edgert.core.errors import EdgertError
from tests.agent.simulation.worlds import FLOW, ask, cut, restart_agent, tell

MOMENTS = (0.1, 0.15, 0.21)
"""Seconds into the move: before the stop, before all have prepared, amid the commits."""
BEARABLE_S = 20.0
Fault = Callable[[VirtualFleet, str, str], None]


def _newest(fleet: VirtualFleet) -> tuple[Mapping[str, str], bool]:
    """Where operators run by the newest plan, and whether a part of it stands still or is not there."""
    found = {name: agent.virtual_gateway.runs.get("air") for name, agent in fleet.agents.items()}
    newest = max((run.part for run in found.values() if run), key=lambda part: part.plan)
    runs = {name for name, run in found.items() if run and not run.stopped and run.part.plan == newest.plan}
    return newest.assignment, not set(newest.assignment.values()) <= runs


def _stood_s(moment_s: float, role: str, fault: Fault) -> tuple[float, str, list[Any]]:
    """The longest time for which the flow stood still, the window's board then, and violations. `role`: of the board
    that the fault hits. A move of the window from one board to another one is begun."""
    worst, after = 0.0, ""

    async def story(fleet: VirtualFleet) -> None:
        nonlocal worst, after
        coordinator = fleet.agents["a"].flows.coordinator_of("air")
        source, old, sink, new = (name for name in sorted(fleet.agents) if name != coordinator)
        await ask(fleet, source, "deploy", document=FLOW, pins={"readings": source, "minute": old, "central": sink})
        await asyncio.sleep(40)
        moved = asyncio.ensure_future(ask(fleet, source, "move", flow="air", moves={"minute": new}))
        await asyncio.sleep(moment_s)
        fault(fleet, coordinator, {"old": old, "new": new, "sink": sink}[role])
        stood_s = 0.0
        for _ in range(1_500):
            await asyncio.sleep(0.1)
            stood_s = stood_s + 0.1 if _newest(fleet)[1] else 0.0
            worst = max(worst, stood_s)
        with suppress(EdgertError):
            await moved
        at = _newest(fleet)[0]["minute#1"]
        after = {old: "old", new: "new"}.get(at, at)

    violations = tell(story, 5).watch.violations
    return worst, after, violations


@pytest.mark.parametrize("moment_s", MOMENTS)
@pytest.mark.parametrize("role", ["old", "new", "sink"])
@pytest.mark.parametrize("way", ["both", "to it", "from it"])
def test_a_move_is_made_though_the_coordinator_and_one_board_are_cut_off_from_each_other(
    moment_s: float, role: str, way: str
) -> None:
    """A third board passes requests on. The flow stood still for 60 s, or as long as the cut."""

    def fault(fleet: VirtualFleet, coordinator: str, board: str) -> None:
        ends = (board, coordinator) if way == "from it" else (coordinator, board)
        cut(fleet, ends[0], ends[1], 600.0, way != "both")

    stood_s, after, violations = _stood_s(moment_s, role, fault)
    assert stood_s <= BEARABLE_S
    assert (after, violations) == ("new", [])


@pytest.mark.parametrize("moment_s", MOMENTS)
@pytest.mark.parametrize("role", ["old", "new", "sink"])
def test_a_board_that_loses_its_power_amid_a_move_for_ten_seconds_stops_the_flow_not_much_longer(
    moment_s: float, role: str
) -> None:
    """Its connections do not end by themselves: the flow stood still for 75 s."""

    def fault(fleet: VirtualFleet, coordinator: str, board: str) -> None:
        fleet.apply(FleetEvent(0.0, "kill", (board,), 10.0))

    stood_s, _, violations = _stood_s(moment_s, role, fault)
    assert stood_s <= BEARABLE_S
    assert violations == []


def _cut_from_the_coordinator(fleet: VirtualFleet, count: int = 1, one_way: bool = False) -> list[str]:
    """Cuts so many boards off from the coordinator, one way: from it. Returns them, the others, and the coordinator."""
    coordinator = fleet.agents["a"].flows.coordinator_of("air")
    others = sorted(fleet.agents.keys() - {coordinator})
    cut(fleet, coordinator, others[:count], 900.0, one_way)
    return [*others, coordinator]


@pytest.mark.parametrize("noticed", [False, True])
def test_a_board_that_does_not_reach_the_coordinator_has_a_third_board_pass_what_people_ask_for_on(
    noticed: bool,
) -> None:
    """It was refused for as long as the cut lasted."""

    async def story(fleet: VirtualFleet) -> None:
        first, second, *_, coordinator = _cut_from_the_coordinator(fleet)
        await asyncio.sleep(30.0 * noticed)
        made = await ask(fleet, first, "deploy", document=FLOW, pins={"readings": second})
        assert (made["coordinator"], made["assignment"]["readings"]) == (coordinator, second)
        await ask(fleet, first, "move", flow="air", moves={"minute": first})
        assert (await ask(fleet, first, "remove", flow="air"))["removed"]
        with pytest.raises(EdgertError, match=f"^{coordinator}: fleet.coordinate: .*expected a flow of the fleet"):
            await ask(fleet, first, "remove", flow="air")

    assert tell(story, 5).watch.violations == []


@pytest.mark.parametrize("cut_after_s", [0.01, 0.08])
def test_a_request_whose_answer_is_lost_is_carried_out_once_and_answered_through_a_third_board(
    cut_after_s: float,
) -> None:
    """The removal was asked for again, and found no flow."""

    async def story(fleet: VirtualFleet) -> None:
        coordinator = fleet.agents["a"].flows.coordinator_of("air")
        first = min(fleet.agents.keys() - {coordinator})
        await ask(fleet, first, "deploy", document=FLOW)
        asked = asyncio.ensure_future(ask(fleet, first, "remove", flow="air"))
        await asyncio.sleep(cut_after_s)
        _cut_from_the_coordinator(fleet, one_way=True)
        assert (await asked)["removed"]

    assert tell(story, 5).watch.violations == []


@pytest.mark.parametrize("breaks", [False, True])
def test_a_coordinator_that_starts_anew_is_not_asked_again_for_what_it_may_have_begun(breaks: bool) -> None:
    """It did not know the request again, and refused it: the change that was under way was said not to be made."""

    async def story(fleet: VirtualFleet) -> None:
        coordinator = fleet.agents["a"].flows.coordinator_of("air")
        first, second, *_ = sorted(fleet.agents.keys() - {coordinator})
        await ask(fleet, first, "deploy", document=FLOW)
        requests = fleet.agents[first].requests
        request = requests._request

        async def broken(board: str, verb: str, args: Mapping[str, Any], timeout_s: float) -> Any:
            try:
                async with asyncio.timeout(0.5 if board == coordinator else None):
                    return await request(board, verb, args, timeout_s)
            except TimeoutError:
                raise UnansweredError("the connection failed") from EOFError()

        if breaks:
            requests._request = broken
        moved = asyncio.ensure_future(ask(fleet, first, "move", flow="air", moves={"minute": second}))
        await asyncio.sleep(0.15)
        await restart_agent(fleet, coordinator)
        with pytest.raises(EdgertError, match=r"(anew meanwhile|failed)\. The request may still be carried out"):
            await moved

    assert tell(story, 5).watch.violations == []


def test_another_board_passes_a_request_on_where_the_first_one_does_not_reach_the_coordinator_either() -> None:
    """One board was asked, as drawn."""

    async def story(fleet: VirtualFleet) -> None:
        first, *_ = _cut_from_the_coordinator(fleet, 3)
        await asyncio.sleep(30)
        await ask(fleet, first, "deploy", document=FLOW)
        for _ in range(20):
            await ask(fleet, first, "rules", flow="air")

    tell(story, 7)


def test_a_board_passes_on_what_gateways_and_coordinators_are_asked_for_and_nothing_else() -> None:
    async def story(fleet: VirtualFleet) -> None:
        told = {"to": "b", "args": {}, "timeout_s": 1.0}
        for verb in ("fleet.lease", "fleet.pass-on", ["fleet.gateway"], None):
            with pytest.raises(EdgertError, match=r"expected one of fleet\.gateway, fleet\.coordinate, got"):
                await fleet.agents["a"].requests.serve("c", {**told, "verb": verb})
        assert await fleet.agents["a"].requests.serve("c", {**told, "verb": "fleet.gateway", "to": "zz"}) == {}

    tell(story, 3)
