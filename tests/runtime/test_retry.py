"""A row that is tried again in later turns: through the pool, through lines, checkpoints and the end of a flow."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgert.core.batch import Batch, RawBatch
from edgert.core.checkpoint.position import Position
from edgert.core.system_clock import SystemClock
from edgert.flow.document import from_plain
from edgert.flow.options.on_error import OnError
from edgert.flow.physical import Fusion
from edgert.operators.base.error_boundary import FAILED
from edgert.operators.fusion.compiled_region import CompiledRegion
from edgert.operators.sources.source import Source
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance import build
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.report import report
from edgert.runtime.pool.pool import Pool
from edgert.runtime.pool.thread_roles import FAST_TURNS
from edgert.scheduling.consumption import at_most
from tests.runtime.pools import DEADLINE_S, Pass, instance, rows, until_asleep
from tests.runtime.retry_rig import NOW, Flaky, Rig, flow_run, registry
from tests.runtime.worlds import flow_run as plain_flow_run


@pytest.mark.parametrize("fusion", ["full", "chains", "none"])
def test_a_row_is_tried_again_after_its_time_and_what_follows_waits_for_it(fusion: Fusion) -> None:
    rig = Rig(flow_run(2, fusion))
    odd = rig.run.stages["odd"].logic
    assert isinstance(odd, Flaky)
    rig.feed(1, -1, 2)
    rig.feed(3)
    asked = len(odd.asked)
    rig.pass_by(0.4)
    assert len(odd.asked) == asked, "not before its time"
    assert rig.waiting() == 3
    rig.pass_by(0.1)
    assert rig.run.stages["odd"].boundary.retries == 2
    rig.pass_by(0.9)
    assert rig.waiting() == 3, "twice as long the second time"
    rig.pass_by(0.1)
    assert rig.waiting() == 0
    taken = [n for batch in odd.asked for n in batch]
    assert taken.index(3) > max(at for at, n in enumerate(taken) if n == -1)
    stage = rig.run.stages["odd"]
    assert (stage.rows_in, stage.rows_out, stage.boundary.failures, stage.boundary.dead_letters) == (4, 4, 2, 0)
    assert rig.run.stages["in"].rows_in == 4
    assert rig.shipped() == [(4, 5.0)]
    assert not rig.letters


@pytest.mark.parametrize("fusion", ["full", "chains", "none"])
def test_what_waits_behind_a_row_that_is_tried_again_has_waited_since_it_came(fusion: Fusion) -> None:
    rig = Rig(flow_run(2, fusion))
    stage = rig.run.stages["odd"]
    counters, first = stage.instance.counters, next(p for p in rig.run.stages.values() if p.instance is stage.instance)
    rig.feed(1, -1, 2)
    rig.feed(3)
    rig.pool.consumption = at_most(1)
    for seconds, age in ((0.4, 0.4), (0.1, 0.5), (0.9, 1.4)):
        rig.pass_by(seconds)
        assert report(first, rig.clock.monotonic()).queue_age_s == pytest.approx(age)
        assert counters.queued_s == 0.0, "nothing came before it"
    rig.pass_by(0.1)
    assert (rig.waiting(), stage.boundary.retries) == (0, 2)
    assert counters.queued_s == pytest.approx(1.5 + 1.5), "2 and 3"
    assert counters.scheduling_s == 0.0


@pytest.mark.parametrize("fusion", ["full", "chains", "none"])
@pytest.mark.parametrize(("action", "tried"), [("retry", 4), ("dead-letter", 1)])
def test_a_row_that_never_passes_becomes_a_dead_letter_and_the_rest_goes_on(
    fusion: Fusion, action: str, tried: int
) -> None:
    rig = Rig(flow_run(100, fusion, action))
    rig.feed(1, -1, 2)
    for _ in range(10):
        rig.pass_by(2.0)
    (letter,) = rig.letters
    assert (letter.topic, letter.qos, letter.reason) == ("bad/odd", 1, "odd: ConnectionError: not now")
    told = json.loads(letter.payload)
    assert (told["flow"], told["operator"], told["row"]["v"]) == ("f", "odd", -1)
    stage = rig.run.stages["odd"]
    assert (stage.logic.drops[FAILED], stage.boundary.failures, stage.boundary.dead_letters) == (1, tried, 1)
    assert rig.shipped() == [(2, 3.0)]


@pytest.mark.parametrize("fusion", ["full", "chains", "none"])
def test_what_waits_for_a_try_is_in_the_checkpoint(fusion: Fusion) -> None:
    rig = Rig(flow_run(1, fusion))
    rig.feed(1, -1, 2)
    assert rig.waiting() == 2
    assert rig.run.capture(rig.pool, nullcontext(), 30.0)
    form = rig.run.form()
    assert form
    run = flow_run(0, fusion)
    run.restore(form.deltas, form.queue, NOW)
    again = Rig(run)
    again.work()
    assert again.shipped() == [(3, 2.0)]


@pytest.mark.parametrize("fusion", ["full", "chains", "none"])
def test_at_the_end_of_a_flow_a_row_is_tried_again_at_once(fusion: Fusion) -> None:
    rig = Rig(flow_run(3, fusion))
    rig.feed(1, -1, 2)
    assert rig.shipped() == [(3, 2.0)]
    hopeless = Rig(flow_run(4, fusion))
    hopeless.feed(1, -1, 2)
    assert hopeless.shipped() == [(2, 3.0)]
    assert len(hopeless.letters) == 1


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.integers(-3, 5), max_size=6), max_size=5),
    st.integers(0, 5),
    st.sampled_from(["retry", "dead-letter"]),
)
def test_whatever_is_fused_the_same_rows_are_counted_lost_and_sent_on(
    batches: list[list[int]], times: int, action: str
) -> None:
    """`times` counts per value, so a value that comes again has fewer faults left."""
    left = dict.fromkeys((-3, -2, -1), times)
    kept: list[int] = []
    lost: list[int] = []
    for value in (v for some in batches for v in some):
        asked = min(left.get(value, 0), (3 if action == "retry" else 0) + 1)
        if value < 0:
            left[value] -= asked
        passes = left.get(value, 0) == 0 and asked <= (3 if action == "retry" else 0)
        (kept if passes else lost).append(value)
    for fusion in get_args(Fusion):
        rig = Rig(flow_run(times, fusion, action))
        for some in batches:
            rig.feed(*some)
        for _ in range(200):
            if not rig.waiting():
                break
            rig.pass_by(4.0)
        stage = rig.run.stages["odd"]
        assert [json.loads(letter.payload)["row"]["v"] for letter in rig.letters] == lost
        assert (stage.logic.drops[FAILED], stage.boundary.dead_letters) == (len(lost), len(lost))
        assert (stage.rows_in, stage.rows_out) == (len(kept) + len(lost), len(kept))
        assert rig.shipped() == ([(len(kept), sum(kept))] if kept else [])


def test_a_batch_in_which_a_fused_codec_raises_is_counted_once_and_the_next_go_message_by_message() -> None:
    """It has put messages into the window before it raised: none of them is given to it again."""
    rig = Rig(plain_flow_run())
    source = rig.run.stages["in"].logic
    assert isinstance(source, Source)
    assert isinstance(rig.run.all[0].logic, CompiledRegion)
    decode = source.codec.decode_batch_untrusted

    def chokes(topics: Any, payloads: Any, captures: Any, wall: float) -> Any:
        good = [at for at, payload in enumerate(payloads) if b"99" not in payload]
        decoded = decode([topics[at] for at in good], [payloads[at] for at in good], captures, wall)
        if len(good) < len(payloads):
            raise MemoryError
        return decoded

    rig.feed(*[1] * 20)  # the shape is learned: later ones go straight to the window
    source.codec.decode_batch_untrusted = chokes  # type: ignore[method-assign]
    rig.feed(1, 1, 99, 1)
    assert source.drops[FAILED] == 4
    rig.feed(1, 1, 99, 1)
    assert source.drops[FAILED] == 5
    rig.feed(1)
    assert rig.run.stages["in"].boundary.failures == 2
    assert rig.shipped() == [(20 + 3 + 3 + 1, 27.0)]


def test_rows_on_which_an_expression_fails_are_dead_letters_and_are_not_tried_again() -> None:
    rig = Rig(flow_run(0))
    batch = RawBatch(["x/a"], [b'{"time": 1, "v": "warm"}'], 0.0, 1_000.0, 10)
    rig.pool.put([(rig.run.stages["in"].instance, 0, batch)], wake=False)
    rig.work()
    (letter,) = rig.letters
    assert letter.topic == "bad/ok"
    assert "wrong type in ok" in letter.reason
    assert rig.run.stages["ok"].boundary.dead_letters == 1


@pytest.mark.parametrize("restored", [False, True])
def test_what_waits_behind_the_first_part_is_not_shed_with_what_comes_and_counted_there_a_second_time(
    restored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service of one branch of two is away for long, so its queue sheds."""
    monkeypatch.setattr(build, "QUEUE_BYTES", 2_000)
    operators = {
        "in": {"type": "mqtt_source", "time_earliest": "1970-01-01", "topic": "x/{source}", "out_of_order_s": 0},
        "up": {"type": "map", "input": "in", "set": {"w": "v + 1"}},
        "odd": {"type": "flaky", "input": "up"},
        "out": {"type": "publish", "input": "odd", "topic": "out/{source}"},
        "other": {"type": "publish", "input": "in", "topic": "other/{source}"},
    }
    document = {"name": "f", "on_error": {"action": "retry", "tries": 20, "backoff_s": 30.0}, "operators": operators}
    known = registry(6)
    flow = from_plain(document, known)
    rig = Rig(FlowRun(flow, known, 1, 1, Progress(Position())))
    rig.feed(1, 2, -1, 3, 4)
    if restored:
        assert rig.run.capture(rig.pool, nullcontext(), 30.0)
        form = rig.run.form()
        assert form
        run = FlowRun(flow, known, 1, 1, Progress(Position()))
        run.restore(form.deltas, form.queue, NOW)
        rig = Rig(run)
        rig.pool.consumption = at_most(1)  # the others do not come back: they have not been taken again
        rig.work()
    for _ in range(30):
        rig.clock.advance(1.0)
        rig.pool.profile()
        rig.feed(*range(10))
    rig.pool.consumption = at_most(50)
    while rig.waiting():
        rig.pass_by(60.0)
    stages, drops = rig.run.stages, rig.run.drops()
    shed = drops.pop(("up", "queue over budget"))
    assert (drops, shed > 200) == ({}, True)
    assert stages["in"].rows_out == stages["up"].rows_in + shed
    assert stages["odd"].rows_in == stages["up"].rows_out + (3 if restored else 0)
    assert stages["odd"].rows_in == stages["odd"].rows_out == stages["out"].rows_in


