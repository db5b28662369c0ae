"""A thread that feeds the pool may work for it."""

from __future__ import annotations

import threading

from edgert.core.clock import VirtualClock
from edgert.runtime.pool import FAST_TURNS, SLOW_S, Pool
from edgert.scheduling.consumption import at_most
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
    assert pool.lend(0.01, again=True)
    assert pool._is_the_lenders(only.number, clock.monotonic())
    clock.advance(SLOW_S)
    assert not pool._is_the_lenders(only.number, clock.monotonic())
    assert pool.lend(0.01)
    assert not pool._is_the_lenders(only.number, clock.monotonic()), "not lent again at once"
