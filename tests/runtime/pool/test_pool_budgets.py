"""Queues of the pool stay within their budgets: who feeds one that is full waits, and what is shed is counted."""

from __future__ import annotations

import itertools
import threading

from edgert.core.batch import Batch, row_bytes
from edgert.core.clock import VirtualClock
from edgert.core.system_clock import SystemClock
from edgert.flow.options.on_error import OnError
from edgert.operators.base.logic import Now
from edgert.operators.fusion.region import Region, StageEdge
from edgert.runtime.instance.edges import Target
from edgert.runtime.instance.inner_queue import InnerQueue
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.runtime.instance.source_queue import SourceQueue
from edgert.runtime.pool.backpressure import HANGS_S
from edgert.runtime.pool.pool import Pool
from edgert.scheduling.consumption import at_most
from tests.runtime.pool.virtual import VirtualWorkers
from tests.runtime.pools import DEADLINE_S, Grow, Pass, instance, known, rows, running, until_asleep
from tests.waiting import wait_until


def test_rows_shed_are_counted_and_the_policy_still_finds_what_is_left() -> None:
    one = instance("one", Pass())
    one.queue.budget_bytes = 3
    pool = Pool(SystemClock())
    pool.add([one])
    pool.put([(one, 0, rows(n)) for n in range(10)])
    assert one.delivery.shed == 7
    pool.start()
    assert pool.wait_empty([one], DEADLINE_S)
    pool.stop()
    assert [n for _, n in one.logic.seen] == [7, 8, 9]  # type: ignore[attr-defined]


def test_a_queue_over_its_budget_is_worked_off_before_more_is_put_on_it() -> None:
    """The first instance has by far the longest queue; the second's budget is 100 bytes, and it drops nothing."""
    longest = [0]

    def look(batch: Batch) -> None:
        longest[0] = max(longest[0], second.queue.size)

    second = Instance("second", ("second",), "stateless", Pass(), InnerQueue(100))
    first = instance("first", Grow(look), second)
    known(first, second)
    pool = Pool(VirtualClock(), consumption=at_most(10))
    pool.add([first, second])
    pool.put([(first, 0, rows(*range(5_000)))], wake=False)
    pool.lend(1.0)
    assert second.counters.rows_in == 5_000
    assert second.delivery.shed == 0
    assert longest[0] <= 100


def test_a_queue_far_over_its_budget_is_relieved_turn_by_turn_until_it_is_within() -> None:
    """Four turns' worth of rows stand on the second's queue; the first's is by far the longest."""
    sizes: list[int] = []
    second = Instance("second", ("second",), "stateless", Pass(), InnerQueue(100))
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
    second = Instance("second", ("second",), "stateless", Pass(), InnerQueue(1_000))
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


def test_a_row_that_is_long_in_each_batch_counts_wherever_it_stands() -> None:
    """It comes from one device of twenty, and each batch has one row of each."""
    second = Instance("second", ("second",), "stateless", Pass(), InnerQueue(1 << 30))
    first = instance("first", Pass(), second)
    known(first)
    pool = Pool(VirtualClock())
    pool.add([first, second])
    pool.hold([second], 0.0)
    long = "x" * 20_000
    for place in range(20):
        before = second.queue.size
        for _ in range(100):
            alike = rows(*range(20))
            alike.rows[place]["text"] = long
            pool.put([(first, 0, alike)], wake=False)
            pool.lend(1.0)
        assert 0.5 < (second.queue.size - before) / (100 * sum(map(row_bytes, alike.rows))) < 2


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

    second = Instance("second", ("second",), "stateless", Pass(block), InnerQueue(1))
    first = instance("first", Grow(lambda batch: done.set() if batch.rows[0]["n"] == 2 else None), second)
    with running(first, second, workers=2, consumption=at_most(1), look_s=DEADLINE_S * 10) as pool:
        try:
            pool.put([(first, 0, rows(0))])
            assert entered[0].wait(DEADLINE_S)
            pool.put([(first, 0, rows(1, 2))])
            wait_until(lambda: second.queue.rows == 1, "the second's queue to be full", DEADLINE_S)
            until_asleep(pool)
            assert not done.is_set(), "there is no room for more"
            leave[0].set()
            assert entered[1].wait(DEADLINE_S)
            assert done.wait(DEADLINE_S)
        finally:
            for event in leave:
                event.set()
        assert pool.wait_empty([first, second], DEADLINE_S)
    assert [n for _, n in second.logic.seen] == [0, 1, 2]  # type: ignore[attr-defined]


