"""A thread that feeds the pool may work for it."""

from __future__ import annotations

import threading
import time

import pytest

from edgert.core.batch import Batch
from edgert.core.clock import VirtualClock
from edgert.core.system_clock import SystemClock
from edgert.flow.options.on_error import OnError
from edgert.runtime.pool.pool import Pool
from edgert.runtime.pool.thread_roles import FAST_TURNS
from edgert.scheduling.consumption import SLOW_S, at_most
from tests.runtime.pools import DEADLINE_S, Pass, instance, known, rows


def test_a_lent_thread_works_until_nothing_waits() -> None:
    ran_on: set[int] = set()
    last = instance("last", Pass(lambda batch: ran_on.add(threading.get_ident())))
    first = instance("first", Pass(lambda batch: ran_on.add(threading.get_ident())), last)
    known(first, last)
    pool = Pool(VirtualClock())  # its workers are not started: nobody else can do it
    pool.add([first, last])
    pool.put([(first, 0, rows(*range(200)))], wake=False)
    pool.lend(1.0)
    assert last.counters.rows_in == 200
    assert ran_on == {threading.get_ident()}


def test_nothing_overtakes_a_row_that_a_lent_thread_is_to_try_again() -> None:
    faults = [2]

    def act(batch: Batch) -> None:
        if faults and batch.rows[0]["n"] == faults[0]:
            faults.pop()
            raise ValueError("as told")

    one = instance("one", Pass(act))
    known(one)
    one.boundaries[0].policy = OnError("retry", None, 3, 0.01)
    clock = VirtualClock()
    pool = Pool(clock, consumption=at_most(1))
    pool.add([one])
    pool.put([(one, 0, rows(*range(5)))], wake=False)
    pool.lend(1.0)
    assert [n for _, n in one.logic.seen] == [0, 1]  # type: ignore[attr-defined]
    clock.advance(1.0)
    pool.lend(1.0)
    assert [n for _, n in one.logic.seen] == [0, 1, 2, 3, 4]  # type: ignore[attr-defined]


def test_between_two_turns_of_a_lent_thread_others_have_their_choice() -> None:
    order: list[str] = []
    first = instance("first", Pass(lambda batch: order.append("first")))
    longer = instance("longer", Pass(lambda batch: order.append("longer")))
    known(first, longer)
    pool = Pool(VirtualClock(), consumption=at_most(1))
    pool.add([first, longer])
    pool.put([(first, 0, rows(*range(3)))], wake=False)
    pool.put([(longer, 0, rows(*range(4)))])
    pool.lend(1.0)
    assert order[:3] == ["first", "longer", "longer"]
    assert sorted(order) == ["first"] * 3 + ["longer"] * 4


def test_a_lent_thread_gives_the_rest_to_the_workers_when_its_time_is_over() -> None:
    clock = VirtualClock()
    only = instance("only", Pass(lambda batch: clock.advance(0.001)))
    known(only)
    pool = Pool(clock, consumption=at_most(1))
    pool.add([only])
    pool.put([(only, 0, rows(*range(50)))], wake=False)
    pool.lend(0.01)
    assert only.counters.rows_in == 10
    pool.start()
    assert pool.wait_empty([only], DEADLINE_S)
    pool.stop()
    assert only.counters.rows_in == 50


@pytest.mark.parametrize("comes", [True, False], ids=["input comes", "nothing comes"])
def test_where_all_workers_wait_for_something_another_one_is_started(comes: bool) -> None:
    leave, begun, done = threading.Event(), threading.Event(), threading.Event()

    def block(batch: Batch) -> None:
        begun.set()
        leave.wait(DEADLINE_S)

    blocks = instance("blocks", Pass(block))
    waits = instance("waits", Pass(lambda batch: done.set()))
    blocks.schedule.waits = waits.schedule.waits = True  # nothing for a thread that is lent
    pool = Pool(SystemClock(), workers=1)
    pool.add([blocks, waits])
    pool.start()
    pool.put([(blocks, 0, rows(1))])
    assert begun.wait(DEADLINE_S)
    pool.put([(waits, 0, rows(1))])
    ends = time.monotonic() + DEADLINE_S
    while not done.is_set() and time.monotonic() < ends:
        if comes:
            pool.put([(waits, 0, rows(1))])
        else:
            pool.profile()
        done.wait(SLOW_S)
    leave.set()
    assert done.is_set()
    assert pool.wait_empty([blocks, waits], DEADLINE_S)
    pool.stop()
    assert len(pool._threads) == 2


