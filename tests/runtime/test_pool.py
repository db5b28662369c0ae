"""The pool: workers over graphs of instances. Operators that have to wait do so on events with a deadline."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from edgert.core.batch import Batch
from edgert.core.clock import VirtualClock
from edgert.core.system_clock import SystemClock
from edgert.operators.logic import Emission, Logic, Message, Now
from edgert.runtime.instance import Instance
from edgert.runtime.pool import FAST_TURNS, SLOW_S, Pool
from edgert.runtime.queue import Queue
from edgert.runtime.targets import Target
from edgert.scheduling.consumption import CONSUMPTIONS, at_most
from edgert.scheduling.policies import POLICIES

DEADLINE_S = 20.0


class Pass(Logic):
    """Notes what comes, that nobody else runs it, and gives it on."""

    def __init__(self, act: Callable[[Batch], None] = lambda batch: None) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []
        self.inside = 0
        self.overlapped = False
        self.act = act

    def process(self, batch: Any, source: int, now: Now) -> Sequence[Emission]:
        self.inside += 1
        self.overlapped |= self.inside > 1
        self.act(batch)
        self.seen += [(source, row["n"]) for row in batch.rows]
        self.inside -= 1
        return (Emission(0, Batch(batch.rows, batch.arrival, batch.watermark)),)


def instance(name: str, logic: Logic, *targets: Instance) -> Instance:
    made = Instance(name, (name,), "stateless", logic, Queue(1 << 20))
    for target in targets:
        made.outputs.setdefault(0, []).append(Target(target, 0))
    return made


def rows(*numbers: int) -> Batch:
    return Batch([{"time": 0.0, "source": "a", "n": n} for n in numbers], 0.0, size=len(numbers))


@contextmanager
def running(*instances: Instance, **options: Any) -> Iterator[Pool]:
    pool = Pool(SystemClock(), **options)
    pool.add(instances)
    pool.start()
    try:
        yield pool
    finally:
        pool.stop()


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
                before.outputs.setdefault(0, []).append(Target(made[-1], source))
    for one in made[1:]:
        one.queue = Queue(random_.choice([1_000, 1 << 20]), "keep")
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
        edges = [(b, t) for b in made for t in b.outputs.get(0, ()) if isinstance(t, Target) and t.instance is one]
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
        before.outputs[0] = [Target(after, 0)]
    with running(*chain, workers=workers, consumption=at_most(1)) as pool:
        for n in range(300):
            pool.put([(chain[0], 0, rows(n))])
            if n % 100 == 50:
                assert pool.hold(chain, DEADLINE_S)
                seen = [len(i.logic.seen) for i in chain]  # type: ignore[attr-defined]
                pool.put([(chain[0], 0, rows(1_000 + n))])
                assert not any(i.running for i in chain)
                waiting = sum(i.queue.rows for i in chain)
                assert waiting + seen[-1] == n + 1 + n // 100 + 1, "all that came is processed or stands in a queue"
                assert [len(i.logic.seen) for i in chain] == seen  # type: ignore[attr-defined]
                pool.release(chain)
        assert pool.wait_empty(chain, DEADLINE_S)
    assert len(chain[-1].logic.seen) == 303  # type: ignore[attr-defined]


def test_an_operator_that_raises_loses_the_rows_at_fault_only_and_is_counted() -> None:
    def act(batch: Batch) -> None:
        if any(row["n"] == 3 for row in batch.rows):
            raise ZeroDivisionError("as told")

    after = instance("after", Pass())
    broken = instance("broken", Pass(act), after)
    with running(broken, after) as pool:
        for n in range(6):
            pool.put([(broken, 0, rows(n, n + 1))])
        assert pool.wait_empty([broken, after], DEADLINE_S)
    assert [n for _, n in after.logic.seen] == [0, 1, 1, 2, 2, 4, 4, 5, 5, 6]  # type: ignore[attr-defined]
    assert (broken.failures, broken.logic.drops["operator failed"]) == (2, 2)


def test_an_operator_that_raises_on_everything_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def act(batch: Batch) -> None:
        raise ZeroDivisionError("as told")

    clock = VirtualClock()
    one = instance("one", Pass(act))
    _known(one)
    pool = Pool(clock, consumption=at_most(1))
    pool.add([one])
    for _ in range(4):
        pool.put([(one, 0, rows(*range(10)))], wake=False)
        pool.lend(1.0)
        clock.advance(0.5)
    assert [r.getMessage() for r in caplog.records] == [
        "operator one failed (1 times so far): ZeroDivisionError('as told')",
        "operator one failed (21 times so far): ZeroDivisionError('as told')",
    ]


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
            for _ in range(1_000):  # both workers asleep, so that a put has to wake them
                with pool._lock:
                    if pool._asleep == 2:
                        break
                threading.Event().wait(0.005)
            if together:
                pool.put([(blocking, 0, rows(1)), (free, 0, rows(2))])
            else:
                pool.put([(blocking, 0, rows(1))])
                assert entered.wait(DEADLINE_S)
                pool.put([(free, 0, rows(2))])
            assert other.wait(DEADLINE_S), "the second worker was not woken"
        finally:
            leave.set()


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


def test_messages_are_handed_on_and_a_fault_there_is_counted() -> None:
    class Talks(Pass):
        def process(self, batch: Any, source: int, now: Now) -> Sequence[Emission]:
            self.messages.append(Message("t", b"x"))
            return super().process(batch, source, now)

    sent: list[Message] = []

    def send(by: Instance, messages: Sequence[Message]) -> None:
        sent.extend(messages)
        if len(sent) == 2:
            raise OSError("as told")

    one = instance("one", Talks())
    with running(one, send=send, consumption=at_most(1)) as pool:
        pool.put([(one, 0, rows(n)) for n in range(3)])
        assert pool.wait_empty([one], DEADLINE_S)
    assert (len(sent), one.logic.drops["not sent"]) == (3, 1)


def test_a_fault_in_the_last_words_of_an_operator_is_counted_and_ends_nothing() -> None:
    class Mute(Pass):
        def flush(self, now: Now) -> Sequence[Emission]:
            raise ValueError("as told")

    one = instance("one", Mute())
    assert one.finish(Now(0.0, 0.0)).out == []
    assert (one.failures, one.logic.drops["operator failed"]) == (1, 1)


def _known(*instances: Instance) -> None:
    for one in instances:
        one.fast_turns = FAST_TURNS


def test_a_lent_thread_works_until_nothing_waits() -> None:
    ran_on: set[int] = set()
    last = instance("last", Pass(lambda batch: ran_on.add(threading.get_ident())))
    first = instance("first", Pass(lambda batch: ran_on.add(threading.get_ident())), last)
    _known(first, last)
    pool = Pool(VirtualClock())  # its workers are not started: nobody else can do it
    pool.add([first, last])
    pool.put([(first, 0, rows(*range(200)))], wake=False)
    pool.lend(1.0)
    assert last.counters.rows_in == 200
    assert ran_on == {threading.get_ident()}


def test_a_lent_thread_gives_the_rest_to_the_workers_when_its_time_is_over() -> None:
    clock = VirtualClock()
    only = instance("only", Pass(lambda batch: clock.advance(0.001)))
    _known(only)
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
    _known(only)
    takes[0] = 2 * SLOW_S
    pool.lend(1.0)
    assert only.counters.turns == 1
    pool.put([(only, 0, rows(1))])
    pool.lend(1.0)
    assert only.counters.turns == 1, "it took long the last time"


def test_a_queue_over_its_budget_is_worked_off_before_more_is_put_on_it() -> None:
    """The first instance has by far the longest queue; the second's budget is 100 bytes, and it drops nothing."""
    longest = [0]

    def look(batch: Batch) -> None:
        longest[0] = max(longest[0], second.queue.size)

    second = Instance("second", ("second",), "stateless", Pass(), Queue(100, "keep"))
    first = instance("first", Grow(look), second)
    _known(first, second)
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
    _known(first, second)
    pool = Pool(VirtualClock(), consumption=at_most(10))
    pool.add([first, second])
    crowd = Batch(rows(*range(40)).rows, 0.0, size=400)
    pool.put([(first, 0, rows(*range(5_000))), (second, 0, crowd)], wake=False)
    pool.lend(1.0)
    assert second.counters.rows_in == 5_040
    assert (sizes[0], max(sizes)) == (100, 100)


class Grow(Pass):
    """Gives on batches of 10 bytes per row."""

    def process(self, batch: Any, source: int, now: Now) -> Sequence[Emission]:
        super().process(batch, source, now)
        return (Emission(0, Batch(batch.rows, batch.arrival, batch.watermark, 10 * len(batch.rows))),)


def test_what_comes_without_a_size_counts_in_the_queue_all_the_same() -> None:
    second = Instance("second", ("second",), "stateless", Pass(), Queue(1_000, "keep"))
    first = instance("first", Pass(), second)
    _known(first)
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
