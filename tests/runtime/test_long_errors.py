"""An operator whose service is away, so that each try takes long: turns end, checkpoints are made, and it goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from edgert.core.batch import Batch
from edgert.core.clock import VirtualClock
from edgert.core.text.topic_template import TopicTemplate
from edgert.flow.options.on_error import OnError
from edgert.flow.physical import Fusion
from edgert.operators.base.error_boundary import APART_S, FAILED
from edgert.operators.base.logic import Message, PlainMessage
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.instance import Instance
from edgert.runtime.pool.pool import Pool
from edgert.runtime.pool.thread_roles import FAST_TURNS
from tests.named import named
from tests.runtime.pools import DEADLINE_S, Pass, instance, rows
from tests.runtime.retry_rig import NOW, Rig, flow_run

TRY_S = 0.6
ALL = [1.0, *(-float(n) for n in range(1, 11)), 2.0]


class Waiting(Rig):
    """Each try takes long. A turn is made at a time."""

    def __init__(self, run: FlowRun) -> None:
        super().__init__(run)
        self.tries = 0
        self.longest = 0.0
        odd: Any = run.stages["odd"].logic
        process = odd.process

        def slow(*given: Any) -> Any:
            self.clock.advance(TRY_S)
            self.tries += 1
            return process(*given)

        odd.process = slow

    def work(self) -> None:
        for one in self.run.all:
            one.schedule.fast_turns = FAST_TURNS  # or it would be left to the pool's workers
        began, before = self.clock.monotonic(), self.tries
        self.pool.lend(TRY_S / 2)
        if self.tries > before:
            self.longest = max(self.longest, self.clock.monotonic() - began)

    def lost(self) -> list[float]:
        return [json.loads(letter.payload)["row"]["v"] for letter in self.letters]


@pytest.mark.parametrize("fusion", ["full", "chains", "none"])
def test_a_turn_ends_though_more_rows_are_to_be_tried_and_the_next_begins_at_once(fusion: Fusion) -> None:
    rig = Waiting(flow_run(10**6, fusion, "dead-letter"))
    stage = rig.run.stages["odd"]
    rig.feed(*ALL)
    left, allowed = [rig.waiting()], list[int]()
    while rig.waiting():
        assert len(left) < 100
        rig.work()
        left.append(rig.waiting())
        allowed.append(stage.instance.schedule.most_rows)
    assert rig.longest <= APART_S + 2 * TRY_S
    assert allowed[-1] == 1, "a checkpoint can be made after each row"
    assert rig.lost() == ALL[1:-1]
    assert (stage.boundary.failures, stage.boundary.dead_letters, stage.boundary.retries) == (10, 10, 0)
    assert stage.logic.drops == {FAILED: 10}
    assert (stage.rows_in, stage.rows_out) == (12, 2)
    assert rig.shipped() == [(2, 3.0)]


@pytest.mark.parametrize("fusion", ["full", "chains", "none"])
def test_what_was_not_tried_is_in_the_checkpoint_and_is_tried_at_the_end_of_the_flow(fusion: Fusion) -> None:
    rig = Waiting(flow_run(10**6, fusion, "dead-letter"))
    rig.feed(*ALL)
    while len(rig.letters) < 3:
        rig.work()
    assert rig.run.capture(rig.pool, nullcontext(), 30.0)
    form = rig.run.form()
    assert form
    run = flow_run(10**6, fusion, "dead-letter")
    run.restore(form.deltas, form.queue, NOW)
    again = Waiting(run)
    assert again.shipped() == [(2, 3.0)], "there is no next turn"
    assert rig.lost() + again.lost() == ALL[1:-1]


def test_of_rows_that_came_one_by_one_not_all_are_tried_in_one_turn_either() -> None:
    clock = VirtualClock()
    asked: list[int] = []

    def act(batch: Batch) -> None:
        clock.advance(TRY_S)
        asked.append(batch.rows[0]["n"])
        raise ConnectionError

    one = instance("one", Pass(act))
    one.schedule.fast_turns = FAST_TURNS
    pool = Pool(clock)
    pool.add([one])
    pool.put([(one, 0, rows(n)) for n in range(9)], wake=False)
    pool.lend(TRY_S / 2)
    assert (asked, one.queue.rows, one.counters.rows_in, one.schedule.most_rows) == ([0, 1], 7, 2, 1)
    pool.lend(TRY_S / 2)
    assert asked == [0, 1], "it is for the workers now"
    one.hurry()
    turn = one.run(one.queue.take_all(), NOW)
    assert (asked, turn.back) == (list(range(9)), ()), "the flow ends: there is no next turn"


@pytest.mark.parametrize("repeatable", [True, False])
def test_workers_go_on_with_what_was_not_tried(repeatable: bool) -> None:
    """No time goes by but that of the tries: who waited for more would wait for ever."""
    clock = VirtualClock()
    turns: set[float] = set()
    asked: list[int] = []

    def act(batch: Batch) -> None:
        clock.advance(TRY_S)
        asked.extend(row["n"] for row in batch.rows if len(batch) == 1)
        if batch.rows:
            raise ConnectionError

    one: Instance = instance("one", Pass(act))
    one.logic.repeatable = repeatable
    (boundary,) = one.boundaries
    boundary.repeatable = repeatable
    boundary.policy = OnError("dead-letter", TopicTemplate("bad", sink=True))
    sent: list[Message] = []

    def send(_: Instance, messages: Sequence[PlainMessage]) -> None:
        sent.extend(named(messages))
        turns.add(clock.monotonic())

    pool = Pool(clock, workers=1, send=send)
    pool.add([one])
    pool.put([(one, 0, rows(0, 1)), (one, 0, rows(*range(2, 12)))])
    pool.start()
    assert pool.wait_empty([one], DEADLINE_S)
    pool.stop()
    assert [json.loads(message.payload)["row"]["n"] for message in sent] == list(range(12))
    assert (boundary.failures, boundary.retries) == (12 if repeatable else 11, 0)
    assert len(turns) >= 5
    if not repeatable:
        assert asked == list(range(2, 12))
