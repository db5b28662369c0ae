"""Queues of the pool stay within their budgets: who feeds one that is full waits, and what is shed is counted."""

from __future__ import annotations

import itertools
import threading

from edgert.core.batch import Batch
from edgert.core.clock import VirtualClock
from edgert.core.system_clock import SystemClock
from edgert.runtime.instance import Instance
from edgert.runtime.pool import Pool
from edgert.runtime.queue import Queue
from edgert.scheduling.consumption import at_most
from tests.runtime.pools import DEADLINE_S, Grow, Pass, instance, known, rows, running


def test_rows_shed_are_counted_and_the_policy_still_finds_what_is_left() -> None:
    one = instance("one", Pass())
    one.queue.budget_bytes = 3
    pool = Pool(SystemClock())
    pool.add([one])
    pool.put([(one, 0, rows(n)) for n in range(10)])
    assert one.shed == 7
    pool.start()
    assert pool.wait_empty([one], DEADLINE_S)
    pool.stop()
    assert [n for _, n in one.logic.seen] == [7, 8, 9]  # type: ignore[attr-defined]


def test_a_queue_over_its_budget_is_worked_off_before_more_is_put_on_it() -> None:
    """The first instance has by far the longest queue; the second's budget is 100 bytes, and it drops nothing."""
    longest = [0]

    def look(batch: Batch) -> None:
        longest[0] = max(longest[0], second.queue.size)

    second = Instance("second", ("second",), "stateless", Pass(), Queue(100, "keep"))
    first = instance("first", Grow(look), second)
    known(first, second)
    pool = Pool(VirtualClock(), consumption=at_most(10))
    pool.add([first, second])
    pool.put([(first, 0, rows(*range(5_000)))], wake=False)
    pool.lend(1.0)
    assert second.counters.rows_in == 5_000
    assert second.shed == 0
    assert longest[0] <= 100


def test_a_queue_far_over_its_budget_is_relieved_turn_by_turn_until_it_is_within() -> None:
    """Four turns' worth of rows stand on the second's queue; the first's is by far the longest."""
    sizes: list[int] = []
    second = Instance("second", ("second",), "stateless", Pass(), Queue(100, "keep"))
    first = instance("first", Pass(lambda batch: sizes.append(second.queue.size)), second)
    known(first, second)
    pool = Pool(VirtualClock(), consumption=at_most(10))
    pool.add([first, second])
    crowd = Batch(rows(*range(40)).rows, 0.0, size=400)
    pool.put([(first, 0, rows(*range(5_000))), (second, 0, crowd)], wake=False)
    pool.lend(1.0)
    assert second.counters.rows_in == 5_040
    assert (sizes[0], max(sizes)) == (100, 100)


def test_what_comes_without_a_size_counts_in_the_queue_all_the_same() -> None:
    second = Instance("second", ("second",), "stateless", Pass(), Queue(1_000, "keep"))
    first = instance("first", Pass(), second)
    known(first)
    pool = Pool(VirtualClock(), consumption=at_most(1))
    pool.add([first, second])
    pool.put([(first, 0, rows(*range(9)))], wake=False)
    pool.hold([second], 0.0)
    pool.lend(1.0)
    assert second.queue.over
    assert 1 < second.queue.rows < 9
    assert first.queue.rows == 9 - second.queue.rows


def test_who_waited_for_room_runs_as_soon_as_there_is_some() -> None:
    """The second blocks again with the batch whose taking made room: another worker has the first meanwhile."""
    entered, leave, done = (
        [threading.Event() for _ in range(3)],
        [threading.Event() for _ in range(3)],
        threading.Event(),
    )
    turns = itertools.count()

    def block(batch: Batch) -> None:
        turn = min(2, next(turns))
        entered[turn].set()
        assert leave[turn].wait(DEADLINE_S)

    second = Instance("second", ("second",), "stateless", Pass(block), Queue(1, "keep"))
    first = instance("first", Grow(lambda batch: done.set() if batch.rows[0]["n"] == 2 else None), second)
    with running(first, second, workers=2, consumption=at_most(1)) as pool:
        try:
            pool.put([(first, 0, rows(0))])
            assert entered[0].wait(DEADLINE_S)
            pool.put([(first, 0, rows(1, 2))])
            for _ in range(1_000):
                with pool._lock:
                    if second.queue.rows == 1 and pool._asleep == 1:
                        break
                threading.Event().wait(0.005)
            assert not done.is_set(), "there is no room for more"
            leave[0].set()
            assert entered[1].wait(DEADLINE_S)
            assert done.wait(DEADLINE_S)
        finally:
            for event in leave:
                event.set()
        assert pool.wait_empty([first, second], DEADLINE_S)
    assert [n for _, n in second.logic.seen] == [0, 1, 2]  # type: ignore[attr-defined]