def test_instances_that_are_new_or_slow_are_left_to_the_workers() -> None:
    clock = VirtualClock()
    takes = [0.0]
    only = instance("only", Pass(lambda batch: clock.advance(takes[0])))
    pool = Pool(clock)
    pool.add([only])
    for _ in range(FAST_TURNS):
        pool.put([(only, 0, rows(1))])
        pool.lend(1.0)
    assert only.counters.turns == 0, "nobody knows yet how long it takes"
    known(only)
    takes[0] = 2 * SLOW_S
    pool.lend(1.0)
    assert only.counters.turns == 1
    pool.put([(only, 0, rows(1))])
    pool.lend(1.0)
    assert only.counters.turns == 1, "it took long the last time"


def test_a_thread_that_is_lent_again_at_once_keeps_its_work_unless_it_stays_away() -> None:
    """Or both work in turns for want of the interpreter's lock, which costs half as much again."""
    clock = VirtualClock()
    only = instance("only", Pass(lambda batch: clock.advance(0.001)))
    known(only)
    pool = Pool(clock, consumption=at_most(1))
    pool.add([only])
    pool.put([(only, 0, rows(*range(100)))], wake=False)
    assert pool.lend(0.01, lends_again=True)
    assert not pool.roles.for_workers(clock.monotonic())(only)
    clock.advance(SLOW_S)
    assert pool.roles.for_workers(clock.monotonic())(only)
    assert pool.lend(0.01)
    assert pool.roles.for_workers(clock.monotonic())(only), "not lent again at once"


def test_an_operator_that_blocks_a_lent_thread_is_not_waited_for_by_the_others() -> None:
    """It was quick before, so it is run there; workers that sleep see after a while that nobody does the rest."""
    leave = threading.Event()
    served = threading.Event()
    block = instance("block", Pass(lambda batch: leave.wait(DEADLINE_S)))
    other = instance("other", Pass(lambda batch: served.set()))
    known(block, other)
    pool = Pool(SystemClock(), workers=1)
    pool.add([block, other])
    pool.start()
    pool.put([(block, 0, rows(1)), (block, 0, rows(1)), (other, 0, rows(2))], wake=False)
    lending = threading.Thread(target=pool.lend, args=(0.002,))
    lending.start()
    assert served.wait(DEADLINE_S)
    assert lending.is_alive()
    leave.set()
    lending.join()
    pool.stop()


def test_what_a_lent_thread_leaves_and_does_not_come_back_for_is_done_by_the_workers() -> None:
    only = instance("only", Pass(lambda batch: time.sleep(0.001)))
    known(only)
    pool = Pool(SystemClock(), consumption=at_most(1))
    pool.add([only])
    pool.start()
    pool.put([(only, 0, rows(n)) for n in range(20)], wake=False)
    assert pool.lend(0.002, lends_again=True)
    assert pool.wait_empty([only], DEADLINE_S)
    pool.stop()


class Waits(Pass):
    """One of somebody else's."""

    waits = None


def test_an_operator_that_may_wait_is_never_run_by_a_lent_thread_which_does_the_rest() -> None:
    ran_on: set[int] = set()
    waits = instance("waits", Waits(lambda batch: ran_on.add(threading.get_ident())))
    other = instance("other", Pass())
    known(waits, other)
    pool = Pool(VirtualClock())
    pool.add([waits, other])
    pool.put([(waits, 0, rows(*range(9))), (other, 0, rows(1))], wake=False)
    assert not pool.lend(1.0)
    assert other.counters.turns == 1, "though the other one had the longer queue"
    assert waits.counters.turns == 0
    pool.start()
    assert pool.wait_empty([waits], DEADLINE_S)
    pool.stop()
    assert threading.get_ident() not in ran_on
