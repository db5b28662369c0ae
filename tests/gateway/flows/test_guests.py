"""Guests stop where this board's agent says no more that they may run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from edgert.core.clock import VirtualClock
from edgert.core.system_clock import SleepingClock
from edgert.flow.plan import Location
from gateway.flows.guests import Guests
from gateway.flows.plans import FLEET
from tests.gateway.flows.parts_here import AT, GUEST, parts_of
from tests.gateway.whole_gateway import Gateway, document
from tests.gateway.worlds import status_of
from tests.waiting import in_loop


@pytest.mark.parametrize("at", [GUEST, AT])
@in_loop
async def test_guests_stop_when_their_agent_says_nothing_any_more(at: dict[str, Location], tmp_path: Path) -> None:
    """They ran on for ever. A part with a source here does so."""
    gateway, clock, is_guest = Gateway(tmp_path / "db"), VirtualClock(), at is GUEST
    await gateway.flows.deploy(document(), FLEET, at, 1)
    parts, _ = parts_of(gateway)
    guests = Guests(parts, clock.monotonic)
    clock.advance(1000.0)
    await guests.look()
    assert parts.status()["f"]["state"] == "running", "no agent ever said anything"
    await guests.let_run(30.0)
    clock.advance(29.0)
    await guests.let_run(30.0)
    clock.advance(29.0)
    await guests.look()
    assert parts.status()["f"]["state"] == "running"
    clock.advance(1.0)
    await guests.look()
    await guests.look()
    assert parts.status()["f"]["suspended"] is is_guest
    [flow] = status_of(gateway).object()["flows"]
    assert (flow["condition"]["level"], flow["state"]) == (
        ("warning", "suspended") if is_guest else ("idle", "running")
    )
    gateway.crash()


def test_the_clock_of_guests_goes_on_while_the_machine_is_suspended() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SleepingClock().monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)
