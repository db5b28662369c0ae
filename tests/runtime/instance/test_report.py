"""What a stage says of itself."""

from __future__ import annotations

from edgert.core.batch import RawBatch
from edgert.core.clock import VirtualClock
from edgert.runtime.instance.report import report
from edgert.runtime.instance.source_queue import SourceQueue
from edgert.runtime.pool.pool import Pool
from edgert.scheduling.consumption import at_most
from tests.runtime.pools import known
from tests.runtime.worlds import flow_run


def test_what_a_queue_has_shed_and_messages_that_did_not_come_are_dropped_rows_of_the_part_that_lost_them() -> None:
    run = flow_run()
    pool = Pool(VirtualClock())
    pool.add(run.all)
    first, last = run.stages["in"], run.stages["minute"]
    assert first.instance is last.instance
    first.instance.queue = SourceQueue(100, most_owed_bytes=0)
    for n in range(12):
        pool.put([(first.instance, 0, RawBatch(["x/a"], [b"%d" % n], 0.0, 0.0, 10))])
    first.instance.delivery.no_room += 3
    first.instance.delivery.unsent[last.number] += 1
    last.logic.drops["bad row"] += 5
    drops = {name: report(stage, 0.0).drops for name, stage in run.stages.items()}
    assert drops.pop("in") == {"queue over budget": 2, "no checkpoint, QoS 0": 3}
    assert drops.pop("minute") == {"not sent": 1, "bad row": 5}
    assert not any(drops.values())


def test_what_a_lent_thread_has_in_its_hand_waits_as_what_is_in_the_queue_does() -> None:
    run, clock = flow_run(), VirtualClock()
    pool = Pool(clock, consumption=at_most(3))
    pool.add(run.all)
    first = run.stages["in"]
    known(first.instance)
    batch = RawBatch(["x/a"] * 7, [b"0"] * 7, clock.monotonic(), 0.0, 70)
    pool.put([(first.instance, 0, batch)], wake=False)
    clock.advance(2.0)
    pool.put([(first.instance, 0, batch)], wake=False)
    found = report(first, clock.monotonic())
    assert (found.queue_rows, found.queue_bytes, found.queue_age_s) == (4 + 7, 40 + 70, 2.0)
    pool.lend(1.0)
    found = report(first, clock.monotonic())
    assert (found.queue_rows, found.queue_bytes, found.queue_age_s) == (0, 0, 0.0)
