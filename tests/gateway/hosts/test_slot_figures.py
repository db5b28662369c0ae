"""Raw figures of flows in slots: told while somebody asks, and not otherwise."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edgert.flow.physical import Fusion
from edgert.links import frames
from edgert.runtime.instance.figures import COUNTERS
from edgert.runtime.slot.__main__ import REPORT_S
from gateway.hosts.slot_figures import TOLD_S
from tests.gateway.slots_walk import Walk
from tests.gateway.worlds import begun
from tests.slots_here import InThisProcess
from tests.waiting import in_loop


async def ask(walk: Walk) -> None:
    asked = asyncio.create_task(walk.slots.figures.ask())
    while not asked.done():
        step(walk)
        await asyncio.sleep(0)
    await asked


def step(walk: Walk) -> None:
    for process in walk.processes:
        process.link.flush()
        process.step()
        process.listen()


def rows_out(walk: Walk, counter: str = "rows_out") -> int:
    """That the source is known to have given; or another counter of all instances."""
    at = COUNTERS.index(counter)
    return int(sum(figures.counters[at] for figures in walk.slots.figures.of(walk.run) if figures.counters))


async def works(walk: Walk, steps: int = 50) -> None:
    """Slots work, and those that died start again."""
    for _ in range(steps):
        for process in walk.processes:
            if not process.running:
                process.start()
        step(walk)
        await asyncio.sleep(0)  # what was lost is brought back


async def reports(walk: Walk) -> None:
    """All slots send their reports."""
    InThisProcess.clock.advance(REPORT_S)
    await works(walk, 2)


@in_loop
async def test_figures_are_told_while_somebody_asks_and_cost_nothing_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    walk, _, _ = begun()
    told: list[Any] = []
    take = walk.slots._frame

    def count(process: Any, received: list[Any]) -> None:
        if received[0] == frames.REPORT:
            told.append(received[3])
        take(process, received)

    for process in walk.processes:
        monkeypatch.setattr(process, "_on_frame", count)
    for _ in range(20):
        walk.feed()
    for _ in range(50):
        step(walk)
    InThisProcess.clock.advance(REPORT_S)
    step(walk)
    assert told
    assert set(map(repr, told)) == {"None"}, "nobody has asked"
    assert rows_out(walk) == 0

    await ask(walk)
    assert rows_out(walk) > 0, "the first answer has them"
    told.clear()
    InThisProcess.clock.advance(REPORT_S)
    step(walk)
    assert told
    assert all(told), "they go with the reports"
    told.clear()
    InThisProcess.clock.advance(TOLD_S)
    step(walk)
    InThisProcess.clock.advance(REPORT_S)
    step(walk)
    assert told
    assert told[-1] is None, "nobody asks any more"
    for process in walk.processes:
        process.stop_now()


@pytest.mark.parametrize("fusion", ["none", "full"])
@in_loop
async def test_a_life_for_which_nobody_asked_counts_when_its_slot_dies(fusion: Fusion) -> None:
    walk, near, far = begun(fusion)
    await ask(walk)
    InThisProcess.clock.advance(TOLD_S + REPORT_S)
    await reports(walk)
    source, worked = walk.run.all[0].name, 0
    for dies in (near, far):
        for _ in range(20):
            walk.feed()
        await works(walk)
        await reports(walk)
        worked += walk.fed  # all of it again, as nothing was committed
        dies.die()
        told = {one: walk.slots.figures.report(walk.run, one).rows_in for one in walk.run.stages}
        assert walk.slots.figures.get(walk.run, source).counters[0] == worked >= told[source.split("+")[0]]
        assert rows_out(walk) >= worked
        await works(walk)
    await ask(walk)
    assert walk.slots.figures.get(walk.run, source).counters[0] == worked + walk.fed == 100
    for process in walk.processes:
        process.stop_now()


@in_loop
async def test_a_slot_that_dies_while_figures_are_wanted_tells_them_from_its_start() -> None:
    walk, near, _ = begun()
    await ask(walk)
    near.die()
    await works(walk)
    for _ in range(20):
        walk.feed()
    await works(walk)
    await reports(walk)
    source = walk.run.all[0].name
    assert walk.slots.figures.get(walk.run, source).gauges[3] == InThisProcess.clock.monotonic(), "nobody asked again"
    assert walk.slots.figures.get(walk.run, source).counters[0] == 20
    for process in walk.processes:
        process.stop_now()
