"""Raw figures of flows in slots: told while somebody asks, and not otherwise."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edgert.links import frames
from edgert.runtime.instance.figures import COUNTERS
from edgert.runtime.slot.__main__ import REPORT_S
from gateway.hosts.slot_figures import TOLD_S
from tests.gateway.test_slots import Walk
from tests.gateway.test_slots_under_way import begun
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


def rows_out(walk: Walk) -> int:
    """That the source is known to have given."""
    at = COUNTERS.index("rows_out")
    return int(sum(figures.counters[at] for figures in walk.slots.figures.of(walk.run) if figures.counters))


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
