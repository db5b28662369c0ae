"""What the pool measures, on a clock that is turned by hand: waiting, computing, idle time, latency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from edgert.core.batch import Batch
from edgert.core.clock import VirtualClock
from edgert.operators.base.logic import Emission, Message, Now, PlainMessage
from edgert.operators.fusion.region import Region, StageEdge
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.latency import quantile_s
from edgert.runtime.pool.pool import Pool
from edgert.runtime.pool.thread_roles import FAST_TURNS
from edgert.scheduling.consumption import CONSUMPTIONS, at_most
from tests.runtime.pools import Pass, instance, known, rows


def test_times_of_a_turn_are_told_apart() -> None:
    clock = VirtualClock(monotonic=10.0)
    last = instance("last", Pass(lambda batch: clock.advance(0.5)))
    first = instance("first", Pass(lambda batch: clock.advance(2.0)), last)
    pool = Pool(clock, consumption=at_most(1))
    pool.add([first, last])
    first.schedule.fast_turns = last.schedule.fast_turns = FAST_TURNS
    clock.advance(4.0)  # both idle
    batches = [rows(1), rows(2)]
    for batch in batches:
        batch.arrival = clock.monotonic() - 1.0
    pool.put([(first, 0, batch) for batch in batches], wake=False)
    clock.advance(1.0)  # no worker yet
    for _ in range(4):
        first.schedule.fast_turns = last.schedule.fast_turns = FAST_TURNS
        pool.lend(1e-9)
    # first from 15 to 17, last to 17.5, first to 19.5, last to 20
    a, b = first.counters, last.counters
    assert (clock.monotonic(), a.busy_s, b.busy_s) == (20.0, 4.0, 1.0)
    assert a.queued_s == 1.0 + 2.0, "the second batch stood behind the first while that one waited, and ran"
    assert a.scheduling_s == 1.0 + 0.5, "the first waited for a worker, the second while the other instance ran"
    assert (b.scheduling_s, b.queued_s) == (0.0, 0.0)
    assert (first.idle_at(20.0), last.idle_at(20.0)) == (4.5, 9.0)
    assert (first.idle_at(21.0), last.idle_at(21.0)) == (5.5, 10.0)
    assert not sum(first.counters.latency.counts), "rows do not leave the flow there"
    assert quantile_s(last.counters.latency.counts, 0.1) == pytest.approx(4.5, rel=0.1)
    assert quantile_s(last.counters.latency.counts, 1.0) == pytest.approx(7.0, rel=0.1)


def test_what_is_queued_or_running_is_not_idle() -> None:
    clock = VirtualClock()
    one = instance("one", Pass())
    pool = Pool(clock)
    pool.add([one])
    pool.put([(one, 0, rows(1))], wake=False)
    clock.advance(3.0)
    assert one.idle_at(3.0) == 0.0


def test_waiting_for_a_worker_is_not_waiting_for_others_in_the_queue() -> None:
    clock = VirtualClock()
    one = instance("one", Pass(lambda batch: clock.advance(1.0)))
    pool = Pool(clock, consumption=at_most(1))
    pool.add([one])
    pool.put([(one, 0, rows(n)) for n in range(3)], wake=False)
    for pause in (0.0, 10.0, 10.0):
        clock.advance(pause)
        one.schedule.fast_turns = FAST_TURNS
        pool.lend(1e-9)
    assert (one.counters.turns, clock.monotonic()) == (3, 23.0)
    assert one.counters.queued_s == 0.0 + 1.0 + 12.0, "behind the first; behind the first and the second"
    assert one.counters.scheduling_s == 0.0 + 10.0 + 10.0, "at the head"


def test_a_turn_takes_no_more_rows_than_some_ten_milliseconds_worth_of_them() -> None:
    clock = VirtualClock()
    one = instance("one", Pass(lambda batch: clock.advance(0.0005 * len(batch))))
    pool = Pool(clock, consumption=at_most(200))
    pool.add([one])
    for _ in range(2):
        one.schedule.fast_turns = FAST_TURNS
        pool.put([(one, 0, rows(*range(150)))], wake=False)
        pool.lend(1e-9)
        pool.profile()
    assert one.counters.turns == 2
    assert one.counters.rows_in == 150 + 20, "half a millisecond each"


class Told(Pass):
    """Takes so long per row, and notes how many rows its turns had."""

    def __init__(self, clock: VirtualClock, cost_s: float) -> None:
        super().__init__(lambda batch: clock.advance(cost_s * len(batch)))
        self.turns: list[int] = []
        self.now = -1.0

    def process(self, batch: Any, source: int, now: Now) -> Sequence[Emission]:
        if now.monotonic != self.now:
            self.now = now.monotonic
            self.turns.append(0)
        self.turns[-1] += len(batch)
        return super().process(batch, source, now)


class Waits(Told):
    """One of somebody else's."""

    waits = None