class Fork:
    """A source feeds an alarm, and a filter behind which an operator does not return until `back_s`; a row (10 bytes) a
    second comes, queues have room for ten."""

    def __init__(self, *, forked: bool = True, back_s: float = 1e9) -> None:
        self.slow, self.passed, self.alarm = Pass(), Grow(), Pass()
        self.last = Instance("slow", ("slow",), "window", self.slow, InnerQueue(100))
        self.filter = Instance("filter", ("filter",), "stateless", self.passed, InnerQueue(100))
        self.filter.edges.outputs[0] = [Target(self.last, 0)]
        self.other = Instance("alarm", ("alarm",), "sink", self.alarm, InnerQueue(100))
        self.source = Instance("source", ("source",), "source", Grow(), SourceQueue(100))
        self.source.edges.outputs[0] = [Target(self.filter, 0), *([Target(self.other, 0)] if forked else [])]
        for one in (self.filter, self.other):
            one.edges.beside = forked
        self.all = [self.source, self.filter, self.last, self.other]
        self.clock = VirtualClock()
        self.pool = Pool(self.clock)
        self.pool.add(self.all)
        self.workers = VirtualWorkers(self.pool, self.clock, 2, self.cost_s)
        self.back_s = back_s

    def cost_s(self, instance: Instance, count: int) -> float:
        return max(0.0, self.back_s - self.clock.monotonic()) if instance is self.last else 0.0

    def run(self, seconds: int) -> None:
        for n in range(seconds):
            batch = Batch(rows(n).rows, 0.0, float(n), 10)
            self.workers.at(n, lambda b=batch: self.pool.put([(self.source, 0, b)]))  # type: ignore[misc]
            self.workers.at(n + 0.5, self.pool.profile)
        self.workers.run(until=seconds)


def test_a_branch_goes_on_beside_one_that_is_blocked_whose_queue_sheds() -> None:
    fork = Fork()
    fork.run(200)
    assert [n for _, n in fork.alarm.seen] == list(range(200))
    assert (fork.source.delivery.shed, fork.other.delivery.shed, fork.last.delivery.shed) == (0, 0, 0)
    done = fork.passed.seen
    assert len(done) + fork.filter.delivery.shed + fork.filter.queue.rows - 1 == 200, (
        "less the watermark of those that went"
    )
    assert fork.filter.delivery.shed > 150
    assert all(one.queue.size <= one.queue.budget_bytes + 10 for one in fork.all)


def test_where_nobody_waits_beside_it_what_has_no_room_is_shed_by_the_source_as_ever() -> None:
    fork = Fork(forked=False)
    fork.run(200)
    assert fork.source.delivery.shed > 150
    assert (fork.filter.delivery.shed, fork.last.delivery.shed) == (0, 0)


def test_one_that_was_blocked_and_goes_on_keeps_all_again() -> None:
    fork = Fork(back_s=100.0)
    fork.run(110)
    shed = fork.filter.delivery.shed
    assert 0 < shed < 100
    assert not fork.filter.queue.shedding
    assert [n for _, n in fork.slow.seen] == sorted({n for _, n in fork.slow.seen}), "in order, each once"
    assert len(fork.slow.seen) == 110 - shed
    assert fork.slow.seen[-1] == (0, 109)


def test_one_that_goes_on_keeps_all_again_though_a_lent_thread_goes_on_with_it_by_itself() -> None:
    away = [True]

    def act(batch: Batch) -> None:
        if away[0]:
            raise ConnectionError

    one = Instance("one", ("one",), "sink", Pass(act), InnerQueue(100))
    one.edges.beside = True
    one.boundaries[0].policy = OnError("retry", None, 20, 1.0)
    known(one)
    clock = VirtualClock()
    pool = Pool(clock, consumption=at_most(1))
    pool.add([one])
    pool.put([(one, 0, Batch(rows(n).rows, 0.0, size=10)) for n in range(15)], wake=False)
    for _ in range(20):
        pool.lend(1.0)
        pool.profile()
        clock.advance(1.0)
    assert one.queue.shedding
    away[0] = False
    clock.advance(2.0**20)
    assert not pool.lend(1.0)
    assert (one.queue.rows, one.queue.shedding) == (0, False)


