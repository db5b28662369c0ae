"""Boards that fall silent before a change or amid it: cut off from the coordinator only, or without power a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from agent.simulation.described.events import FleetEvent
from agent.simulation.fleet import VirtualFleet
from edgert.core.errors import EdgertError
from tests.agent.simulation.worlds import FLOW, ask, cut, tell

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


def test_where_the_coordinator_is_not_reached_people_are_told_to_ask_another_board() -> None:
    """A command must not be carried out twice, so no third board passes it on."""

    async def story(fleet: VirtualFleet) -> None:
        coordinator = fleet.agents["a"].flows.coordinator_of("air")
        first, second, *_ = sorted(fleet.agents.keys() - {coordinator})
        cut(fleet, coordinator, [first], 900.0)
        with pytest.raises(EdgertError, match="may still be carried out; another board may reach the coordinator: ask"):
            await ask(fleet, first, "deploy", document=FLOW)
        await ask(fleet, second, "deploy", document=FLOW)
        await ask(fleet, second, "move", flow="air", moves={"minute": first})

    assert tell(story, 5).watch.violations == []


def test_other_boards_pass_a_request_on_where_the_first_one_does_not_reach_the_gateway_either() -> None:
    """One board was asked, as drawn."""

    async def story(fleet: VirtualFleet) -> None:
        first, *others, last = sorted(fleet.agents)
        cut(fleet, last, [first, *others[:2]], 900.0)
        await asyncio.sleep(30)
        status: Mapping[str, Any] = {"verb": "part.status", "args": {}}
        for _ in range(20):
            assert await fleet.agents[first].requests.request(last, "fleet.gateway", status, 10.0) == {}

    tell(story, 5)
