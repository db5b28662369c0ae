"""What rows of somebody else's operators may hold: what can be carried further; a row that cannot is lost alone."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import Batch, RawBatch, Row
from edgert.core.packing import pack, unpack
from edgert.core.text.topic_template import TopicTemplate
from edgert.flow.options.on_error import OnError
from edgert.operators.base.error_boundary import FAILED, ErrorBoundary
from edgert.operators.base.logic import Emission, Logic, Now
from edgert.operators.base.values import DEEPEST, plain_rows
from tests.named import named

NOW = Now(0.0, 0.0)
HEAD = {"time": 1.0, "source": "a"}
"""What every row has."""


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    YES = "yes"


class Spiteful:
    ndim = 0

    def item(self) -> Any:
        raise SystemExit("asked")


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.text(), PLAIN, max_size=4), max_size=4))
def test_rows_that_can_be_carried_stay_the_very_same(rows: list[Row]) -> None:
    rows, faults = [row | HEAD for row in rows], list[Any]()
    assert plain_rows(rows, faults) is rows
    assert not faults
    pack(rows)


@pytest.mark.parametrize(
    ("value", "made"),
    [
        (np.int64(3), 3), (np.uint64(2**63), 2**63), (np.float64(0.5), 0.5), (np.float32(0.5), 0.5),
        (np.bool_(True), True), (np.str_("a"), "a"), (np.bytes_(b"a"), b"a"), (np.array(3), 3),
        (Number.ONE, 1), (Word.YES, "yes"), (2**64, 2.0**64), (-(2**2000), -math.inf),
        ([1, np.int64(2)], [1, 2]), ((np.int64(2), "a"), [2, "a"]), ({"b": {"c": np.int64(2)}}, {"b": {"c": 2}}),
        ({np.str_("k"): 1}, {"k": 1}), (OrderedDict(a=1), {"a": 1}),
    ],
)  # fmt: skip
def test_what_can_be_made_into_a_plain_value_is_and_the_row_that_was_given_stays_as_it_was(
    value: Any, made: Any
) -> None:
    row = HEAD | {"v": value}
    faults: list[Any] = []
    other: Row = HEAD | {"n": 1}
    first, second = plain_rows([other, row], faults)
    assert first is other
    assert second == HEAD | {"v": made}
    assert type(second["v"]) is type(made)
    assert unpack(pack(second)) == second
    assert row["v"] is value
    assert not faults


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"v": decimal.Decimal(1)}, "got decimal.Decimal"),
        ({"v": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}, "v: expected a boolean, a number, .*, got datetime.datetime"),
        ({"v": {1, 2}}, "got set"),
        ({"v": np.datetime64("2026-01-01")}, "got numpy.datetime64"),
        ({"v": np.array([1])}, "got numpy.ndarray"),
        ({"v": [1, {"a": {1}}]}, "v: .* got set"),
        ({"v": {(1, 2): 3}}, "v: expected text or numbers as keys, got tuple"),
        ({"v": "\ud800"}, "v: expected text that UTF-8 can carry"),
        ({"\ud800": 1}, "the name of a field: expected text that UTF-8"),
        ({1: 2}, "expected text as name of a field, got int"),
        ({"v": nested(DEEPEST + 1)}, "v: expected at most 256 lists"),
        ({"v": Spiteful()}, "asked"),
        ({"v": {None: 1}}, "v: expected text or numbers as keys, got NoneType"),
        ({"v": {True: 1}}, "v: expected text or numbers as keys, got bool"),
        ({"time": math.nan}, "time: expected seconds .*, a finite number, got nan"),
        ({"time": -math.inf}, "time: expected seconds"),
        ({"time": None}, "time: expected seconds"),
        ({"time": "1.0"}, "time: expected seconds"),
        ({"time": True}, "time: expected seconds"),
        ({"source": 5}, "source: expected the device's name, text, got 5"),
        ({"source": None}, "source: expected"),
        (7, r"expected a row \(a dict\), got int"),
    ],
)
def test_a_row_that_nobody_could_carry_is_left_out_and_said_by_field_and_type(row: Any, said: str) -> None:
    before, after = HEAD | {"n": 1}, HEAD | {"n": 2}
    row, faults = HEAD | row if isinstance(row, dict) else row, list[Any]()
    assert plain_rows([before, row, after], faults) == [before, after]
    ((lost, error),) = faults
    assert lost is row
    with pytest.raises(type(error), match=said):
        raise error


class Gives(Logic):
    """Adds what it is told to each row; in the end gives what it is told."""

    def __init__(self, last: Any = None, repeatable: bool = True) -> None:
        super().__init__()
        self.last, self.repeatable = last, repeatable
        self.asked = 0

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        self.asked += 1
        rows = [{**row, "v": {1} if row["n"] % 3 == 0 else np.int64(row["n"])} for row in batch.rows]
        return (Emission(0, Batch(rows, batch.arrival, batch.watermark, 10)),)

    def flush(self, now: Now) -> Sequence[Emission]:
        return (Emission(0, Batch([HEAD | {"n": 8}, HEAD | {"n": 9, "v": self.last}], 0.0)),)


@pytest.mark.parametrize("repeatable", [True, False])
def test_of_what_somebody_elses_operator_gives_only_rows_at_fault_are_lost_each_once(repeatable: bool) -> None:
    logic = Gives(np.datetime64("2026-01-01"), repeatable)
    boundary = ErrorBoundary(logic)
    boundary.flow, boundary.operator = "f", "op"
    boundary.policy = OnError("retry", TopicTemplate("bad/{operator}/{source}", sink=True), tries=3)
    given = [HEAD | {"n": n} for n in range(5)]
    ((_, batch),) = boundary.process(Batch(given, 1.0, 7.0), 0, NOW)
    assert [(row["n"], row["v"], type(row["v"])) for row in batch.rows] == [(n, n, int) for n in (1, 2, 4)]
    assert (batch.arrival, batch.watermark, batch.size) == (1.0, 7.0, 0), "of what is left, and to be sized anew"
    assert logic.asked == 1, "it would give the same again"
    assert not boundary.held
    ((_, batch),) = boundary.flush(NOW)
    assert batch.rows == [HEAD | {"n": 8}]
    assert (boundary.failures, boundary.dead_letters, logic.drops) == (3, 3, {FAILED: 3})
    letters = [json.loads(message.payload) for message in named(logic.messages)]
    assert [letter["row"]["n"] for letter in letters] == [0, 3, 9]
    assert letters[0]["error"].startswith("TypeError: v: expected ")
    assert letters[0]["error"].endswith("got set")
    assert {message.topic for message in named(logic.messages)} == {"bad/op/a"}
    assert str(boundary.errors[0][1]).endswith("got numpy.datetime64")


def test_a_batch_of_which_no_row_is_left_still_brings_its_watermark() -> None:
    boundary = ErrorBoundary(Gives())
    ((_, batch),) = boundary.process(Batch([{"n": 0}, {"n": 3}], 1.0, 7.0), 0, NOW)
    assert (batch.rows, batch.watermark) == ([], 7.0)
    assert boundary.logic.drops == {FAILED: 2}
    assert not boundary.logic.messages, "the flow wants no letters"


def test_what_a_batch_takes_in_memory_is_reckoned_whatever_its_giver_says() -> None:
    class Big(Gives):
        def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
            return (Emission(0, Batch([HEAD | {"text": "x" * 1_000}] * 10, 0.0, size=-(10**9))),)

    ((_, batch),) = ErrorBoundary(Big()).process(Batch([HEAD | {}], 0.0), 0, NOW)
    assert batch.size == 0, "to be told where it is put on a queue"
