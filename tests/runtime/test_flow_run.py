"""A flow that runs: captures, commits, restores, and its end; without a broker and without a database."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import RawBatch
from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.clock import VirtualClock
from edgert.core.errors import StoreError
from edgert.flow.document import from_plain
from edgert.flow.physical import Fusion
from edgert.flow.spec import OperatorSpec
from edgert.operators.base.logic import Emission, Logic, Now
from edgert.operators.fusion.chain import Chain
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.packing import pack_state
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.runtime.pool.pool import Pool
from edgert.runtime.pool.thread_roles import FAST_TURNS
from edgert.runtime.run_out import run_out
from edgert.scheduling.consumption import at_most
from tests.named import named
from tests.runtime.worlds import CHAINED, DOCUMENT, flow_run

NOW = Now(0.0, 1_000.0)


class Rig:
    """Runs instances by hand, in order, so that queues hold what a test wants them to."""

    def __init__(self, run: FlowRun) -> None:
        self.run, self.pool = run, Pool(VirtualClock())
        self.said: list[str] = []
        """Topics of the messages so far."""
        self.pool.add(run.all)

    def feed(self, index: int, *times: float) -> None:
        """A negative time is that of a row which the filter lets go."""
        payloads = [b'{"time": %f, "v": %d}' % (abs(t), 1 if t > 0 else -1) for t in times]
        batch = RawBatch(["x/a"] * len(times), payloads, 0.0, 1_000.0, 10 * len(times))
        self.pool.put([(self.run.stages["in"].instance, 0, batch)])
        self.run.progress.fed = index

    def work(self, moment: float = 0.0) -> None:
        for instance in self.run.all:
            self.turn(instance, moment)

    def turn(self, instance: Instance, moment: float = 0.0) -> None:
        for entry in instance.queue.take_all():
            turn = instance.run([entry], Now(moment, 1_000.0 + moment))
            self.said += [message.topic for message in named(turn.messages)]
            for target, batch in turn.out:
                target.instance.queue.put(type(entry)(target.source, batch))

    def checkpoint(self) -> Checkpoint | None:
        assert self.run.capture(self.pool, nullcontext(), 30.0)
        return self.run.form()


def contributions(form: Checkpoint | None) -> list[tuple[Any, ...]]:
    assert form is not None
    return [tuple(row) for row in form.rows]


def test_state_queues_and_position_of_a_checkpoint_belong_together() -> None:
    first = Rig(flow_run())
    first.feed(1, 1.0, 2.0)
    first.work()
    first.feed(2, 3.0)
    form = first.checkpoint()
    assert form
    assert form.position == Position(2)
    again = Rig(flow_run())
    again.run.restore(form.deltas, form.queue, NOW)
    again.feed(3, 12.0)
    again.work(1.0)
    again.feed(4, 12.0)
    again.work(2.0)
    assert again.run.columns == ("window_start", "window_end", "source", "n", "s")
    assert contributions(again.checkpoint()) == [(0.0, 10.0, "a", 3, 3.0)]


@pytest.mark.parametrize(("before", "after"), list(itertools.product(get_args(Fusion), repeat=2)))
@pytest.mark.parametrize("stages", ["in", "in ok", "in minute", "ok minute", "in ok minute", "in more", "in ok more"])
def test_a_checkpoint_is_good_with_fusion_and_without(before: Fusion, after: Fusion, stages: str) -> None:
    """Rows wait in front of the source, of the chain and of the window, the newest in front of the source: in time they
    would make the others late if they went first. What is negative must not pass the filter."""
    first = Rig(flow_run(before, CHAINED))
    waiting = list(reversed(stages.split()))
    for number, stage in enumerate(waiting):
        first.feed(number + 1, 1.0 + 11.0 * (number == 2), -1.0)
        for instance in first.run.all:
            if stage in instance.operators:
                break
            first.turn(instance)
    form = first.checkpoint()
    assert form
    again = Rig(flow_run(after, CHAINED))
    again.run.restore(form.deltas, form.queue, NOW)
    again.work()
    list(run_out(again.run, NOW))
    got = {row[0]: (row[3], row[4]) for row in contributions(again.run.form())}
    early = {0.0: (min(2, len(waiting)), 2.0 * min(2, len(waiting)))}
    assert got == (early if len(waiting) < 3 else early | {10.0: (1, 2.0)})
    assert not any(stage.logic.drops for stage in again.run.stages.values())


BRANCHED: dict[str, Any] = {
    "name": "f",
    "operators": {
        "in": DOCUMENT["operators"]["in"],
        "ok": DOCUMENT["operators"]["ok"],
        "more": {"type": "map", "input": "in", "set": {"w": "v + 1"}},
        "both": {"type": "join_latest", "inputs": ["ok", "more"], "fields": ["w"]},
        "by": {"type": "key_by", "input": "ok", "keys": ["source"]},
        "minute": DOCUMENT["operators"]["minute"],
        "out": DOCUMENT["operators"]["out"],
        "joined": {"type": "publish", "input": "both", "topic": "joined"},
        "all": {"type": "publish", "input": "more", "topic": "all"},
    },
}


@given(
    fusions=st.tuples(st.sampled_from(get_args(Fusion)), st.sampled_from(get_args(Fusion))),
    steps=st.lists(st.one_of(st.none(), st.integers(0, 8)), max_size=25),
)
def test_what_waits_in_branches_and_where_they_meet_comes_back_by_the_input_it_came_by(
    fusions: tuple[Fusion, Fusion], steps: list[int | None]
) -> None:
    """`steps`: feed two rows, one of which the filter lets go (None), or a turn of that instance."""
    first, fed = Rig(flow_run(fusions[0], BRANCHED)), 0
    for step in steps:
        if step is None:
            fed += 1
            first.feed(fed, 1.0, -1.0)
        else:
            first.turn(first.run.all[step % len(first.run.all)])
    sent = list(first.said)
    form = first.checkpoint()
    again = Rig(flow_run(fusions[1], BRANCHED))
    if form:
        again.run.restore(form.deltas, form.queue, NOW)
    for _, messages in run_out(again.run, NOW):
        sent.extend(m.topic for m in named(messages))
    assert Counter(sent) == Counter({"all": 2 * fed, "joined": fed})
    got = again.run.form()
    assert [row[3:] for row in contributions(got)] == ([(fed, float(fed))] if fed else []) if got else not fed


@pytest.mark.parametrize(("before", "after"), list(itertools.product(get_args(Fusion), repeat=2)))
def test_models_that_came_by_message_find_their_operators_again(before: Fusion, after: Fusion) -> None:
    """Also where a marker heads the chain, which vanishes if it stands alone."""
    operators = {
        **DOCUMENT["operators"],
        "first": {"type": "key_by", "input": "in", "keys": ["source"]},
        "ok": {"type": "filter", "input": "first", "where": "v >= 0"},
        "one": {"type": "predict", "input": "ok", "model": "m", "fields": ["v"], "output": "p"},
        "two": {"type": "predict", "input": "one", "model": "m", "fields": ["p"], "output": "v"},
        "by": {"type": "key_by", "input": "two", "keys": ["source"]},
    }
    document = {"name": "f", "operators": operators}
    first = Rig(flow_run(before, document))
    for operator, field, factor in (("one", "v", 2), ("two", "p", 10)):
        chain = next(p.logic for p in first.run.stages.values() if operator in p.planned.operators)
        assert isinstance(chain, Chain)
        model = {"kind": "linear_regression", "coefficients": {field: factor}}
        chain.predictions.offer(operator, chain.predictions.checked_untrusted(operator, model))
    form = first.checkpoint()
    assert form
    again = Rig(flow_run(after, document))
    again.run.restore([again.run.compact(form.deltas)], form.queue, NOW)
    again.feed(1, 1.0)
    again.work()
    list(run_out(again.run, NOW))
    assert [row[4] for row in contributions(again.run.form())] == [20.0]


@pytest.mark.parametrize("after", get_args(Fusion))
def test_rows_in_the_midst_of_a_chain_come_back_in_time_and_with_the_model_in_use(after: Fusion) -> None:
    """The older ones in front of its second operator, the newer in front of its first: the first's watermark would make
    the others late."""
    operators = {
        **DOCUMENT["operators"],
        "guess": {"type": "predict", "input": "ok", "model": "m", "fields": ["v"], "output": "v"},
        "by": {"type": "key_by", "input": "guess", "keys": ["source"]},
    }
    document = {"name": "f", "operators": operators}
    first = Rig(flow_run("none", document))
    chain = first.run.stages["guess"].logic
    assert isinstance(chain, Chain)
    model = {"kind": "linear_regression", "coefficients": {"v": 5}}
    chain.predictions.offer("guess", chain.predictions.checked_untrusted("guess", model))
    first.feed(1, 1.0, 2.0)
    for name in ("in", "ok"):
        first.turn(first.run.instances[name])
    first.feed(2, 12.0)
    first.turn(first.run.instances["in"])
    form = first.checkpoint()
    assert form
    again = Rig(flow_run(after, document))
    again.run.restore(form.deltas, form.queue, NOW)
    again.work()
    list(run_out(again.run, NOW))
    got = [(row[0], row[3], row[4]) for row in contributions(again.run.form())]
    assert got == [(0.0, 2, 10.0), (10.0, 1, 5.0)]


@pytest.mark.parametrize("fusion", get_args(Fusion))
def test_a_model_is_in_use_from_the_next_batch_though_a_checkpoint_comes_first(fusion: Fusion) -> None:
    operators = {
        **DOCUMENT["operators"],
        "guess": {"type": "predict", "input": "ok", "model": "m", "fields": ["v"], "output": "v"},
        "by": {"type": "key_by", "input": "guess", "keys": ["source"]},
    }
    rig = Rig(flow_run(fusion, {"name": "f", "operators": operators}))
    chain = next(p.logic for p in rig.run.stages.values() if "guess" in p.planned.operators)
    assert isinstance(chain, Chain)
    for number, factor in enumerate((1, 100)):
        model = {"kind": "linear_regression", "coefficients": {"v": factor}}
        chain.predictions.offer("guess", chain.predictions.checked_untrusted("guess", model))
        assert rig.checkpoint()
        rig.feed(number + 1, *[1.0 + 10.0 * number] * 10)  # enough for a shape to be learned
        rig.work(float(number))
    list(run_out(rig.run, NOW))
    assert [row[4] for row in contributions(rig.run.form())] == [10.0, 1000.0]


def test_what_a_fused_flow_found_in_its_queues_stays_there_in_the_next_checkpoint() -> None:
    first = Rig(flow_run("chains"))
    first.feed(1, 1.0, 2.0)
    first.turn(first.run.instances["in"])
    form = first.checkpoint()
    for _ in range(2):
        assert form
        again = Rig(flow_run("full"))
        again.run.restore(form.deltas, form.queue, NOW)
        again.feed(2, 3.0)
        form = again.checkpoint()
    again.feed(4, 12.0)
    again.work(1.0)
    again.feed(5, 12.0)
    again.work(2.0)
    assert contributions(again.checkpoint()) == [(0.0, 10.0, "a", 4, 4.0)]


def test_what_a_failed_commit_held_goes_with_the_next_once_and_in_order() -> None:
    rig = Rig(flow_run())
    expected = []
    for number, start in enumerate((0.0, 10.0, 20.0)):
        rig.feed(number + 1, start + 1, start + 10)
        rig.work(float(number))
        expected.append((start, start + 10))
        form = rig.checkpoint()
        assert form
        assert [r[:2] for r in contributions(form)] == expected
        assert (len(form.deltas), form.position.index) == (number + 1, number + 1)
    assert form
    rig.run.committed(form)
    rig.run.progress.committed = form.position
    assert rig.checkpoint() is None, "nothing new is worth no write"
    assert rig.run.rows_shipped == 3


def test_what_is_captured_while_a_commit_is_under_way_goes_with_the_next() -> None:
    rig = Rig(flow_run())
    rig.feed(1, 1.0, 10.0)
    rig.work(0.0)
    form = rig.checkpoint()
    rig.feed(2, 11.0, 20.0)
    rig.work(1.0)
    after = rig.checkpoint()
    assert form
    assert after
    rig.run.committed(form)
    (left,) = rig.run.pending
    assert left.position.index == after.position.index == 2


def test_a_compacted_state_says_the_same_as_its_parts() -> None:
    rig, blobs = Rig(flow_run()), list[bytes]()
    for number in range(5):
        rig.feed(number + 1, 4.0 * number)
        rig.work(float(number))
        form = rig.checkpoint()
        assert form
        blobs += form.deltas
        rig.run.committed(form)
    short, long = flow_run(), flow_run()
    short.restore([rig.run.compact(blobs)], b"", NOW)
    long.restore(blobs, b"", NOW)
    assert list(long.stages) == ["in", "ok+by", "minute", "out"]
    for name, stage in long.stages.items():
        snapshots = [run.stages[name].logic.snapshot() for run in (short, rig.run)]
        assert snapshots == [stage.logic.snapshot()] * 2, name


def test_a_flow_run_to_its_end_sheds_nothing_and_ships_its_open_windows() -> None:
    """Decoded rows are larger than their payloads: more than the next queue's budget."""
    rig = Rig(flow_run())
    for instance in rig.run.all[1:]:
        instance.queue.budget_bytes = 1_000
    for number in range(50):
        rig.feed(number + 1, *[1.0] * 10)
    assert rig.pool.hold(rig.run.all, 60.0)
    list(run_out(rig.run, NOW))
    assert contributions(rig.run.form()) == [(0.0, 10.0, "a", 500, 500.0)]
    assert not any(i.delivery.shed for i in rig.run.all)
    assert rig.run.ended


