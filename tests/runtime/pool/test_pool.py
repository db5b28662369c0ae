"""The pool: workers over graphs of instances."""

from __future__ import annotations

import itertools
import random
import threading

import pytest

from edgert.core.batch import Batch
from edgert.core.system_clock import SystemClock
from edgert.runtime.instance.edges import Target
from edgert.runtime.instance.inner_queue import InnerQueue
from edgert.runtime.instance.instance import Instance
from edgert.runtime.pool.pool import Pool
from edgert.scheduling.consumption import CONSUMPTIONS, at_most
from edgert.scheduling.policies import POLICIES
from tests.runtime.pools import DEADLINE_S, Pass, instance, rows, running, until_asleep
from tests.waiting import wait_until


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("lends", [False, True])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_row_runs_once_and_in_order_per_input_over_random_graphs(workers: int, policy: str, lends: bool) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    random_ = random.Random(seed)
    consumption = CONSUMPTIONS[random_.choice(sorted(CONSUMPTIONS))](random_.choice([1, 3, 50]))
    made: list[Instance] = []
    inputs: dict[str, int] = {}
    for number in range(8):
        made.append(instance(f"i{number}", Pass()))
        for before in made[:-1]:
            if random_.random() < 0.3:
                source = inputs[made[-1].name] = inputs.get(made[-1].name, -1) + 1
                before.edges.outputs.setdefault(0, []).append(Target(made[-1], source))
    for one in made[1:]:
        one.queue = InnerQueue(random_.choice([1_000, 1 << 20]))
    numbers = list(range(400))
    made_policy = POLICIES[policy](random_.random)
    with running(*made, workers=workers, policy=made_policy, consumption=consumption) as pool:
        for first in range(0, 400, 8):
            pool.profile()
            pool.put([(made[0], 0, rows(*numbers[first : first + 8]))], wake=not lends)
            if lends:
                pool.lend(0.001)
        assert pool.wait_empty(made, DEADLINE_S), f"seed {seed}"
    for one in made[1:]:
        logic = one.logic
        assert isinstance(logic, Pass)
        assert not logic.overlapped
        edges = [
            (b, t) for b in made for t in b.edges.outputs.get(0, ()) if isinstance(t, Target) and t.instance is one
        ]
        feeding = [t for _, t in edges]
        reached = {t.source: b for b, t in edges}
        assert len(feeding) == len(reached)
        for source, before in reached.items():
            assert [n for s, n in logic.seen if s == source] == [n for _, n in before.logic.seen]  # type: ignore[attr-defined]
    head = made[0].logic
    assert isinstance(head, Pass)
    assert head.seen == [(0, n) for n in numbers]
    assert made[0].counters.rows_in == made[0].counters.rows_out == 400


@pytest.mark.parametrize("workers", [1, 3])
def test_nothing_runs_while_held_and_all_goes_on_after(workers: int) -> None:
    chain = [instance(f"i{n}", Pass()) for n in range(3)]
    for before, after in itertools.pairwise(chain):
        before.edges.outputs[0] = [Target(after, 0)]
    with running(*chain, workers=workers, consumption=at_most(1)) as pool:
        for n in range(300):
            pool.put([(chain[0], 0, rows(n))])
            if n % 100 == 50:
                assert pool.hold(chain, DEADLINE_S)
                seen = [len(i.logic.seen) for i in chain]  # type: ignore[attr-defined]
                pool.put([(chain[0], 0, rows(1_000 + n))])
                assert not any(i.schedule.running for i in chain)
                waiting = sum(i.queue.rows for i in chain)
                assert waiting + seen[-1] == n + 1 + n // 100 + 1, "all that came is processed or stands in a queue"
                assert [len(i.logic.seen) for i in chain] == seen  # type: ignore[attr-defined]
                pool.release(chain)
        assert pool.wait_empty(chain, DEADLINE_S)
    assert len(chain[-1].logic.seen) == 303  # type: ignore[attr-defined]


def test_stop_lets_the_turn_end_and_leaves_rows_in_queues() -> None:
    entered, leave = threading.Event(), threading.Event()

    def act(batch: Batch) -> None:
        entered.set()
        assert leave.wait(DEADLINE_S)

    after = instance("after", Pass())
    slow = instance("slow", Pass(act), after)
    pool = Pool(SystemClock(), consumption=at_most(1))
    pool.add([slow, after])
    pool.start()
    pool.put([(slow, 0, rows(n)) for n in range(3)])
    assert entered.wait(DEADLINE_S)
    stopper = threading.Thread(target=pool.stop)
    stopper.start()
    leave.set()
    stopper.join(DEADLINE_S)
    assert not stopper.is_alive()
    done = len(slow.logic.seen)  # type: ignore[attr-defined]
    assert done >= 1
    assert slow.queue.rows == 3 - done
    assert after.queue.rows + len(after.logic.seen) == done  # type: ignore[attr-defined]


