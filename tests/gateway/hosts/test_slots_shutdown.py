"""Flows in slots at the end of their daemon: who gives a last part, and that nobody computes anything after it."""

from __future__ import annotations

import random

from edgert.core.checkpoint.position import Position
from edgert.flow.document import from_plain
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from gateway.hosts.slot_process import QUIET_S
from tests.gateway.slots_walk import Walk
from tests.runtime.worlds import CHAINED
from tests.waiting import in_loop


@in_loop
async def test_at_the_end_one_that_hangs_costs_its_time_once_and_its_flows_are_not_asked_again() -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 1, "full")
    walk.slots.checkpoints.hold_s = walk.slots.checkpoints.answer_s = 0.1
    flow = from_plain(CHAINED, REGISTRY)
    runs = [FlowRun(flow, REGISTRY, 1, 1, Progress(Position()), "full") for _ in range(20)]
    for run in runs:
        walk.slots.begin(run)
    (process,) = walk.processes
    process.start()  # and is never stepped
    assert walk.slots.checkpoints.quiesce(runs, walk.feeding, 5.0) == []
    walk.slots.checkpoints.hold_s = 600.0  # a second wait would outlast the test
    assert not any(walk.slots.checkpoints.capture(run, walk.feeding) for run in runs)


@in_loop
async def test_what_gave_its_last_part_computes_nothing_more_and_what_did_not_is_ended() -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 1, "full")
    walk.slots.begin(walk.run)
    (process,) = walk.processes
    process.start()
    walk.draw = random.Random(2)
    walk.feed()
    rests: list[FlowRun] = []

    def rest() -> bool:
        rests.extend(walk.slots.checkpoints.quiesce([walk.run], walk.feeding, 60.0))
        return bool(rests)

    assert await walk.while_it_waits(rest)
    assert rests == [walk.run]
    assert len(walk.run.pending) == 1
    assert process.slot is not None
    (run,) = process.slot.runs.values()
    walk.feed()
    process.step()
    assert run.capturing, "it waits, and what comes waits aside"
    assert walk.slots.checkpoints.quiesce([walk.run], walk.feeding, -1.0) == []
    process.step()
    assert not process.slot.runs
    assert not walk.slots.checkpoints.is_up(walk.run)


@in_loop
async def test_a_turn_that_ends_after_the_daemon_says_what_it_has_to_nobody() -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 1, "full")
    walk.slots.begin(walk.run)
    (process,) = walk.processes
    process.start()
    process.step()
    assert process.slot is not None
    (run,) = process.slot.runs.values()
    process.stop_now()
    process.slot._send(run.flow_run.all[0], [])


@in_loop
async def test_one_that_was_silent_and_reports_later_has_no_last_part_and_computes_nothing_more() -> None:
    """What it published behind the last checkpoint would come again, or be lost unsaid: nobody waits for the broker."""
    walk = Walk(random.Random(1), CHAINED, "locality", 1, "full")
    walk.slots.begin(walk.run)
    (process,) = walk.processes
    process.start()
    process.step()
    walk.feed()
    process.silent_s = QUIET_S + 1.0
    assert walk.slots.checkpoints.quiesce([walk.run], walk.feeding, 5.0) == []
    process.silent_s = 0.0
    assert not await walk.while_it_waits(lambda: walk.slots.checkpoints.capture(walk.run, walk.feeding))
    process.step()
    assert process.slot is not None
    assert not process.slot.runs