def test_sleeping_workers_wake_for_a_try() -> None:
    passed = threading.Event()
    left = [2]

    def act(batch: Batch) -> None:
        if left[0]:
            left[0] -= 1
            raise ConnectionError

    one: Instance = instance("one", Pass(act), instance("after", Pass(lambda batch: passed.set())))
    one.boundaries[0].policy = replace(OnError(), action="retry", backoff_s=0.01)
    pool = Pool(SystemClock(), workers=2)
    pool.add([one, *one.edges.outputs[0][0].instances])
    pool.start()
    pool.put([(one, 0, rows(1))])
    assert passed.wait(DEADLINE_S)
    pool.stop()
    assert one.boundaries[0].retries == 2


def test_a_sleeping_worker_wakes_for_a_try_that_a_lent_thread_left() -> None:
    passed = threading.Event()
    left = [1]

    def act(batch: Batch) -> None:
        if left[0]:
            left[0] -= 1
            raise ConnectionError
        passed.set()

    one = instance("one", Pass(act))
    one.schedule.fast_turns = FAST_TURNS
    one.boundaries[0].policy = OnError("retry", None, 3, 0.01)
    pool = Pool(SystemClock(), look_s=DEADLINE_S * 10)
    pool.add([one])
    pool.start()
    until_asleep(pool)
    pool.put([(one, 0, rows(1))], wake=False)
    pool.lend(1.0)
    assert passed.wait(DEADLINE_S)
    pool.stop()
