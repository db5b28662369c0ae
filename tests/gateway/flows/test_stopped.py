"""Parts of flows that stand still: when they go on by themselves, and when by a word of others."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import EdgertError, MisfitError
from edgert.flow.plan import Location
from edgert.runtime.flow_run import FlowRun
from gateway.flows.plans import FLEET
from tests.gateway.flows.parts_here import AT, GUEST, parts_of
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop, until


@pytest.mark.parametrize("fails", [False, True])
@in_loop
async def test_a_part_does_not_go_on_by_itself_while_its_next_plan_is_being_prepared(
    fails: bool, tmp_path: Path
) -> None:
    """It went on by the old plan, and had the next one prepared: a commit took back what it had done since."""
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), FLEET, AT, 1)
    parts, _ = parts_of(gateway)
    gateway.feed(1, 1.0)
    await parts.obey("f", 2)
    loop, plans, go_on = asyncio.get_running_loop(), gateway.flows.plans, threading.Event()
    made = plans.planned

    def slow(*given: Any) -> FlowRun:
        go_on.wait(60.0)
        if fails:
            raise MisfitError("its state does not fit")
        return made(*given)

    plans.planned = slow  # type: ignore[assignment, method-assign]
    parts.stopped.patience_s = 3.0  # a busy machine may need as long until the next plan is being prepared
    await parts.stop("f")
    exported = await parts.export("f", [], {})
    preparing = asyncio.ensure_future(parts.prepare(dict(document().document), AT, 2, [exported]))
    began = loop.time()
    await until(lambda: loop.time() > began + 3.2, "the end of its patience")
    assert parts.status()["f"]["state"] == "stopped"
    parts.stopped.patience_s = 0.1
    go_on.set()
    if fails:
        with pytest.raises(MisfitError):
            await preparing
        await until(lambda: parts.status()["f"]["state"] == "running", "that the flow goes on by itself")
    else:
        await preparing
        await parts.commit("f", 2)
    gateway.feed(2, 2.0)
    assert await gateway.flows.remove("f")
    assert gateway.shipped() == 2
    gateway.crash()


@pytest.mark.parametrize("at", [GUEST, AT])
@in_loop
async def test_a_guest_waits_for_the_agents_word_also_after_a_start(at: dict[str, Location], tmp_path: Path) -> None:
    """A part with a source here does not: nobody else takes its input."""
    is_guest = at is GUEST
    first = Gateway(tmp_path / "db")
    await first.flows.deploy(document(), FLEET, at, 1)
    parts, links = parts_of(first)
    await parts.stopped.let_guests_wait()
    assert parts.status()["f"]["guest"] is is_guest
    assert await parts.suspend("f")
    assert (parts.status()["f"]["suspended"], links.held) == (True, {"f"})
    await parts.resume("f")
    assert (parts.status()["f"]["state"], links.held) == ("running", set())
    first.crash()

    second = Gateway(tmp_path / "db")
    parts, links = parts_of(second)
    assert parts.status()["f"]["suspended"] is is_guest
    assert links.held == ({"f"} if is_guest else set())
    await parts.resume("f")
    assert (parts.status()["f"]["state"], links.held) == ("running", set())
    second.crash()


@in_loop
async def test_a_coordinator_that_stops_a_suspended_part_may_change_its_plan(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), FLEET, GUEST, 1)
    parts, _ = parts_of(gateway)
    await parts.suspend("f")
    await parts.stop("f")
    assert not parts.status()["f"]["suspended"]
    await parts.resume("f")  # the agent's word is late
    assert parts.status()["f"]["state"] == "stopped"
    await parts.abort("f", 0)
    assert parts.status()["f"]["state"] == "running"
    gateway.crash()


@in_loop
async def test_a_prepared_part_does_not_go_on_by_itself_where_preparing_it_once_more_fails(tmp_path: Path) -> None:
    """Its patience began anew then, and the part went on by the old plan beside the one that may be committed."""
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), FLEET, AT, 1)
    parts, links = parts_of(gateway)
    await parts.obey("f", 2)
    await parts.stop("f")
    await parts.prepare(dict(document().document), AT, 2, [])
    plans, loop = gateway.flows.plans, asyncio.get_running_loop()

    def fails(*_: Any) -> FlowRun:
        raise MisfitError("its state does not fit")

    plans.planned = fails  # type: ignore[assignment, method-assign]
    parts.stopped.patience_s = 0.0
    with pytest.raises(MisfitError):
        await parts.prepare(dict(document().document), AT, 2, [])
    began = loop.time()
    await until(lambda: loop.time() > began + 0.1, "the end of its patience")
    assert (parts.status()["f"]["state"], links.held) == ("prepared", {"f"})
    gateway.crash()


@in_loop
async def test_a_stop_that_comes_late_does_not_stop_a_part_that_runs_by_the_plan_of_that_change(tmp_path: Path) -> None:
    """Another board passed the request on, and the change was made; the first one was still on its way."""
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), FLEET, AT, 1)
    parts, _ = parts_of(gateway)
    await parts.obey("f", 2)
    await parts.stop("f", 2)
    await parts.prepare(dict(document().document), AT, 2, [await parts.export("f", [], {})])
    await parts.commit("f", 2)
    with pytest.raises(EdgertError, match="runs by plan 2 already"):
        await parts.stop("f", 2)
    assert parts.status()["f"]["state"] == "running"
    gateway.crash()
