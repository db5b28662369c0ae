"""Whom the deaths of slots are put down to: who is stopped for them, and who is tried by itself."""

from __future__ import annotations

import random

import pytest

from edgert.core.checkpoint.position import Position
from edgert.flow.document import from_plain
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from gateway.hosts.slot_deaths import MOST_DEATHS, STEADY_S, SUSPECT
from tests.gateway.slots_walk import Walk
from tests.runtime.worlds import CHAINED
from tests.slots_here import InThisProcess
from tests.waiting import in_loop, until


async def brought_back(walk: Walk, stopped: list[str]) -> None:
    hosted = walk.slots.hosted[walk.run]
    await until(lambda: stopped or not hosted.down, "the flow")


@in_loop
@pytest.mark.parametrize("at", ["it", "nothing", "another"])
async def test_only_a_flow_that_its_slots_may_have_died_of_each_time_is_stopped(at: str) -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 1, "full")
    stopped: list[str] = []
    walk.stopped = stopped
    walk.slots.begin(walk.run)
    (process,) = walk.processes
    for died in range(MOST_DEATHS):
        assert not stopped, died
        process.start()
        process.activity.begin({"it": walk.slots.hosted[walk.run].number, "nothing": 0, "another": 999}[at])
        process.die()
        await brought_back(walk, stopped)
    why = f"its slots died {MOST_DEATHS} times at work for it, none long after the other"
    assert stopped == ([] if at == "another" else [why])


@in_loop
async def test_of_flows_that_a_slot_may_have_died_of_one_at_a_time_is_brought_back() -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 1, "full")
    other = FlowRun(from_plain(CHAINED | {"name": "g"}, REGISTRY), REGISTRY, 1, 1, Progress(Position()), "full")
    (process,) = walk.processes
    for run in (walk.run, other):
        walk.slots.begin(run)
        walk.slots.hosted[run].deaths = SUSPECT
    process.start()
    process.die()
    process.start()
    first, second = (walk.slots.hosted[run] for run in (walk.run, other))
    await brought_back(walk, [])
    assert (first.down, second.down) == (False, True)
    InThisProcess.clock.advance(STEADY_S)
    await until(lambda: not second.down, "the second flow")
    assert not first.down, "it goes on"


@in_loop
async def test_who_lives_for_long_between_is_not_stopped() -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 1, "full")
    stopped: list[str] = []
    walk.stopped = stopped
    walk.slots.begin(walk.run)
    (process,) = walk.processes
    for _ in range(3 * MOST_DEATHS):
        process.start()
        InThisProcess.clock.advance(STEADY_S)
        process.die()
        await brought_back(walk, stopped)
    assert not stopped
