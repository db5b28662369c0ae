"""An at-least-once flow in slots: what leaves ahead of a checkpoint leaves again exactly if a slot dies before that."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from edgert.core.checkpoint.checkpoint import Checkpoint
from tests.gateway.slots_walk import JOINED, MESSAGES, SPLIT, Walk, truth
from tests.runtime.worlds import CHAINED
from tests.waiting import in_loop


class AheadWalk(Walk):
    """A walk whose results leave now and then ahead of their checkpoint."""

    def __init__(self, draw: random.Random) -> None:
        document = {**draw.choice([CHAINED, JOINED, SPLIT]), "delivery": "at-least-once"}
        super().__init__(draw, document, draw.choice(["even", "locality"]), draw.choice([1, 2, 3]))
        self.ahead: list[dict[str, Any]] = []
        """What left ahead of the next checkpoint."""
        self.repeated: Counter[tuple[float, str]] = Counter()

    async def leave_ahead(self) -> None:
        for process in self.processes:
            for run in process.slot.runs.values() if process.slot else ():
                if self.draw.random() < 0.7:
                    run.tell_results()
            if process.running:
                process.listen()
        async with self.busy:
            if self.run.pending:
                return
            rows = self.slots.checkpoints.take_results(self.run)
            if self.draw.random() < 0.2:  # they could not be written
                self.slots.checkpoints.give_back(self.run, rows)
            else:
                self.ahead += rows
                self.shipped += rows

    def commit(self, form: Checkpoint) -> None:
        super().commit(form)
        self.ahead.clear()

    @asynccontextmanager
    async def last_checkpoint(self, flow: str) -> AsyncIterator[tuple[list[bytes], bytes]]:
        async with super().last_checkpoint(flow) as found:
            self.repeated += counted(self.ahead)
            self.ahead.clear()
            yield found


def counted(rows: Iterable[dict[str, Any]]) -> Counter[tuple[float, str]]:
    found: Counter[tuple[float, str]] = Counter()
    for row in rows:
        found[row["window_start"], row["source"]] += row["n"]
    return found


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_and_what_is_doubled_had_left_before_a_death(seed: int) -> None:
    in_loop(walk_through)(random.Random(seed), deadly=seed % 4 > 0)


async def walk_through(draw: random.Random, deadly: bool) -> None:
    hasty = draw.random() < 0.3
    walk = AheadWalk(draw)
    walk.slots.deaths.most_deaths = 1_000
    if hasty:  # the daemon waits too short for some answers, which then come late
        walk.slots.checkpoints.hold_s, walk.slots.checkpoints.answer_s = 0.001, 0.0
    walk.slots.begin(walk.run)
    for process in walk.processes:
        process.start()
    while walk.fed < MESSAGES:
        kind = draw.random()
        if kind < 0.4:
            walk.feed()
        elif kind < 0.85:
            walk.work()
        elif kind < 0.93:
            await walk.leave_ahead()
        elif kind < 0.97 or not deadly:
            await walk.checkpoint()
        else:
            walk.die()
        await asyncio.sleep(0)  # what was lost is brought back
    shipped = await walk.finish()
    assert shipped == truth(walk.fed) + walk.repeated
    for process in walk.processes:
        process.stop_now()
