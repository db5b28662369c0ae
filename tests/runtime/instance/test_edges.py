"""Divided edges: who gets rows, who is told the watermark, and what those who take from several believe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, Row
from edgert.core.checkpoint.position import Position
from edgert.core.text.topic_template import TopicTemplate
from edgert.flow.options.on_error import OnError
from edgert.operators.base.logic import Emission, Logic, Now
from edgert.operators.state.partitioning import CopiesByTopic, Divider
from edgert.operators.windows import TumblingWindow
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.instance.edges import InputWatermarks, Spread, Target, TurnOutput
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from gateway.ingest.inbox import Reader
from gateway.ingest.message_size import size_of
from tests.runtime.pools import Pass, instance


def spread(copies: int, by: str = "") -> Spread[Instance]:
    targets = [Target(instance(str(n), Pass()), 0) for n in range(copies)]
    return Spread(targets, Divider(((by, "string"),), copies).divide if by else None)


def given_out(edge: Spread[Instance], *batches: Batch) -> list[tuple[str, int, float]]:
    """(copy, rows, watermark) of one turn."""
    out: TurnOutput[Instance] = []
    for batch in batches:
        edge.give(batch, out)
    edge.settle(out)
    return [(target.instance.name, len(batch), batch.watermark) for target, batch in out]


def rows(*keys: str) -> list[Row]:
    return [{"time": 0.0, "source": key} for key in keys]


def test_batches_go_round_and_the_watermark_goes_to_all() -> None:
    edge = spread(3)
    assert given_out(edge, Batch(rows("a"), 0.0, 5.0)) == [("0", 1, 5.0), ("1", 0, 5.0), ("2", 0, 5.0)]
    assert given_out(edge, Batch(rows("a"), 0.0, 5.0)) == [("1", 1, 5.0)], "nothing new for the others"
    assert given_out(edge, Batch(rows("a"), 0.0, 6.0), Batch(rows("b"), 0.0, 7.0)) == [
        ("2", 1, 6.0), ("0", 1, 7.0), ("1", 0, 7.0), ("2", 0, 7.0)]  # fmt: skip


def test_batches_go_round_among_the_near_and_the_watermark_goes_to_all() -> None:
    edge = spread(4)
    edge.near = [1, 3]
    assert given_out(edge, *(Batch(rows("a"), 0.0, 5.0) for _ in range(3))) == [
        ("1", 1, 5.0), ("3", 1, 5.0), ("1", 1, 5.0), ("0", 0, 5.0), ("2", 0, 5.0)]  # fmt: skip


def test_however_many_batches_a_turn_gives_each_copy_is_told_once() -> None:
    told = given_out(spread(4, "source"), *(Batch([], 0.0, float(n)) for n in range(20)))
    assert told == [(str(n), 0, 19.0) for n in range(4)]
    assert given_out(spread(4, "source"), Batch([], 0.0)) == [], "no watermark is none"


@given(st.lists(st.tuples(st.lists(st.sampled_from("abcdef"), max_size=5), st.floats(0, 100)), max_size=8))
def test_what_a_batch_promises_is_not_told_before_its_rows(batches: list[tuple[list[str], float]]) -> None:
    """To each copy: no watermark of a later batch comes before rows of an earlier one, and rows come in order."""
    edge = spread(3, "source")
    out: TurnOutput[Instance] = []
    for number, (keys, watermark) in enumerate(batches):
        made = [{**row, "time": float(number)} for row in rows(*keys)]
        edge.give(Batch(made, 0.0, 100.0 * number + watermark, 10 * len(made)), out)
    edge.settle(out)
    seen: dict[str, float] = {}
    total = 0
    for target, batch in out:
        name = target.instance.name
        assert all(100.0 * row["time"] >= seen.get(name, NO_WATERMARK) - 100.0 for row in batch.rows)
        seen[name] = max(seen.get(name, NO_WATERMARK), batch.watermark)
        total += len(batch)
    assert total == sum(len(keys) for keys, _ in batches)
    if batches:
        assert set(seen.values()) == {100.0 * (len(batches) - 1) + batches[-1][1]}


def test_of_several_producers_the_smallest_promise_counts() -> None:
    watermarks = InputWatermarks(2)
    first = watermarks.merged(Batch(rows("a"), 0.0, 9.0), 0)
    assert first is not None
    assert first.watermark == NO_WATERMARK
    assert watermarks.merged(Batch([], 0.0, 10.0), 0) is None, "nothing new for who takes it"
    second = watermarks.merged(Batch([], 0.0, 7.0), 1)
    assert second == Batch([], 0.0, 7.0)
    shared = Batch(rows("a"), 0.0, 20.0, 3)
    assert watermarks.merged(shared, 0) == Batch(shared.rows, 0.0, 7.0, 3)
    assert shared.watermark == 20.0, "it may be another's, too"


def test_an_instance_fed_by_copies_closes_its_windows_when_all_of_them_have_passed() -> None:
    window = TumblingWindow("w", 10.0, [])
    made = instance("w", window)
    made.edges.watermarks = {0: InputWatermarks(2)}
    now = Now(0.0, 0.0)
    made.run([Entry(0, Batch(rows("a"), 0.0, 30.0), producer=0)], now)
    assert window.windows
    turn = made.run([Entry(0, Batch([], 0.0, 15.0), producer=1)], now)
    assert (window.watermark, window.windows, turn.failed) == (15.0, {}, None)


NAMES = [f"t/{n}" for n in (*range(9), 10**99)]
TOPICS = st.lists(st.tuples(st.sampled_from(NAMES), st.binary(max_size=3)), max_size=30)


@given(TOPICS, st.integers(2, 4))
def test_the_messages_of_a_topic_go_to_one_copy_in_order_and_none_is_lost(
    messages: list[tuple[str, bytes]], number: int
) -> None:
    copies: Any = tuple(range(number))
    by_topic = CopiesByTopic(TopicTemplate("t/+"), number)
    reader = Reader(Progress(Position()), copies[0], copies=copies, copy_of=by_topic)
    homes: dict[str, object] = {}
    sent: dict[str, list[bytes]] = {}
    for topic, payload in messages:
        sent.setdefault(topic, []).append(payload)
    found: dict[str, list[bytes]] = {}
    size = size_of([t for t, _ in messages], sum(len(p) for _, p in messages))
    parts = list(reader.divide(RawBatch([t for t, _ in messages], [p for _, p in messages], 1.0, 2.0, size)))
    for copy, part in parts:
        assert len(part)
        assert (part.arrival, part.wall) == (1.0, 2.0)
        for topic, payload in zip(part.topics, part.payloads, strict=True):
            assert homes.setdefault(topic, copy) == copy
            found.setdefault(topic, []).append(payload)
    assert found == sent
    assert sum(part.size for _, part in parts) == size


class Fails(Logic):
    """On some rows once, when they come by themselves, or with others."""

    def __init__(self, on: set[int]) -> None:
        super().__init__()
        self.on = on
        self.seen: list[float] = []
        """Times of rows as they pass."""
        self.watermark = NO_WATERMARK

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        for row in batch.rows:
            if row["time"] in self.on:
                if len(batch) == 1:
                    self.on.discard(row["time"])
                raise ConnectionError("not now")
        assert all(row["time"] > self.watermark for row in batch.rows), "the watermark has overtaken rows"
        self.seen += [row["time"] for row in batch.rows]
        self.watermark = max(self.watermark, batch.watermark)
        return ()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), max_size=20), st.sets(st.integers(0, 180)), st.data())
def test_rows_that_are_tried_again_come_before_what_other_copies_have_promised_since(
    batches: list[tuple[int, int]], on: set[int], data: st.DataObject
) -> None:
    """Every copy is given the whole time, as `Spread` does; its rows are some of it."""
    logic = Fails(set(on))
    logic.repeatable = True
    made = instance("fails", logic)
    made.edges.watermarks = {0: InputWatermarks(3)}
    made.boundaries[0].policy = OnError("retry", None, 3, 0.5)
    queue, time = made.queue, 0
    for giver, rows_in in batches:
        given_rows = [{"time": float(time + n), "source": "a"} for n in range(rows_in)]
        time += rows_in
        for copy in data.draw(st.permutations(range(3))):
            queue.append(Entry(0, Batch(given_rows if copy == giver else [], 0.0, time - 1.0, 10), 0.0, copy))
    while queue.rows:
        turn = made.run(queue.take(data.draw(st.integers(1, 30))), Now(0.0, 0.0))
        queue.put_back(turn.back)
    assert logic.seen == [float(n) for n in range(time)]
