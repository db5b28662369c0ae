"""A lent thread begins with what comes while nothing else waits, and goes on with it while that is so."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Sequence

import pytest

from edgert.core.batch import Batch
from edgert.core.clock import VirtualClock
from edgert.operators.base.logic import Now
from edgert.runtime.instance.inner_queue import InnerQueue
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.runtime.instance.turn import Turn
from edgert.runtime.pool.pool import Pool
from edgert.scheduling.congestion_aware import CongestionAware
from edgert.scheduling.consumption import SLOW_S, at_most, everything, half
from tests.runtime.pools import DEADLINE_S, Pass, instance, known, rows, running


def test_what_comes_alone_is_the_next_turn_of_the_lent_thread_and_nothing_overtakes_it() -> None:
    first, other = instance("first", Pass()), instance("other", Pass())
    known(first, other)
    pool = Pool(VirtualClock())
    pool.add([first, other])
    pool.put([(first, 0, rows(1))], wake=False)
    assert (first.schedule.running, first.queue.rows) == (True, 0)
    assert not pool.hold([first], 0.0), "a checkpoint waits for it"
    pool.put([(first, 0, rows(2))], wake=False)
    pool.put([(other, 0, rows(3))])
    assert (first.queue.rows, other.queue.rows) == (1, 1), "one turn is given at a time"
    pool.lend(1.0)
    assert (first.logic.seen, other.logic.seen) == ([(0, 1), (0, 2)], [(0, 3)])  # type: ignore[attr-defined]
    assert first.idle
    assert pool.hold([first], 0.0)
    pool.put([(first, 0, rows(4))], wake=False)
    assert first.queue.rows == 1, "held"
    pool.release([first])
    assert pool.hold([other], 0.0)
    pool.put([(other, 0, rows(*range(5)))], wake=False)
    pool.release([other])
    pool.lend(1.0)
    assert first.counters.rows_in == 3
    assert other.counters.rows_in == 6


def test_much_that_comes_alone_is_worked_on_in_several_turns() -> None:
    one = instance("one", Pass())
    known(one)
    pool = Pool(VirtualClock(), consumption=at_most(3))
    pool.add([one])
    for most, left in ((9, 4), (2, 5)):
        one.schedule.most_rows = most
        pool.put([(one, 0, rows(*range(7)))], wake=False)
        assert (one.schedule.running, one.queue.rows) == (True, left)
        pool.lend(1.0)
        assert (one.idle, [n for _, n in one.logic.seen]) == (True, [*range(7)])  # type: ignore[attr-defined]
        one.logic.seen.clear()  # type: ignore[attr-defined]
    assert one.counters.turns == 3 + 3, "a short turn allows more rows in the next"


def test_an_instance_that_is_held_has_the_rest_of_a_batch_before_all_that_came_after_it() -> None:
    def act(batch: Batch) -> None:
        if batch.rows[0]["n"] == 3:
            pool.begin_hold([one])
            pool.put([(one, 0, rows(7, 8))])

    one = instance("one", Pass(act))
    known(one)
    pool = Pool(VirtualClock(), consumption=at_most(3))
    pool.add([one])
    pool.put([(one, 0, rows(*range(7)))], wake=False)
    pool.lend(1.0)
    assert pool.at_rest([one])
    assert [row["n"] for entry in one.queue.entries for row in entry.batch.rows] == [6, 7, 8]  # type: ignore[union-attr]
    assert (one.counters.turns, one.counters.rows_in) == (2, 6)
    pool.release([one])
    pool.lend(1.0)
    assert [n for _, n in one.logic.seen] == [*range(9)]  # type: ignore[attr-defined]


def test_what_comes_while_a_lent_thread_works_on_a_long_batch_is_worked_on_after_that() -> None:
    def act(batch: Batch) -> None:
        if batch.rows[0]["n"] in (0, 6):
            pool.put([(one, 0, rows(*range(batch.rows[0]["n"] + 7, batch.rows[0]["n"] + 9)))], wake=False)

    one = instance("one", Pass(act))
    known(one)
    pool = Pool(VirtualClock(), consumption=at_most(3))
    pool.add([one])
    pool.put([(one, 0, rows(*range(7)))], wake=False)
    pool.lend(1.0)
    assert [n for _, n in one.logic.seen] == [*range(9), 13, 14]  # type: ignore[attr-defined]
    assert (one.idle, one.counters.rows_in, one.counters.turns) == (True, 11, 4)


def test_a_fault_in_a_turn_costs_only_the_rows_of_that_turn_and_not_the_rest_of_the_batch() -> None:
    one = instance("one", Pass())
    known(one)
    pool = Pool(VirtualClock(), consumption=at_most(3))
    pool.add([one])
    real, turns = one.run, list[int]()

    def run(entries: Sequence[Entry], now: Now) -> Turn[Instance]:
        turns.append(len(entries))
        if len(turns) == 2:
            raise LookupError("as told")
        return real(entries, now)

    pool.put([(one, 0, rows(*range(7)))], wake=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Instance, "run", lambda self, entries, now: run(entries, now))
        pool.lend(1.0)
    assert [n for _, n in one.logic.seen] == [0, 1, 2, 6]  # type: ignore[attr-defined]
    assert one.logic.drops["operator failed"] == 3
    assert one.idle


def test_a_slow_turn_leaves_the_rest_of_a_batch_to_the_workers() -> None:
    clock = VirtualClock()
    one = instance("one", Pass(lambda batch: clock.advance(SLOW_S)))
    known(one)
    pool = Pool(clock, consumption=at_most(3))
    pool.add([one])
    pool.put([(one, 0, rows(*range(7)))], wake=False)
    pool.lend(1.0)
    assert (one.counters.turns, one.queue.rows, one.schedule.fast_turns) == (1, 4, 0)


def test_the_rest_of_a_batch_waits_from_when_it_came_and_behind_a_turn_that_failed_too() -> None:
    clock = VirtualClock(monotonic=100.0)
    began: list[float | None] = []

    def act(batch: Batch) -> None:
        began.append(pool.roles.since)
        clock.advance(0.004)
        if batch.rows[0]["n"] == 6:
            pool.begin_hold([one])

    one = instance("one", Pass(act))
    known(one)
    pool = Pool(clock, consumption=at_most(3))
    pool.add([one])
    at = clock.monotonic()
    pool.put([(one, 0, rows(*range(14)))], wake=False)
    clock.advance(0.001)
    real, turns = Instance.run, itertools.count()

    def run(instance: Instance, entries: Sequence[Entry], now: Now) -> Turn[Instance]:
        if next(turns) == 1:
            clock.advance(0.010)
            raise LookupError("as told")
        return real(instance, entries, now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Instance, "run", run)
        pool.lend(1.0)
    assert began == pytest.approx([at, at + 0.015]), "nobody takes it for stuck"
    assert one.queue.waiting_since() == at
    c = one.counters
    assert (c.turns, c.rows_in, one.queue.rows) == (2, 6, 5)
    assert (c.busy_s, c.scheduling_s, c.queued_s) == pytest.approx((0.008, 0.001, 0.015))


def test_a_thread_that_goes_on_for_long_ends_with_the_pool() -> None:
    one = instance("one", Pass(lambda batch: pool.stop() if batch.rows[0]["n"] == 19 else None))
    known(one)
    pool = Pool(VirtualClock(), workers=0, consumption=at_most(1))
    pool.add([one])
    pool.put([(one, 0, rows(*range(50)))], wake=False)
    pool.lend(1.0)
    assert (one.counters.turns, one.queue.rows) == (20, 30)


def test_each_short_turn_allows_the_next_twice_as_many_rows_and_not_more() -> None:
    sizes: list[int] = []
    one = instance("one", Pass(lambda batch: sizes.append(len(batch))))
    known(one)
    pool = Pool(VirtualClock(), consumption=everything)
    pool.add([one])
    one.schedule.most_rows = 50
    pool.put([(one, 0, rows(*range(400)))], wake=False)
    pool.lend(1.0)
    assert sizes == [50, 100, 200, 50]


def test_what_comes_alone_may_fill_a_queue_that_others_then_wait_for() -> None:
    inner = instance("inner", Pass(lambda batch: pool.begin_hold([inner])))
    inner.queue = InnerQueue(3)
    feeder = instance("feeder", Pass(), inner)
    known(inner, feeder)
    pool = Pool(VirtualClock(), consumption=at_most(1))
    pool.add([feeder, inner])
    pool.put([(inner, 0, sized(10, *range(5)))], wake=False)
    pool.lend(1.0)
    pool.put([(feeder, 0, rows(5))], wake=False)
    pool.lend(1.0)
    assert (inner.queue.rows, feeder.queue.rows) == (4, 1)
    pool.release([inner])
    inner.logic.act = lambda batch: None  # type: ignore[attr-defined]
    pool.lend(1.0)
    assert [n for _, n in inner.logic.seen] == [*range(6)]  # type: ignore[attr-defined]
    assert (inner.idle, feeder.idle) == (True, True)


def sized(size: int, *numbers: int) -> Batch:
    batch = rows(*numbers)
    batch.size = size
    return batch


def test_half_of_what_waits_is_half_of_the_rest_of_a_batch_and_of_what_came_after_it() -> None:
    sizes: list[int] = []

    def act(batch: Batch) -> None:
        sizes.append(len(batch))
        if len(sizes) == 1:
            pool.put([(one, 0, rows(*range(8, 12)))])

    one = instance("one", Pass(act))
    known(one)
    pool = Pool(VirtualClock(), consumption=half)
    pool.add([one])
    pool.put([(one, 0, rows(*range(8)))], wake=False)
    pool.lend(1.0)
    assert sizes == [4, 4, 2, 1, 1]


def test_what_comes_alone_waits_in_the_queue_if_it_is_not_for_a_lent_thread() -> None:
    one = instance("one", Pass())
    pool = Pool(VirtualClock())
    pool.add([one])
    pool.put([(one, 0, rows(1))], wake=False)
    assert one.queue.rows == 1, "nobody knows yet how long it takes"
    known(one)
    pool.lend(1.0)
    one.schedule.waits = True
    pool.put([(one, 0, rows(1))], wake=False)
    assert one.queue.rows == 1


def test_with_threads_that_hold_and_feed_meanwhile_no_row_is_lost_doubled_or_overtaken() -> None:
    first, other = instance("first", Pass()), instance("other", Pass())
    known(first, other)
    policy, over = CongestionAware(), threading.Event()

    def disturb(pool: Pool) -> None:
        for n in range(500):
            pool.put([(other, 0, rows(n))])
            pool.put([(first, 1, rows(n))])
            if pool.hold([first], DEADLINE_S):
                done = len(first.logic.seen)  # type: ignore[attr-defined]
                with pool.lock:
                    assert policy._length[first.schedule.number] == first.queue.rows
                assert done == len(first.logic.seen)  # type: ignore[attr-defined]
                pool.release([first])
        over.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with running(first, other, policy=policy, consumption=at_most(3)) as pool:
            disturbing = threading.Thread(target=disturb, args=(pool,))
            disturbing.start()
            fed = 0
            while not over.is_set() and fed < 1_000_000:
                pool.put([(first, 0, rows(*range(fed, fed + 20)))], wake=False)
                fed += 20
                pool.lend(0.002)
            disturbing.join(DEADLINE_S)
            assert pool.wait_empty([first, other], DEADLINE_S)
    finally:
        sys.setswitchinterval(before)
    seen = first.logic.seen  # type: ignore[attr-defined]
    assert over.is_set()
    assert [n for source, n in seen if not source] == [*range(fed)]
    assert [n for source, n in seen if source] == [n for _, n in other.logic.seen] == [*range(500)]  # type: ignore[attr-defined]
    for one in (first, other):
        assert not one.logic.overlapped  # type: ignore[attr-defined]
        assert one.counters.rows_in == len(one.logic.seen)  # type: ignore[attr-defined]
        assert min(one.counters.queued_s, one.counters.scheduling_s, one.counters.idle_s) >= 0.0