@pytest.mark.parametrize(
    "blob",
    [pack_state({"gone": {}}), pack_state({"minute": {}}), pack_state({"minute": 7}), pack_state({"ok": {"ok": {}}}),
     b"x", pack_state({"minute": {"gone": [], "forgotten": [], "windows": [[1]], "emitted": []}})],
)  # fmt: skip
def test_state_that_does_not_fit_the_flow_raises_store_error(blob: bytes) -> None:
    with pytest.raises(StoreError):
        flow_run().restore([blob], b"", NOW)


def test_queues_of_another_plan_raise_store_error() -> None:
    rig = Rig(flow_run())
    rig.feed(1, 1.0)
    form = rig.checkpoint()
    assert form
    other = flow_run()
    assert isinstance(other.stages, dict)
    del other.stages["in"]
    with pytest.raises(StoreError, match="that of in"):
        other.restore(form.deltas, form.queue, NOW)


@pytest.mark.parametrize("fusion", ["full", "chains", "none"])
def test_the_schema_is_that_of_the_window_whoever_else_reads_it(fusion: Fusion) -> None:
    operators = DOCUMENT["operators"] | {"tell": {"type": "publish", "input": "minute", "topic": "y"}}
    flow = from_plain({"name": "f", "operators": operators}, REGISTRY)
    run = FlowRun(flow, REGISTRY, 1, 1, Progress(Position()), fusion)
    assert run.columns == flow_run().columns == ("window_start", "window_end", "source", "n", "s")
    assert len(run.ships) == 1


