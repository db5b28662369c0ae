"""A queue in one slot that another one feeds: what it holds is bounded, however late it is said that it is full."""

from __future__ import annotations

import pytest

from edgert.core.batch import RawBatch, size_of
from edgert.links.frames import REPORT, frame
from edgert.links.unix import SOCKET_BYTES
from edgert.runtime.instance.schedule import PROFILED_ROWS
from edgert.runtime.slot.__main__ import REPORT_S
from edgert.runtime.slot.credit import UNDER_WAY_BYTES
from tests.gateway.worlds import begun
from tests.slots_here import InThisProcess

ROWS = 200
MOST_FED = 20_000_000
"""Resident bytes of rows; what they are decoded from is no more than a source keeps."""


@pytest.mark.parametrize("reads", [False, True])
def test_a_queue_that_another_slot_feeds_exceeds_its_budget_by_what_may_be_under_way(reads: bool) -> None:
    """`reads`: whether its slot reads its links while its operators stand still."""
    walk, near, far = begun()
    assert far.slot is not None
    (run,) = far.slot.runs.values()
    (window,) = run._instances
    far.slot.pool.begin_hold([window])
    size = ROWS * size_of([{"time": 1.0, "source": "a"}])
    fed = 0
    while fed * size < MOST_FED:
        payloads = [b'{"time": %d}' % time for time in range(fed * ROWS, (fed + 1) * ROWS)]
        walk.slots.put([(walk.run.all[0], 0, RawBatch(["x/a"] * ROWS, payloads, 0.0, 1_000.0, 100 * ROWS, owed=True))])
        near.link.flush()
        near.step()
        if reads:
            far.step()
        fed += 1
    for _ in range(500):
        near.step()
        far.step()
    budget = window.queue.budget_bytes
    assert budget < window.queue.size <= budget + UNDER_WAY_BYTES + 2 * size
    far.slot.pool.release([window])
    for _ in range(10_000):
        if window.counters.rows_in == fed * ROWS:
            break
        near.link.flush()
        near.step()
        far.step()
    assert window.counters.rows_in == fed * ROWS
    for process in walk.processes:
        process.stop_now()


def test_what_a_slot_does_not_take_from_another_is_shown_of_the_one_that_holds_it() -> None:
    walk, near, far = begun()

    def unsent() -> list[int]:
        InThisProcess.clock.advance(REPORT_S)
        for process in walk.processes:
            process.listen()
            process.step()
            process.listen()
        return [slot["unsent_bytes"] for slot in walk.slots.figures.slots()]

    assert unsent() == [0, 0]
    assert near.slot is not None
    link = near.slot.links[far.number]
    link.send(frame(REPORT, b"x" * 4 * SOCKET_BYTES))  # a frame that its receiver passes over
    waiting = link.backlog_bytes
    assert waiting > SOCKET_BYTES
    near.step()
    InThisProcess.clock.advance(REPORT_S)
    near.step()
    near.listen()
    assert [slot["unsent_bytes"] for slot in walk.slots.figures.slots()] == [waiting, 0], "the other has not read"
    for _ in range(100):
        near.step()
        far.step()
    assert unsent() == [0, 0]
    for process in walk.processes:
        process.stop_now()


def test_a_slots_policy_is_told_what_rows_cost() -> None:
    walk, near, far = begun()
    payloads = [b'{"time": 1}'] * 2 * PROFILED_ROWS
    walk.slots.put([(walk.run.all[0], 0, RawBatch(["x/a"] * len(payloads), payloads, 0.0, 1_000.0, 20_000, owed=True))])
    for _ in range(20):
        for process in (near, far):
            process.link.flush()
            process.step()
    assert near.slot is not None
    (run,) = near.slot.runs.values()
    source = next(instance for instance in run.flow_run.all if instance.counters.rows_in)
    assert source.schedule.profiled[0] == 0
    InThisProcess.clock.advance(REPORT_S)
    near.step()
    assert source.schedule.profiled[0] == source.counters.rows_in == len(payloads)
    for process in walk.processes:
        process.stop_now()
