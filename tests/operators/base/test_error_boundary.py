"""What becomes of rows on which an operator raises: only they are lost, nothing is counted twice, and order is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import Batch, RawBatch, Row
from edgert.core.text.topic_template import TopicTemplate
from edgert.flow.options.on_error import ErrorAction, OnError
from edgert.operators.base.error_boundary import CAREFUL_ROWS, FAILED, ErrorBoundary, as_errors, dead_letter, repeats
from edgert.operators.base.logic import Emission, Logic, Message, Now
from edgert.operators.sinks import PublishSink, Ship
from edgert.operators.sources.source import Source
from edgert.operators.trackers import Kalman
from edgert.operators.windows import TumblingWindow
from tests.named import named
from tests.operators.base.error_boundary_rig import BATCHES, NOW, Driven, Fussy, batches_of, row_of


@given(BATCHES, st.sampled_from(["drop", "dead-letter"]))
def test_of_a_repeatable_operator_only_rows_at_fault_are_lost_and_nothing_is_said_or_counted_twice(
    faults: list[list[int]], action: ErrorAction
) -> None:
    for batch in (batches := batches_of(faults)):
        for row in batch.rows:
            row["faults"] = [10**6 if row["faults"][0] else 0]
    bad = {row["n"] for b in batches for row in b.rows if row["faults"][0]}
    good = [row["n"] for b in batches for row in b.rows if not row["faults"][0]]
    topic = TopicTemplate("bad/{operator}/{source}", sink=True) if action == "dead-letter" else None
    driven = Driven(Fussy(True), OnError(action, topic))
    driven.feed(batches)
    logic, boundary = driven.logic, driven.boundary
    assert driven.out == good == logic.state
    assert logic.drops == ({"values": len(good)} if good else {}) | ({FAILED: len(bad)} if bad else {})
    assert [m.topic for m in named(logic.messages) if m.topic.startswith("t/")] == [f"t/{n}" for n in good]
    letters = [m for m in named(logic.messages) if m.topic == "bad/op/a"]
    assert [json.loads(m.payload)["row"]["n"] for m in letters] == (sorted(bad) if topic else [])
    assert boundary.dead_letters == len(letters)
    assert boundary.failures == len(bad)
    assert driven.marks == [float(n) for n in range(len(batches))], "a lost row does not take the watermark with it"


@given(BATCHES, st.integers(1, 4), st.booleans())
def test_a_row_is_tried_again_as_often_as_the_flow_says_and_nothing_overtakes_it(
    faults: list[list[int]], tries: int, patient: bool
) -> None:
    """The operator raises on a row as often as `faults` says when it comes by itself, or at once if it may."""

    class Alone(Fussy):
        def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
            assert isinstance(batch, Batch)
            if len(batch) > 1 and any(row["faults"][0] for row in batch.rows):
                raise ValueError("one of them")
            return super().process(batch, source, now)

    batches = batches_of(faults)
    good = [row["n"] for b in batches for row in b.rows if row["faults"][0] <= tries]
    asked = [min(row["faults"][0], tries + 1) for b in batches for row in b.rows]
    driven = Driven(Alone(True), OnError("retry", None, tries, 0.5), patient)
    driven.feed(batches)
    assert driven.out == good == driven.logic.state
    assert driven.logic.drops[FAILED] == len(asked) - len(good)
    retries = [min(count, tries) for count in asked]
    assert driven.boundary.retries == sum(retries)
    assert driven.boundary.failures == sum(asked)
    assert driven.waits == ([0.5 * 2**n for count in retries for n in range(count)] if patient else [])


@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize("raw", [False, True])
@given(faults=st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_each_row_has_its_own_tries_though_all_are_one_object(raw: bool, patient: bool, faults: list[int]) -> None:
    """As an operator may give one row twice, and messages of one byte are."""

    class Away(Logic):
        def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
            if len(batch) > 1:
                raise ValueError("one of them")
            if left[0]:
                left[0] -= 1
                raise ValueError("not now")
            passed.append(left.pop(0))
            return ()

    left, passed = list(faults), list[int]()
    boundary = ErrorBoundary(Away())
    boundary.policy, boundary.patient = OnError("retry", None, 3, 0.5), patient
    row, payload = row_of(1), b"x"
    count = len(faults)
    waiting = [RawBatch(["t"] * count, [payload] * count, 0.0, 0.0, count) if raw else Batch([row] * count, 0.0)]
    while waiting:
        boundary.process(waiting.pop(0), 0, NOW)
        waiting, boundary.held = [*boundary.held, *waiting], []
    assert (len(passed), left, boundary.retries) == (count, [], sum(faults))
    assert not boundary.logic.drops
    assert boundary._stuck is None, "what has passed is kept no longer"


@given(BATCHES, st.sampled_from(["drop", "dead-letter", "retry"]))
def test_an_operator_that_may_have_kept_part_of_a_batch_is_given_no_row_twice(
    faults: list[list[int]], action: ErrorAction
) -> None:
    batches = batches_of(faults)
    topic = None if action == "drop" else TopicTemplate("bad", sink=True)
    driven = Driven(Fussy(False), OnError(action, topic))
    driven.feed(batches)
    logic = driven.logic
    numbers = [row["n"] for b in batches for row in b.rows]
    assert len(set(logic.given)) == len(logic.given)
    assert len(set(logic.state)) == len(logic.state)
    assert len(driven.out) + logic.drops[FAILED] == len(numbers)
    assert driven.out == sorted(driven.out)
    letters = [json.loads(m.payload) for m in named(logic.messages) if m.topic == "bad"]
    assert sorted([letter["row"]["n"] for letter in letters] + driven.out) == (numbers if topic else driven.out)
    assert driven.boundary.retries == 0


def test_after_such_an_operator_has_raised_rows_come_one_by_one_for_a_while() -> None:
    driven = Driven(Fussy(False), OnError())
    driven.feed(batches_of([[0, 1, 0], [0, 1, 0, 1]]))
    assert driven.out == [3, 5], "the first time nobody knows how far it came; the second, only rows at fault are lost"
    assert driven.boundary.failures == 3
    driven.feed([Batch([{"time": 0.0, "source": "a", "n": n, "faults": [0]} for n in range(CAREFUL_ROWS)], 0.0)])
    sizes: list[int] = []
    process = driven.logic.process

    def measured(batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        sizes.append(len(batch))
        return process(batch, source, now)

    driven.logic.process = measured  # type: ignore[method-assign]
    driven.feed(batches_of([[0, 0, 0]]))
    assert sizes == [3], "nothing was wrong for long: whole batches again"


class Panic(BaseException):
    """What a Rust extension raises is no `Exception` either."""


@pytest.mark.parametrize("kind", [Panic, SystemExit, asyncio.CancelledError, GeneratorExit])
@pytest.mark.parametrize("repeatable", [True, False])
def test_what_is_no_exception_is_an_error_of_the_row_too(kind: type[BaseException], repeatable: bool) -> None:
    class Ends(Logic):
        def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
            assert isinstance(batch, Batch)
            if any(row["n"] % 3 == 2 for row in batch.rows) or batch.watermark == 7.0:
                raise kind("as told")
            return (Emission(0, batch),)

        def flush(self, now: Now) -> Sequence[Emission]:
            raise kind("as told")

    logic = Ends()
    logic.repeatable = repeatable
    boundary = ErrorBoundary(logic)
    boundary.policy = OnError("dead-letter", TopicTemplate("bad", sink=True))
    batches = [Batch([row_of(n) for n in numbers], 0.0, mark) for numbers, mark in (([2], 1.0), ([3, 5, 6], 7.0))]
    out = [row["n"] for batch in batches for e in boundary.process(batch, 0, NOW) for row in e.batch.rows]
    assert out == [3], "with 6 comes the watermark on which it raises"
    assert logic.drops[FAILED] == len(logic.messages) == 3
    assert named(logic.messages)[0].reason.endswith(f"{kind.__name__}: as told")
    failures = boundary.failures
    assert (boundary.flush(NOW), boundary.failures) == ((), failures + 1)


def test_only_an_interrupt_is_raised() -> None:
    class Interrupted(Logic):
        def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ErrorBoundary(Interrupted()).process(Batch([{"n": 1}], 0.0), 0, NOW)


def test_what_else_is_asked_of_an_operator_raises_only_exceptions() -> None:
    for raised, passed in (
        (Panic("as told"), RuntimeError),
        (SystemExit(1), RuntimeError),
        (KeyError("k"), KeyError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ):
        with pytest.raises(passed) as told, as_errors():
            raise raised
        assert told.value is raised or str(told.value) == f"an operator raised {type(raised).__name__}: {raised}"


def test_who_is_repeatable() -> None:
    class Plain(Logic):
        pass

    class Keeps(Logic):
        def snapshot(self) -> Any:
            return {}

    class Ends(Logic):
        def flush(self, now: Now) -> Sequence[Emission]:
            return ()

    assert [repeats(made()) for made in (Plain, Keeps, Ends, Ship)] == [True, False, False, False]
    assert repeats(Fussy(True))
    assert Source.repeatable
    assert PublishSink.repeatable is None
    assert not TumblingWindow.repeatable
    assert not Kalman.repeatable


def test_a_row_that_an_operator_itself_found_at_fault_is_a_dead_letter_too() -> None:
    class Finds(Logic):
        def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
            assert isinstance(batch, Batch)
            self.lost += [(row, "odd") for row in batch.rows if row["n"] % 2]
            return ()

    boundary = ErrorBoundary(Finds())
    boundary.policy = OnError("dead-letter", TopicTemplate("bad/{flow}/{operator}", sink=True))
    boundary.flow, boundary.operator = "f", "a+b"
    boundary.process(batches_of([[0, 0, 0, 0]])[0], 0, NOW)
    assert [(m.topic, m.reason, json.loads(m.payload)["row"]["n"]) for m in named(boundary.logic.messages)] == [
        ("bad/f/a_b", "a+b: odd", 1), ("bad/f/a_b", "a+b: odd", 3),
    ]  # fmt: skip
    assert boundary.failures == 0
    assert not boundary.logic.lost


def test_a_message_that_was_not_decoded_is_sent_on_as_it_came() -> None:
    class Chokes(Logic):
        def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
            assert isinstance(batch, RawBatch)
            if b"bad" in batch.payloads:
                raise MemoryError
            return (Emission(0, Batch([{**row_of(0), "p": p} for p in batch.payloads], 0.0)),)

    boundary = ErrorBoundary(Chokes())
    boundary.policy = OnError("dead-letter", TopicTemplate("bad/{source}", sink=True))
    boundary.operator = "in"
    emitted = boundary.process(RawBatch(["x"] * 5, [b"1", b"2", b"bad", b"4", b"5"], 0.0, 0.0, 50), 0, NOW)
    assert [row["p"] for e in emitted for row in e.batch.rows] == [b"1", b"2", b"4", b"5"]
    assert boundary.logic.messages == [Message("bad/unknown", b"bad", 1, reason="in: MemoryError: ")]


class Spiteful(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize("error", [Spiteful(), ValueError("\ud800 \0"), ValueError("x" * 10_000)])
def test_whatever_an_error_says_a_dead_letter_can_be_written(error: Exception) -> None:
    class Raises(Logic):
        def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
            raise error

    boundary = ErrorBoundary(Raises())
    boundary.policy = OnError("dead-letter", TopicTemplate("bad/{source}", sink=True))
    row: Row = {"time": 0.0, "source": "a/+#\0\ud800"}
    assert boundary.process(Batch([row], 0.0, 5.0), 0, NOW) == []
    (message,) = named(boundary.logic.messages)
    assert message.topic == "bad/a___\ufffd?"
    assert json.loads(message.payload)["error"].startswith(type(error).__name__)
    message.reason.encode()
    assert "\0" not in message.reason


def test_a_dead_letter_is_json_whatever_the_row_holds() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    rows: list[tuple[Any, Any]] = [
        ({"a": 1, "b": None}, {"a": 1, "b": None}),
        ({"a": float("nan"), "z": 1 + 2j}, {"a": None, "z": "(1+2j)"}),
        ({"a": 2**80}, {"a": 2**80}),
        ({"a": "\ud800"}, "{'a': '\\ud800'}"),
        ({"a": deep}, "a row that cannot be shown (RecursionError)"),
    ]
    for row, shown in rows:
        letter = json.loads(dead_letter("f", "op", "why", row))
        assert (letter["flow"], letter["operator"], letter["error"]) == ("f", "op", "why")
        assert letter["row"] == shown or letter["row"] == repr(row)


class Lazy(Logic):
    """Somebody else's operator, which gives each row by itself, as a generator, and raises on row 3."""

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Any:
        assert isinstance(batch, Batch)
        for row in batch.rows:
            if row["n"] == 3:
                raise ValueError("row 3")
            yield Emission(0, Batch([row], batch.arrival, batch.watermark))

    def flush(self, now: Now) -> Any:
        yield Emission(0, Batch([row_of(9)], 0.0))
        raise ValueError("the end")


