"""What comes from the loop while the store thread brings a flow back, and what is missing at the end of a flow."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from edgert.core.batch import RawBatch
from edgert.links import frames
from edgert.links.frames import frame
from gateway.hosts.slotted_flow import KEPT_BYTES, SlottedFlow
from tests.gateway.slots_walk import Walk
from tests.runtime.worlds import CHAINED
from tests.waiting import in_loop

SHORT_S = 0.05
"""A call that must wait is taken for waiting after that."""


async def brought_back(walk: Walk, call: Callable[[], Any], *, early: bool) -> tuple[SlottedFlow, list[bytes]]:
    """Has a slot die and `call` be called, from another thread: before what the new life begins with is sent (`early`),
    or behind it. Returns also what was sent to all slots of the flow behind it."""
    walk.slots.begin(walk.run)
    walk.feed()
    hosted = walk.slots.hosted[walk.run]
    sent: list[bytes] = []
    thread = threading.Thread(target=call)
    build = walk.slots._build

    begun = asyncio.Event()

    def called() -> None:
        begun.set()
        thread.start()
        thread.join(SHORT_S)

    def built(hosted: SlottedFlow, blobs: Sequence[bytes], queue: bytes) -> None:
        if early:
            called()
        build(hosted, blobs, queue)
        walk.slots.orders.to_all = lambda hosted, data: sent.append(data)  # type: ignore[method-assign]
        if not early:
            called()

    walk.slots._build = built  # type: ignore[method-assign]
    (process,) = walk.processes
    process.start()
    process.die()
    await begun.wait()
    thread.join(60.0)
    assert not thread.is_alive()
    return hosted, sent


@in_loop
async def test_a_model_that_comes_while_a_flow_is_brought_back_reaches_it() -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 1, "full")
    hosted, sent = await brought_back(walk, lambda: walk.slots.offer_model(walk.run, "p", {"version": 3}), early=False)
    assert not hosted.down
    assert sent == [frame(frames.MODEL, hosted.number, "p", {"version": 3})]


@in_loop
async def test_a_flow_that_is_removed_while_it_is_brought_back_is_ended_in_its_slots() -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 1, "full")
    hosted, sent = await brought_back(walk, lambda: walk.slots.remove(walk.run), early=True)
    assert sent == [frame(frames.DROP, hosted.number)]
    assert not walk.slots.orders.by_number
    assert not walk.slots._by_instance


def test_a_report_waits_while_the_counts_of_a_life_go_to_those_before() -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 1, "full")
    walk.slots.begin(walk.run)
    thread = threading.Thread(target=lambda: walk.slots.figures.report(walk.run, "in"))
    with walk.slots.hosted[walk.run].lock:
        thread.start()
        thread.join(SHORT_S)
        assert thread.is_alive()
    thread.join(60.0)
    assert not thread.is_alive()


@in_loop
async def test_what_was_not_kept_and_came_after_a_flow_was_halted_is_counted_when_it_is_drained() -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 1, "full")
    walk.slots.begin(walk.run)
    (process,) = walk.processes
    process.start()
    walk.draw = random.Random(2)
    assert await walk.while_it_waits(lambda: walk.slots.checkpoints.halt(walk.run, walk.feeding, 60.0))
    hosted = walk.slots.hosted[walk.run]
    source = walk.run.stages["in"].instance
    for _ in range(20):
        walk.slots.put([(source, 0, RawBatch(["x/a"], [b"{}"], 0.0, 1_000.0, KEPT_BYTES // 8))])
    lost = sum(fed.lost.total() for fed in hosted.since_mark() if fed.lost)
    assert lost > 0
    list(walk.slots.checkpoints.run_out(walk.run))
    assert walk.slots.figures.report(walk.run, "in").drops["lost with a slot"] == lost


@in_loop
async def test_a_flow_is_not_up_until_it_is_brought_back() -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 1, "full")
    walk.slots.begin(walk.run)
    (process,) = walk.processes
    assert not walk.slots.checkpoints.is_up(walk.run)
    process.start()
    assert walk.slots.checkpoints.is_up(walk.run)
    process.die()
    process.start()
    assert not walk.slots.checkpoints.is_up(walk.run), "the slot is, and knows nothing of the flow"
    await asyncio.gather(*walk.slots.deaths.recoveries.running)
    assert walk.slots.checkpoints.is_up(walk.run)


@in_loop
async def test_a_slot_that_dies_while_its_flow_stands_still_for_a_plan_gives_it_one_new_life() -> None:
    """The plan is not made after all, so the flow is to go on, too."""
    walk = Walk(random.Random(3), CHAINED, "even", 2)
    walk.slots.begin(walk.run)
    for process in walk.processes:
        process.start()
    walk.feed()
    async with walk.busy:
        assert await walk.while_it_waits(lambda: walk.slots.checkpoints.stop_for_plan(walk.run, walk.feeding, 60.0))
        walk.processes[1].die()
        walk.processes[1].start()
        await asyncio.sleep(0)
        walk.slots.go_on(walk.run)
        await asyncio.sleep(0)
    await asyncio.gather(*walk.slots.deaths.recoveries.running)
    for _ in range(100):
        for process in walk.processes:
            process.step()
            process.listen()
    lives = {number for process in walk.processes if process.slot for number in process.slot.runs}
    assert lives == {walk.slots.hosted[walk.run].number}
