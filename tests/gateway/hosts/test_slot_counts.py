"""What is counted in slots, through walks with deaths: each drop once, and no figure goes back."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edgert.core.checkpoint.checkpoint import Checkpoint
from gateway.ledger.drop_ledger import DropLedger
from tests.gateway.slots_walk import MESSAGES, Walk
from tests.runtime.worlds import CHAINED
from tests.slots_here import InThisProcess
from tests.waiting import in_loop, until


@pytest.mark.parametrize("seed", range(20))
def test_drops_are_counted_once_however_often_slots_die(seed: int) -> None:
    """Those of the time since a slot's last report too, and not again when what was dropped is fed again."""
    in_loop(count_through)(random.Random(seed))


async def count_through(draw: random.Random) -> None:
    walk = Walk(draw, CHAINED, draw.choice(["even", "locality"]), draw.choice([1, 2]))
    walk.slots.deaths.most_deaths = 1_000
    walk.slots.begin(walk.run)
    for process in walk.processes:
        process.start()
    bad = said = 0
    while walk.fed < MESSAGES or walk.slots.hosted[walk.run].down:
        kind = draw.random()
        if kind < 0.4:
            malformed = draw.random() < 0.3
            bad += malformed
            walk.feed(bad=malformed)
        elif kind < 0.9:
            walk.work()
        elif kind < 0.93:
            InThisProcess.clock.advance(0.5)  # there are reports now and then
        elif kind < 0.97 or walk.fed >= MESSAGES:
            await walk.checkpoint()
        else:
            walk.die()
        await asyncio.sleep(0)
        now = sum(walk.slots.figures.report(walk.run, "in").drops.values())
        assert said <= now <= bad, "figures do not go back, and nothing counts twice"
        said = now

    def all_count() -> bool:
        for process in walk.processes:
            if not process.running:
                process.start()
            process.step()
            process.listen()
        InThisProcess.clock.advance(0.02)
        return sum(walk.slots.figures.report(walk.run, "in").drops.values()) == bad

    for _ in range(300):
        all_count()
        await asyncio.sleep(0)
    await until(all_count, "the drops of all rows")  # a worker's thread may get no turn on a busy machine
    for process in walk.processes:
        process.stop_now()


class Saying(Walk):
    """Its commits say what was dropped."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw, CHAINED, draw.choice(["even", "locality"]), draw.choice([1, 2]))
        database = cast(Any, SimpleNamespace(outbox_size=SimpleNamespace(bytes=0), quota_bytes=1.0))
        self.ledger = DropLedger(database, InThisProcess.clock, every_s=1.0)
        self.said: Counter[tuple[str, str]] = Counter()
        form = self.run.form
        self.run.form = lambda drops=(): form(self.ledger.due(self.run))  # type: ignore[method-assign]

    def commit(self, form: Checkpoint) -> None:
        super().commit(form)
        self.ledger.said(self.run, form.drops)
        for operator, reason, count in form.drops:
            assert count > 0
            self.said[operator, reason] += count


@pytest.mark.parametrize("seed", range(20))
def test_checkpoints_say_each_drop_once_however_often_slots_die(seed: int) -> None:
    """Also where commits fail, and of what stands in queues when the flow ends."""
    in_loop(say_through)(random.Random(seed))


async def say_through(draw: random.Random) -> None:
    walk = Saying(draw)
    walk.slots.deaths.most_deaths = 1_000
    walk.slots.begin(walk.run)
    for process in walk.processes:
        process.start()
    bad = 0
    while walk.fed < MESSAGES:
        kind = draw.random()
        if kind < 0.4:
            malformed = draw.random() < 0.3
            bad += malformed
            walk.feed(bad=malformed)
        elif kind < 0.9:
            walk.work()
        elif kind < 0.93:
            InThisProcess.clock.advance(0.5)
        elif kind < 0.97:
            await walk.checkpoint()
        elif kind < 0.98:
            await walk.spill()
        else:
            walk.die()
        await asyncio.sleep(0)
        assert walk.said.total() <= bad
    await walk.finish()
    assert walk.said == {("in", "bad_payload"): bad}
    for process in walk.processes:
        process.stop_now()
