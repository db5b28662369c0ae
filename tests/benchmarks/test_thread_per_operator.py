"""A thread per instance: the pool's promises hold for the baseline, too."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.thread_per_operator import ThreadPerInstance
from edgert.core.batch import Batch
from edgert.core.clock import VirtualClock
from edgert.core.system_clock import SystemClock
from edgert.flow.options.on_error import OnError
from edgert.runtime.instance.edges import Target
from edgert.runtime.instance.inner_queue import InnerQueue
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.scheduling.consumption import at_most
from tests.runtime.pools import DEADLINE_S, Grow, Pass, instance, rows
from tests.waiting import wait_until


@contextmanager
def running(*instances: Instance) -> Iterator[ThreadPerInstance]:
    pool = ThreadPerInstance(SystemClock(), consumption=at_most(3))
    pool.add(instances[:1])
    pool.start()
    pool.add(instances[1:])
    try:
        yield pool
    finally:
        pool.stop()


def line(length: int) -> list[Instance]:
    made = [instance(f"i{n}", Pass()) for n in range(length)]
    for before, after in itertools.pairwise(made):
        before.edges.outputs[0] = [Target(after, 0)]
    return made


def seen(one: Instance) -> list[int]:
    assert isinstance(one.logic, Pass)
    assert not one.logic.overlapped
    return [n for _, n in one.logic.seen]


def test_rows_go_through_all_in_order_each_on_its_own_thread() -> None:
    made = line(5)
    names: set[str] = set()
    for one in made:
        one.logic.act = lambda batch: names.add(threading.current_thread().name)  # type: ignore[attr-defined]
    with running(*made) as pool:
        for n in range(300):
            pool.put([(made[0], 0, rows(n))])
        assert pool.wait_empty(made, DEADLINE_S)
    assert all(seen(one) == list(range(300)) for one in made)
    assert names == {f"worker i{n}" for n in range(5)}


def test_held_instances_stand_still_and_go_on_after() -> None:
    made = line(3)
    with running(*made) as pool:
        for n in range(100):
            pool.put([(made[0], 0, rows(n))])
            if n == 50:
                assert pool.hold(made, DEADLINE_S)
                before = [len(seen(one)) for one in made]
                pool.put([(made[0], 0, rows(1_000))])
                assert [len(seen(one)) for one in made] == before
                assert not any(one.schedule.running for one in made)
                pool.release(made)
        assert pool.wait_empty(made, DEADLINE_S)
    assert len(seen(made[-1])) == 101


def test_an_instance_that_blocks_stops_no_other_and_one_that_is_removed_ends_its_thread() -> None:
    leave = threading.Event()
    stuck = instance("stuck", Pass(lambda batch: leave.wait(DEADLINE_S) and None))
    free = instance("free", Pass())
    with running(stuck, free) as pool:
        pool.put([(stuck, 0, rows(1)), (free, 0, rows(2))])
        assert pool.wait_empty([free], DEADLINE_S)
        leave.set()
        assert pool.hold([stuck], DEADLINE_S)
        pool.remove([stuck])
        for thread in threading.enumerate():
            if thread.name == "worker stuck":
                thread.join(DEADLINE_S)
                assert not thread.is_alive()


def test_it_stops_at_once_though_much_waits() -> None:
    made = line(2)
    entered, leave = threading.Event(), threading.Event()

    def act(batch: Batch) -> None:
        entered.set()
        assert leave.wait(DEADLINE_S)

    made[0].logic.act = act  # type: ignore[attr-defined]
    with running(*made) as pool:
        for n in range(50):
            pool.put([(made[0], 0, rows(n))])
        assert entered.wait(DEADLINE_S)
        ending = threading.Thread(target=pool.stop)
        ending.start()
        leave.set()
        ending.join(DEADLINE_S)
        assert not ending.is_alive()
    assert len(seen(made[0])) < 50


def test_who_feeds_a_queue_over_its_budget_waits_here_too() -> None:
    longest = [0]

    def look(batch: Batch) -> None:
        longest[0] = max(longest[0], second.queue.size)

    second = Instance("second", ("second",), "stateless", Pass(look), InnerQueue(100))
    first = instance("first", Grow(), second)
    with running(first, second) as pool:
        for n in range(2_000):
            pool.put([(first, 0, rows(n))])
        assert pool.wait_empty([first, second], DEADLINE_S)
    assert len(seen(second)) == 2_000
    assert longest[0] <= 130, "its budget, and one turn's output"
    assert second.delivery.shed == 0


def test_to_rest_until_a_row_is_tried_again_is_not_waiting_for_a_worker() -> None:
    left = [1]

    def act(batch: Batch) -> None:
        if left:
            left.pop()
            raise ConnectionError

    one, clock = instance("one", Pass(act)), VirtualClock()
    one.boundaries[0].policy = OnError("retry", None, 3, 50.0)
    pool = ThreadPerInstance(clock)
    pool.add([one])
    pool.start()
    pool.put([(one, 0, rows(1))])
    wait_until(lambda: one.schedule.number in pool.backpressure.resting, "the row to wait for its next try", DEADLINE_S)
    clock.advance(50.0)
    pool.put([(one, 0, rows(2))])
    assert pool.wait_empty([one], DEADLINE_S)
    pool.stop()
    assert (one.counters.rows_in, one.counters.scheduling_s) == (2, 0.0)


def test_what_waits_already_when_instances_come_is_worked_off() -> None:
    for _ in range(20):
        made = line(3)
        for one in made:
            one.queue.append(Entry(0, rows(1)))
        pool = ThreadPerInstance(SystemClock(), consumption=at_most(3))
        pool.start()
        pool.add(made)
        assert pool.wait_empty(made, DEADLINE_S)
        pool.stop()
        assert [len(seen(one)) for one in made] == [1, 2, 3]


def test_to_stop_waits_no_longer_than_it_is_told_to() -> None:
    leave = threading.Event()
    made = [instance(f"i{n}", Pass(lambda batch: leave.wait(DEADLINE_S) and None)) for n in range(4)]
    pool = ThreadPerInstance(SystemClock())
    pool.add(made)
    pool.start()
    pool.put([(one, 0, rows(1)) for one in made])
    pool.stop(0.01)
    assert all(one.schedule.running or one.queue.rows for one in made)
    leave.set()