@pytest.mark.parametrize("repeatable", [True, False])
def test_what_a_generator_raises_is_raised_in_its_guard(repeatable: bool) -> None:
    logic = Lazy()
    logic.repeatable = repeatable
    boundary = ErrorBoundary(logic)
    out: list[Emission] = []
    for batch in (Batch([row_of(n)], 0.0, float(n)) for n in range(5)):
        out += boundary.process(batch, 0, NOW)
    out += boundary.process(Batch([row_of(n) for n in range(5)], 0.0, 9.0), 0, NOW)
    assert [row["n"] for emission in out for row in emission.batch.rows] == [0, 1, 2, 4, 0, 1, 2, 4]
    assert (boundary.failures, logic.drops[FAILED]) == (2, 2)
    assert (boundary.flush(NOW), boundary.failures) == ((), 3)


def odd(rows: Any, arrival: Any = 0.0, watermark: Any = 0.0) -> Batch:
    return Batch(rows, arrival, watermark)


@pytest.mark.parametrize(
    "returned",
    [
        None, 7, Batch([row_of(1)], 0.0), [Batch([row_of(1)], 0.0)], [(0, [row_of(1)])], [(None, Batch([], 0.0))],
        [(0, odd(iter([row_of(1)])))], [(0, odd([7]))], [(0, odd([], None))], [(0, odd([], float("nan")))],
        [(0, odd([], 0.0, None))], [(0, odd([], 0.0, float("nan")))],
    ],
)  # fmt: skip
def test_what_is_no_emission_costs_the_rows_for_which_it_was_returned(returned: Any) -> None:
    class Odd(Logic):
        def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Any:
            return returned if len(batch) else ()

        def flush(self, now: Now) -> Any:
            return returned

    boundary = ErrorBoundary(Odd())
    assert list(boundary.process(Batch([row_of(1)], 0.0), 0, NOW)) == []
    assert list(boundary.flush(NOW)) == []
    assert (boundary.failures, boundary.logic.drops[FAILED]) == (2, 2)
    assert "expected a" in str(boundary.errors)
