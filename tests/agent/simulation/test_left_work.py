"""Deployments and removals that a coordinator left when it was cut off: the next one ends them, and people are told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from agent.lease.leases import Lease
from agent.simulation.described.events import FleetEvent
from agent.simulation.fleet import VirtualFleet
from agent.simulation.gateway import VirtualGateway
from edgert.core.errors import EdgertError
from tests.agent.simulation.worlds import FLOW, ask, cut, on, tell


async def cut_off_in_a_deployment(fleet: VirtualFleet, cut_s: float) -> tuple[asyncio.Future[Any], list[str]]:
    """The coordinator is cut off after the first part. Returns what it was asked for, and the boards of the flow."""
    chosen = next(iter(set(fleet.watch.coordinators.values())))
    others = [name for name in sorted(fleet.agents) if name != chosen]
    pins = {"readings": others[0], "minute": others[1], "central": others[2]}
    asked = asyncio.ensure_future(ask(fleet, chosen, "deploy", document=FLOW, pins=pins))
    for _ in range(1_000):
        await asyncio.sleep(0.001)
        if on(fleet):
            break
    cut(fleet, chosen, others, cut_s)
    return asked, others[:3]


@pytest.mark.parametrize("cut_s", [35.0, 45.0])
def test_a_coordinator_that_was_cut_off_does_not_undo_what_its_successor_finished(cut_s: float) -> None:
    """It removed the part with the source, for good: that board had not heard of the successor."""

    async def story(fleet: VirtualFleet) -> None:
        asked, boards = await cut_off_in_a_deployment(fleet, cut_s)
        await asyncio.sleep(120)
        assert on(fleet) == dict.fromkeys(boards, (1, False))
        with pytest.raises(EdgertError, match="deployment may still be done later"):
            await asked

    tell(story, 5)


def test_a_part_that_the_left_deployment_lacks_is_deployed_when_its_board_is_back() -> None:
    """The flow was remembered as one that runs, and stayed without it."""

    async def story(fleet: VirtualFleet) -> None:
        asked, boards = await cut_off_in_a_deployment(fleet, 30.0)
        fleet.apply(FleetEvent(0.0, "kill", (boards[2],), 300.0))
        await asyncio.sleep(250)
        assert on(fleet) == dict.fromkeys(boards[:2], (1, False))
        await asyncio.sleep(150)
        assert on(fleet) == dict.fromkeys(boards, (1, False))
        asked.cancel()

    tell(story, 5)


def cut_off_in_a_removal(monkeypatch: pytest.MonkeyPatch, fleet: VirtualFleet, cut_s: float) -> str:
    """The coordinator will be cut off when it writes that it removes the flow."""
    chosen, write = fleet.agents["a"].flows.coordinator_of("air"), Lease.write

    async def cut_off(lease: Lease, state: str, boards: Any) -> None:
        if state == "removing":
            monkeypatch.setattr(Lease, "write", write)
            cut(fleet, chosen, fleet.agents.keys() - {chosen}, cut_s)
        await write(lease, state, boards)

    monkeypatch.setattr(Lease, "write", cut_off)
    return chosen


def test_a_removal_that_is_refused_and_happens_later_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW)
        chosen = cut_off_in_a_removal(monkeypatch, fleet, 60.0)
        with pytest.raises(EdgertError, match=r"reaches 1 of the fleet's 3 boards.*removal may still be done later"):
            await ask(fleet, chosen, "remove", flow="air")
        await asyncio.sleep(120)
        assert on(fleet) == {}

    tell(story, 3)


async def refuse(_: Mapping[str, Any]) -> Any:
    raise EdgertError("its card is full")


def test_a_change_of_rules_that_one_board_refuses_says_that_it_may_still_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other boards have stored it, and the newest rules hold."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "b"})
        monkeypatch.setitem(fleet.agents["b"].virtual_gateway._verbs, "part.rules", refuse)
        with pytest.raises(EdgertError, match="change of rules may still be done later"):
            await ask(fleet, "a", "rules", flow="air", heuristic="even")
        assert (await ask(fleet, "a", "rules", flow="air"))["heuristic"] == "even"
        with pytest.raises(EdgertError) as refused:
            await ask(fleet, "a", "rules", flow="air", heuristic="none such")
        assert "later" not in str(refused.value)

    tell(story, 3)


def test_a_request_whose_coordinator_dies_says_that_it_may_still_be_carried_out() -> None:
    async def story(fleet: VirtualFleet) -> None:
        chosen = next(iter(set(fleet.watch.coordinators.values())))
        other = min(fleet.agents.keys() - {chosen})
        asked = asyncio.ensure_future(ask(fleet, other, "deploy", document=FLOW))
        await asyncio.sleep(0.02)
        fleet.apply(FleetEvent(0.0, "kill", (chosen,), 300.0))
        with pytest.raises(EdgertError, match=r"does not answer pings\. The request may still be"):
            await asked

    tell(story)


def test_a_removal_that_was_left_is_ended_from_the_source_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It went by the names of the boards."""
    order = []
    remove = VirtualGateway._remove

    async def noted(gateway: VirtualGateway, args: Mapping[str, Any]) -> Any:
        order.append(gateway.name)
        if len(order) == 1:
            raise EdgertError("it is busy")
        return await remove(gateway, args)

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins={"readings": "c", "minute": "b", "central": "a"})
        for agent in fleet.agents.values():  # its operators do not come together: as with sources on two boards
            monkeypatch.setattr(agent.flows, "change", lambda *_: asyncio.sleep(0))
        with pytest.raises(EdgertError, match=r"it is busy.*removal may still be done later"):
            await ask(fleet, "a", "remove", flow="air")
        await asyncio.sleep(60)
        assert on(fleet) == {}

    monkeypatch.setattr(VirtualGateway, "_remove", noted)
    tell(story, 3)
    assert order == ["c", "c", "b", "a"]