@pytest.mark.parametrize("fusion", get_args(Fusion))
def test_latency_is_of_rows_that_reach_the_end(fusion: Fusion) -> None:
    operators = {"in": DOCUMENT["operators"]["in"], "ok": DOCUMENT["operators"]["ok"]}
    operators["out"] = {"type": "publish", "input": "ok", "topic": "y"}
    rig = Rig(flow_run(fusion, {"name": "f", "operators": operators}))
    rig.pool.consumption = at_most(50)
    rig.feed(1, 1.0, -2.0, 3.0, -4.0, -5.0)
    for instance in rig.run.all:
        instance.schedule.fast_turns = FAST_TURNS
    while any(instance.queue.rows for instance in rig.run.all):
        rig.pool.lend(1.0)
    assert sum(sum(instance.counters.latency.counts) for instance in rig.run.all) == 2


def test_at_its_end_a_flow_gives_an_operator_that_may_wait_one_row_at_a_time() -> None:
    """Each may be waiting for a service that is away: whoever watches is to see that it goes on."""
    taken: list[int] = []

    class Asks(Logic):
        def process(self, batch: Any, source: int, now: Now) -> Sequence[Emission]:
            taken.append(len(batch))
            return (Emission(0, batch),)

    registry = MappingProxyType({**REGISTRY, "asks": OperatorSpec("asks", "Asks.", logic=lambda build: Asks())})
    operators = {
        "in": {"type": "mqtt_source", "time_earliest": "1970-01-01", "topic": "x/{source}", "qos": 0},
        "asks": {"type": "asks", "input": "in"},
        "out": {"type": "publish", "input": "asks", "topic": "y/{source}"},
    }
    run = FlowRun(from_plain({"name": "f", "operators": operators}, registry), registry, 1, 1, Progress(Position()))
    ((_, (source,)),) = run.sources()
    source.queue.append(Entry(0, RawBatch(["x/a"] * 7, [b'{"v": 1}'] * 7, 0.0, 1.7e9, 70)))
    turns = list(run_out(run, Now(0.0, 1.7e9)))
    assert taken == [1] * 7
    assert len(turns) >= 7