def test_a_slow_operator_is_not_blocked_and_those_beside_it_wait() -> None:
    """It does a row every nine seconds."""
    fork = Fork()
    fork.workers.cost_s = lambda instance, count: 9.0 * count if instance is fork.last else 0.0
    fork.pool.consumption = at_most(1)
    fork.run(400)
    assert fork.source.delivery.shed > 200
    assert (fork.filter.delivery.shed, fork.last.delivery.shed, fork.other.delivery.shed) == (0, 0, 0)


def test_rows_that_were_restored_behind_the_first_part_are_progress_too() -> None:
    """Each fails at first, so that the instance rests whenever somebody looks."""
    fork = Fork()
    region = Region([Grow(), Pass()], [StageEdge(0, 0, 1, 0)])
    fork.other.logic = fork.other.region = fork.other.receiver = region
    fork.other.boundaries = tuple(region.boundaries)
    backpressure, number = fork.pool.backpressure, fork.other.schedule.number
    backpressure.over.add(number)
    for n in range(40):
        fork.clock.advance(1.0)
        now = fork.clock.monotonic()
        if n < 25:
            fork.other.run([Entry(region.entrances(1).start, rows(n))], Now(now, now))
        backpressure.resting[number] = now + 1.0
        assert (backpressure.look(now), fork.other.queue.shedding) == (0, n >= 34), n


def test_a_sleeping_worker_wakes_for_who_waits_no_longer_for_a_queue_that_sheds() -> None:
    entered, leave, done = threading.Event(), threading.Event(), threading.Event()

    def block(batch: Batch) -> None:
        entered.set()
        assert leave.wait(2 * DEADLINE_S)

    second = Instance("second", ("second",), "stateless", Pass(block), InnerQueue(1))
    second.edges.beside = True
    first = instance("first", Grow(lambda batch: done.set() if batch.rows[0]["n"] == 2 else None), second)
    clock = VirtualClock()
    pool = Pool(clock, workers=2, consumption=at_most(1), look_s=DEADLINE_S * 10)
    pool.add([first, second])
    pool.start()
    try:
        pool.put([(first, 0, rows(0))])
        assert entered.wait(DEADLINE_S)
        pool.put([(first, 0, rows(1, 2))])
        wait_until(lambda: second.queue.rows == 1, "the second's queue to be full", DEADLINE_S)
        until_asleep(pool)
        pool.profile()
        clock.advance(HANGS_S)
        assert not done.is_set()
        pool.profile()
        assert done.wait(DEADLINE_S)
    finally:
        leave.set()
        pool.stop()


def test_who_is_taken_out_with_a_full_queue_keeps_nobody_waiting() -> None:
    second = Instance("second", ("second",), "stateless", Pass(), InnerQueue(10))
    first, other = instance("first", Grow(), second), instance("other", Pass())
    known(first, other)
    pool = Pool(VirtualClock(), consumption=at_most(1))
    pool.add([first, second, other])
    assert pool.hold([second], 0.0)
    pool.put([(first, 0, rows(*range(5)))], wake=False)
    pool.lend(1.0)
    assert (second.queue.over, first.queue.rows) == (True, 3)
    first.edges.outputs.clear()
    pool.remove([second])
    pool.lend(1.0)
    assert first.idle
    pool.put([(other, 0, rows(1))], wake=False)
    assert other.schedule.running, "nothing is in its way"


def test_a_turn_that_has_just_begun_is_not_what_a_full_queue_has_waited_for() -> None:
    """The machine, or the pool, stood still; the queue's instance did not."""
    fork = Fork()
    backpressure, other = fork.pool.backpressure, fork.other
    backpressure.over.add(other.schedule.number)
    for second in range(0, 30, 6):
        fork.clock.advance(6.0)
        other.schedule.running, other.schedule.started = True, fork.clock.monotonic()
        assert backpressure.look(fork.clock.monotonic()) == 0, second
    assert not other.queue.shedding
    fork.clock.advance(10.0)
    backpressure.look(fork.clock.monotonic())
    assert other.queue.shedding
