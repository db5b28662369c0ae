"""What raises in the pool costs the rows at fault, is counted, and ends nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from edgert.core.batch import Batch
from edgert.core.clock import VirtualClock
from edgert.core.system_clock import SystemClock
from edgert.operators.base.logic import Emission, Message, Now
from edgert.operators.fusion.region import Region, StageEdge
from edgert.runtime.instance.edges import Spread, Target, TurnOutput
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.latency import Latency
from edgert.runtime.pool.pool import Pool
from edgert.scheduling.consumption import at_most
from tests.runtime.pools import DEADLINE_S, Pass, instance, known, rows, running
from tests.runtime.worlds import Panic


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


@pytest.mark.parametrize("kind", [Panic, SystemExit, KeyboardInterrupt])
def test_whatever_an_operator_raises_neither_worker_nor_instance_is_lost(
    kind: type[BaseException],
) -> None:
    """No error boundary keeps a `KeyboardInterrupt`: what was taken with it is lost, and counted."""

    def act(batch: Batch) -> None:
        if any(row["n"] % 3 == 2 for row in batch.rows):
            raise kind("as told")

    after = instance("after", Pass())
    broken = instance("broken", Pass(act), after)
    pool = Pool(SystemClock())
    pool.add([broken, after])
    pool.start()
    for n in range(20):
        pool.put([(broken, 0, rows(n))])
        assert pool.wait_empty([broken, after], DEADLINE_S)
    assert pool.hold([broken, after], DEADLINE_S)
    pool.stop()
    assert [n for _, n in after.logic.seen] == [n for n in range(20) if n % 3 != 2]  # type: ignore[attr-defined]
    assert broken.logic.drops["operator failed"] == 6
    assert broken.failures == (0 if kind is KeyboardInterrupt else 6)


def test_an_interrupt_on_the_thread_that_was_lent_is_raised_there_once_the_instance_may_go_on() -> None:
    def act(batch: Batch) -> None:
        if batch.rows[0]["n"] == 1:
            raise KeyboardInterrupt

    one = instance("one", Pass(act))
    known(one)
    pool = Pool(VirtualClock(), consumption=at_most(1))
    pool.add([one])
    pool.put([(one, 0, rows(*range(3)))], wake=False)
    with pytest.raises(KeyboardInterrupt):
        pool.lend(1.0)
    assert pool.hold([one], 0.0)
    pool.release([one])
    known(one)
    pool.lend(1.0)
    assert [n for _, n in one.logic.seen] == [0, 2]  # type: ignore[attr-defined]
    assert one.logic.drops["operator failed"] == 1


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ((Instance, "rows_of"), "a turn of one failed in a way that was not foreseen"),
        ((Latency, "add"), "a turn of after could not be counted (1 times so far)"),
    ],
)
def test_a_fault_of_the_pools_own_after_a_turn_costs_nothing_of_what_that_gave(
    fails: tuple[type, str], said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object) -> int:
        raise LookupError("as told")

    after = instance("after", Pass())
    one = instance("one", Pass(), after)
    with monkeypatch.context() as patch, running(one, after) as pool:
        patch.setattr(*fails, broken)
        pool.put([(one, 0, rows(1, 2))])
        assert pool.wait_empty([one, after], DEADLINE_S)
    assert [n for _, n in after.logic.seen] == [1, 2]  # type: ignore[attr-defined]
    assert not one.logic.drops["operator failed"]
    assert caplog.records[0].getMessage() == said


def test_figures_that_cannot_be_counted_do_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object) -> None:
        raise LookupError("as told")

    monkeypatch.setattr(Latency, "add", broken)
    clock = VirtualClock(monotonic=10.0)
    one = instance("one", Pass())
    known(one)
    pool = Pool(clock)
    pool.add([one])
    for _ in range(4):
        known(one)
        pool.put([(one, 0, rows(1))], wake=False)
        pool.lend(1.0)
        clock.advance(0.5)
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"a turn of one could not be counted ({times} times so far)" for times in (1, 3)]
    assert len(one.logic.seen) == 4  # type: ignore[attr-defined]


def test_an_operator_that_raises_on_everything_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def act(batch: Batch) -> None:
        raise ZeroDivisionError("as told")

    clock = VirtualClock()
    one = instance("one", Pass(act))
    known(one)
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


def test_a_fault_at_the_end_of_an_operator_is_counted_and_ends_nothing() -> None:
    class Mute(Pass):
        def flush(self, now: Now) -> Sequence[Emission]:
            raise ValueError("as told")

    one = instance("one", Mute())
    assert one.finish(Now(0.0, 0.0)).out == []
    assert (one.failures, one.logic.drops["operator failed"]) == (1, 1)


def test_a_row_that_cannot_be_handed_on_costs_its_batch_and_ends_nothing() -> None:
    class Odd(Spread[Instance]):
        def give(self, batch: Batch, out: TurnOutput[Instance]) -> None:
            if batch.rows[0]["n"] == 3:
                raise ValueError("as told")
            super().give(batch, out)

        def settle(self, out: TurnOutput[Instance]) -> None:
            raise TypeError("as told")

    after = instance("after", Pass())
    one = instance("one", Pass())
    one.edges.outputs[0] = [Odd([Target(after, 0)], None)]
    with running(one, after, consumption=at_most(1)) as pool:
        pool.put([(one, 0, rows(n)) for n in range(6)])
        assert pool.wait_empty([one, after], DEADLINE_S)
    assert [n for _, n in after.logic.seen] == [0, 1, 2, 4, 5]  # type: ignore[attr-defined]
    assert one.logic.drops["operator failed"] == 1
    turn = one.finish(Now(0.0, 0.0))
    assert isinstance(turn.failed, TypeError)


def test_an_operator_written_as_a_generator_stops_no_worker() -> None:
    """In a region with others, as beside them."""

    class Lazy(Pass):
        def process(self, batch: Any, source: int, now: Now) -> Any:
            for emission in super().process(batch, source, now):
                if emission.batch.rows[0]["n"] == 3:
                    raise ValueError("as told")
                yield emission

    after = instance("after", Pass())
    alone = instance("alone", Lazy(), after)
    first, last = Lazy(), Pass()
    line = instance("line", Region([first, last], [StageEdge(0, 0, 1, 0)]))
    with running(alone, after, line, consumption=at_most(1)) as pool:
        pool.put([(to, 0, rows(n)) for n in range(6) for to in (alone, line)])
        assert pool.wait_empty([alone, after, line], DEADLINE_S)
    assert [n for _, n in after.logic.seen] == [n for _, n in last.seen] == [0, 1, 2, 4, 5]  # type: ignore[attr-defined]
    assert (alone.failures, line.failures, first.drops["operator failed"]) == (1, 1, 1)