@pytest.mark.parametrize("consumption", ["at-most", "half", "all"])
@pytest.mark.parametrize(("cost_s", "then"), [(0.005, 10), (0.09, 2), (0.5, 1)])
def test_of_an_operator_that_takes_long_only_one_turn_is_long_and_none_if_it_may_wait(
    consumption: str, cost_s: float, then: int
) -> None:
    for kind in (Told, Waits):
        clock = VirtualClock()
        logic = kind(clock, cost_s)
        one = instance("one", logic)
        pool = Pool(clock, workers=0, consumption=CONSUMPTIONS[consumption](1_000))
        pool.add([one])
        one.schedule.waits = False  # there is no worker to whom it could be left
        pool.put([(one, 0, rows(n)) for n in range(1_000)], wake=False)
        for _ in range(20):
            known(one)
            pool.lend(1e-9)
        first = [200] if kind is Told else [1, 2, 4, 8][: then // 2]
        assert logic.turns == (first + [then] * 20)[:20]


def test_an_operator_that_may_wait_and_does_not_soon_gets_as_many_rows_as_others() -> None:
    clock = VirtualClock()
    logic = Waits(clock, 0.00002)
    one = instance("one", logic)
    pool = Pool(clock, workers=0, consumption=at_most(200))
    pool.add([one])
    one.schedule.waits = False
    pool.put([(one, 0, rows(n)) for n in range(2_000)], wake=False)
    for _ in range(12):
        known(one)
        pool.lend(1e-9)
    assert logic.turns == [1, 2, 4, 8, 16, 32, 64, 128, *[200] * 4]


def test_what_the_parts_of_a_region_take_is_sampled_and_shared_out() -> None:
    clock = VirtualClock()
    parts = [Pass(lambda batch: clock.advance(0.003)), Pass(lambda batch: clock.advance(0.001))]
    one = instance("one", Region(parts, [StageEdge(0, 0, 1, 0)]))
    pool = Pool(clock)
    pool.add([one])
    assert one.region
    for turn in range(1, 501):
        one.schedule.fast_turns = FAST_TURNS
        pool.put([(one, 0, rows(1))], wake=False)
        pool.lend(1e-9)
        if turn == 1:
            assert one.region.busy_s == pytest.approx([0.003, 0.001]), "the first turn is timed"
    shared = one.region.busy_s
    assert sum(shared) + one.counters.unshared_s == pytest.approx(one.counters.busy_s)
    assert shared[0] == pytest.approx(3 * shared[1])
    assert one.counters.unshared_s <= 0.75 + 0.008, "and one about every half second"
    assert one.counters.unshared_s > 0.0 or shared[0] == pytest.approx(1.5)


def test_short_samples_weigh_little_and_all_of_a_turn_is_timed() -> None:
    clock = VirtualClock()
    parts = [Pass(lambda batch: clock.advance(0.00002)), Pass(lambda batch: clock.advance(0.001 * (len(batch) > 1)))]
    one = instance("one", Region(parts, [StageEdge(0, 0, 1, 0)]))
    pool = Pool(clock)
    pool.add([one])
    assert one.region
    spent = [0.0, 0.0]
    for turn in range(2_000):
        one.schedule.fast_turns = FAST_TURNS
        batches = [rows(1), rows(1, 2)] if turn % 4 == 0 else [rows(1)]
        spent[0] += 0.00002 * len(batches)
        spent[1] += 0.001 * (len(batches) - 1)
        pool.put([(one, 0, batch) for batch in batches], wake=False)
        pool.lend(1e-9)
        clock.advance(0.2)
    assert one.region.busy_s == pytest.approx(spent, rel=0.05)


def test_a_turn_that_cannot_be_held_in_time_has_not_waited_for_that() -> None:
    clock = VirtualClock()

    def long(batch: Batch) -> None:
        clock.advance(1.0)
        assert not pool.hold([one], 0.0)
        clock.advance(1.0)

    one = instance("one", Pass(long))
    pool = Pool(clock, consumption=at_most(1))
    pool.add([one])
    one.schedule.fast_turns = FAST_TURNS
    pool.put([(one, 0, rows(1)), (one, 0, rows(2))], wake=False)
    for _ in range(2):
        one.schedule.fast_turns = FAST_TURNS
        pool.lend(1e-9)
    assert (one.counters.turns, one.counters.scheduling_s) == (2, 0.0)


def test_a_pause_is_not_waiting_for_a_worker() -> None:
    clock = VirtualClock()
    one = instance("one", Pass())
    pool = Pool(clock)
    pool.add([one])
    assert pool.hold([one], 0.0)
    pool.put([(one, 0, rows(1))], wake=False)
    clock.advance(5.0)
    pool.release([one])
    clock.advance(0.5)
    one.schedule.fast_turns = FAST_TURNS
    pool.lend(1e-9)
    assert (one.counters.scheduling_s, one.counters.queued_s) == (0.5, 0.0)


def test_to_send_what_a_turn_gives_is_part_of_it() -> None:
    clock = VirtualClock()
    one = instance("one", Pass(lambda batch: one.logic.messages.append(Message("t", b""))))
    sent: list[PlainMessage] = []

    def send(sender: Instance, messages: Sequence[PlainMessage]) -> None:
        assert sender.schedule.running
        clock.advance(2.0)
        sent.extend(messages)

    pool = Pool(clock, consumption=at_most(1), send=send)
    pool.add([one])
    known(one)
    pool.put([(one, 0, rows(1)), (one, 0, rows(2))], wake=False)
    for _ in range(2):
        known(one)
        pool.lend(1e-9)
    assert len(sent) == 2
    assert (one.counters.busy_s, one.counters.scheduling_s, one.counters.queued_s) == (4.0, 0.0, 2.0)
    assert quantile_s(one.counters.latency.counts, 1.0) == pytest.approx(4.0, rel=0.1)