@pytest.mark.parametrize("together", [True, False])
def test_a_blocking_operator_does_not_stop_others_while_a_worker_is_free(together: bool) -> None:
    entered, leave, other = threading.Event(), threading.Event(), threading.Event()

    def block(batch: Batch) -> None:
        entered.set()
        assert leave.wait(DEADLINE_S)

    blocking, free = instance("blocking", Pass(block)), instance("free", Pass(lambda batch: other.set()))
    with running(blocking, free, workers=2) as pool:
        try:
            until_asleep(pool, 2)
            if together:
                pool.put([(blocking, 0, rows(1)), (free, 0, rows(2))])
            else:
                pool.put([(blocking, 0, rows(1))])
                assert entered.wait(DEADLINE_S)
                pool.put([(free, 0, rows(2))])
            assert other.wait(DEADLINE_S), "the second worker was not woken"
        finally:
            leave.set()


def test_a_sleeping_worker_wakes_for_what_a_turn_gives_to_a_second_one() -> None:
    """Both wait for something: the worker that ran the first serves only one of them."""
    both = threading.Barrier(2)
    fed = [instance(f"fed{n}", Pass(lambda batch: both.wait(DEADLINE_S))) for n in range(2)]
    first = instance("first", Pass(), *fed)
    with running(first, *fed, workers=2, look_s=DEADLINE_S * 10) as pool:
        until_asleep(pool, 2)
        pool.put([(first, 0, rows(1))])
        assert pool.wait_empty([first, *fed], 2 * DEADLINE_S)
    assert [one.failures for one in fed] == [0, 0], "one was done before the other began"


def test_a_flow_that_reaches_no_boundary_in_time_is_let_go() -> None:
    entered, leave = threading.Event(), threading.Event()

    def block(batch: Batch) -> None:
        entered.set()
        assert leave.wait(DEADLINE_S)

    blocking, other = instance("blocking", Pass(block)), instance("other", Pass())
    with running(blocking, other, workers=2) as pool:
        pool.put([(blocking, 0, rows(1))])
        assert entered.wait(DEADLINE_S)
        assert not pool.hold([blocking, other], 0.01)
        pool.put([(other, 0, rows(2)), (blocking, 0, rows(3))])
        leave.set()
        assert pool.wait_empty([blocking, other], DEADLINE_S)
    assert [n for _, n in blocking.logic.seen] == [1, 3]  # type: ignore[attr-defined]


def test_instances_may_be_taken_out_and_put_in_while_others_run() -> None:
    steady, brief = instance("steady", Pass()), instance("brief", Pass())
    with running(steady, workers=2) as pool:
        for n in range(20):
            pool.add([brief])
            pool.put([(steady, 0, rows(n)), (brief, 0, rows(n))])
            assert pool.wait_empty([brief], DEADLINE_S)
            assert pool.hold([brief], DEADLINE_S)
            pool.remove([brief])
        assert pool.wait_empty([steady], DEADLINE_S)
    assert len(steady.logic.seen) == len(brief.logic.seen) == 20  # type: ignore[attr-defined]


def test_while_every_worker_is_stuck_a_lent_thread_takes_also_what_is_new_or_was_slow() -> None:
    entered, leave = threading.Event(), threading.Event()

    def block(batch: Batch) -> None:
        entered.set()
        assert leave.wait(DEADLINE_S)

    blocking, new, foreign = instance("blocking", Pass(block)), instance("new", Pass()), instance("foreign", Pass())
    foreign.schedule.waits = True
    with running(blocking, new, foreign) as pool:
        try:
            pool.put([(blocking, 0, rows(1))])
            assert entered.wait(DEADLINE_S)

            def has_run() -> int:
                pool.put([(new, 0, rows(2)), (foreign, 0, rows(2))], wake=False)
                pool.lend(1.0)
                return new.counters.rows_in

            wait_until(has_run, "a turn of the new instance")
            assert not foreign.counters.rows_in, "it may wait, too"
        finally:
            leave.set()
