"""State that is found damaged in the database while its flow runs in slots: they have it, and give all of it."""

from __future__ import annotations

import random

import pytest

from gateway.hosts.slotted_flow import SlottedFlow
from tests.gateway.slots_walk import SPLIT, Walk, truth
from tests.waiting import in_loop


async def damaged(seed: int, slots: int) -> tuple[Walk, SlottedFlow]:
    """A flow that has made a checkpoint, of which nothing can be read any more."""
    walk = Walk(random.Random(seed), SPLIT, "even", slots, "none")
    walk.slots.begin(walk.run)
    for process in walk.processes:
        process.start()
    walk.die = lambda: None  # type: ignore[method-assign]
    await captured(walk)
    walk.forms[:] = []
    walk.run.rewrite = True
    for _ in range(20):
        walk.feed()
    return walk, walk.slots.hosted[walk.run]


async def captured(walk: Walk) -> None:
    for _ in range(20):
        walk.feed()
    assert await walk.while_it_waits(lambda: walk.slots.checkpoints.capture(walk.run, walk.feeding))
    form = walk.run.form()
    assert form is not None
    walk.commit(form)
    walk.run.committed(form)
    walk.slots.checkpoints.committed(walk.run)


@pytest.mark.parametrize("slots", [1, 3])
@in_loop
async def test_the_next_checkpoint_says_everything(slots: int) -> None:
    walk, hosted = await damaged(1, slots)
    await captured(walk)
    assert (walk.rewritten, walk.run.rewrite) == (1, False)
    await captured(walk)
    assert (walk.rewritten, hosted.rewriting) == (1, False), "once"
    assert await walk.finish() == truth(walk.fed)
    for process in walk.processes:
        process.stop_now()


@in_loop
async def test_an_attempt_that_came_to_nothing_is_followed_by_another_but_holds_up_no_checkpoint() -> None:
    """All state may be more than can be given in time."""
    walk, _ = await damaged(1, 2)
    assert not walk.slots.checkpoints.halt(walk.run, walk.feeding, -1.0)
    await captured(walk)
    assert (walk.rewritten, walk.run.rewrite) == (0, True)
    await captured(walk)
    assert (walk.rewritten, walk.run.rewrite) == (1, False)
    assert await walk.finish() == truth(walk.fed)
    for process in walk.processes:
        process.stop_now()


@in_loop
async def test_a_flow_is_brought_to_its_end_without_what_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    walk, _ = await damaged(1, 2)
    monkeypatch.setattr(walk, "read_checkpoint", lambda name: pytest.fail("expected nothing to be read"))
    assert await walk.finish() == truth(walk.fed)
    for process in walk.processes:
        process.stop_now()
