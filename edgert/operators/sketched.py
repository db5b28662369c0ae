"""Operators that estimate what a stream is like, in bounded memory per key: each adds a field to every row.

distinct_count   how many different values a field has had
second_moment    how uneven they are: the sum of squares of how often each came
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from edgert.core.batch import CLOCK_IS_SET, Batch, RawBatch, Row
from edgert.flow.graph import Node
from edgert.flow.spec import FieldUse, OperatorSpec, Parameter
from edgert.operators.base.fields import field_name, key_reader, new_field
from edgert.operators.base.inline import Fields, Inlinable, Lines
from edgert.operators.base.logic import Build, Emission, Now, emission_of
from edgert.operators.state.bounded_keys import ByKey
from edgert.operators.state.partitioning import as_they_are
from edgert.operators.state.wrong_clock import AHEAD_S, SLACK_S, TAKEN_BACK
from edgert.sketches import hyperloglog, second_moment
from edgert.sketches.hashing import hash_of
from edgert.sketches.hyperloglog import HyperLogLog, precision_for
from edgert.sketches.second_moment import SecondMoment, width_for

MEMORY_BYTES: Final = 32 * 1024 * 1024
"""For the sketches of all keys together, as they are resident."""
OBJECTS_BYTES: Final = 440
"""Bytes of a sketch beside its arrays."""
Sketch = HyperLogLog | SecondMoment


class KeyState(NamedTuple):
    """State of a key."""

    period: int
    """Number of the period since the epoch; 0 where there are none."""
    sketch: Sketch


class Sketched(Inlinable, ABC):
    """State: a sketch per key."""

    at_once = True

    def __init__(self, field: str, output: str, keys: Sequence[str], period_s: float, sketch_bytes: int) -> None:
        super().__init__()
        self.by_key: ByKey[KeyState] = ByKey("kept", sketch_bytes + OBJECTS_BYTES, memory_bytes=MEMORY_BYTES)
        self.memory = self.by_key.memory
        self.kept = self.by_key.kept
        self._field, self._output, self._period_s = field, output, period_s
        self._keys = tuple(keys)
        self._key_of = key_reader(keys)
        self._empty = self.fresh()
        """State of a new key, as the lines need it."""

    @abstractmethod
    def fresh(self) -> Sketch:
        """A sketch of nothing."""

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        limit = now.wall + AHEAD_S if now.wall > CLOCK_IS_SET else math.inf
        return emission_of(batch, self._told(batch.rows, limit) if batch.rows else [])

    def _told(self, rows: Sequence[Row], limit: float) -> list[Row]:
        field, output, key_of, kept, dirty = self._field, self._output, self._key_of, self.kept, self.by_key.changed
        span = self._period_s
        out = []
        bad = late = period = 0
        most = (limit + SLACK_S) // span if span else math.inf
        for row in rows:
            key = key_of(row)
            if span:
                period = int(min(row["time"], limit) // span)
            held = kept.get(key)
            if held is None or held.period < period:
                if held is None:
                    self.by_key.weighs(key)
                held = kept[key] = KeyState(period, self.fresh())
                dirty[key] = None
            elif held.period > most:  # our own clock was ahead
                self.drops[TAKEN_BACK] += 1
                held = kept[key] = KeyState(period, self.fresh())
                dirty[key] = None
            elif held.period > period:
                late += 1
                out.append({**row, output: None})
                continue
            hashed = hash_of(row.get(field))
            if hashed is None:
                bad += row.get(field) is not None
            elif held.sketch.add(hashed):
                dirty[key] = None
            out.append({**row, output: held.sketch.estimate})
        if late:
            self.drops["late (values)"] += late
        self._told_all(bad)
        return out

    def _told_all(self, bad: int) -> None:
        """Behind the rows of a batch."""
        if bad:
            self.drops["bad_value (values)"] += bad
        self.by_key.forget_beyond(self.drops)

    def _begin(self, key: Any) -> KeyState:
        self.by_key.weighs(key)
        held = self.kept[key] = KeyState(0, self.fresh())
        self.by_key.changed[key] = None
        return held

    def inlines(self, source: int) -> bool:
        return not self._period_s  # which asks for the time of the turn

    def inline(self, row: Fields, source: int) -> Lines:
        value = row.of(self._field)
        return Lines(
            check=[
                f"key = {row.key(self._keys)}",
                "held = kept.get(key)",
                "sketch = empty if held is None else held.sketch",
                f"hashed = hash_of({value})",
                "made, change = (sketch.estimate, None) if hashed is None else sketch.after(hashed)",
            ],
            effect=[
                "if held is None:",
                "    sketch = begin(key).sketch",
                "if change is not None:",
                "    sketch.take(change)",
                "    dirty[key] = None",
                f"elif hashed is None and {value} is not None:",
                "    bad += 1",
            ],
            row=replace(
                row,
                variables={**row.variables, self._output: "made"},
                sure=row.sure | {"made"},
                numbers=row.numbers | {"made"},
            ),
            setup=["dirty = by_key.changed", "bad = 0"],
            finish=["told_all(bad)"],
            constants={
                "hash_of": hash_of, "kept": self.kept, "empty": self._empty, "begin": self._begin,
                "by_key": self.by_key, "told_all": self._told_all,
            },
        )  # fmt: skip

    def delta(self) -> Any | None:
        return self.by_key.delta(lambda kept: (kept.period, kept.sketch.changes()))

    def snapshot(self) -> Any | None:
        return self.by_key.snapshot(lambda kept: (kept.period, kept.sketch.state()))

    def restore(self, state: Any) -> None:
        for key, period, changes in self.by_key.told(state):
            held = self.kept.get(key)
            if held is None or held.period != period:
                held = self.kept[key] = KeyState(period, self.fresh())
            held.sketch.apply(changes)


class DistinctCount(Sketched):
    """HyperLogLog per key."""

    def __init__(self, field: str, output: str, keys: Sequence[str], period_s: float, error: float) -> None:
        self._precision = precision_for(error)
        super().__init__(field, output, keys, period_s, hyperloglog.memory_of(self._precision))

    def fresh(self) -> HyperLogLog:
        return HyperLogLog(self._precision)


class Moment(Sketched):
    """Tug-of-war sketch per key."""

    def __init__(self, field: str, output: str, keys: Sequence[str], period_s: float, error: float) -> None:
        self._width = width_for(error)
        super().__init__(field, output, keys, period_s, second_moment.memory_of(self._width))

    def fresh(self) -> SecondMoment:
        return SecondMoment(self._width)


def _period(seconds: float) -> float:
    if 0 < seconds < 1:
        raise ValueError(f"expected 0 or at least 1 (s), got {seconds:g}")
    return seconds


def _fields(node: Node) -> FieldUse:
    return FieldUse(frozenset((node.parameters["field"],)), frozenset((node.parameters["output"],)))


def _common(build: Build) -> tuple[str, str, list[str], float, float]:
    p = build.node.parameters
    return p["field"], p["output"], [name for name, _ in build.keys], p["period_s"], p["standard_error"]


_FIELD = Parameter(
    "field", "string", "The field to look at; its values may be numbers, strings, booleans.", parse=field_name
)
_PERIOD = Parameter(
    "period_s",
    "number",
    "Begin anew with each such span of event time, aligned to the epoch (UTC); a row of an earlier one gets null, and "
    "is counted. 0: never.",
    0.0,
    "s",
    minimum=0.0,
    maximum=31_622_400,
    parse=_period,
)
SPECS = (
    OperatorSpec(
        type="distinct_count",
        doc="Adds how many different values a field has had so far, per key: an estimate (HyperLogLog).",
        fields=_fields,
        logic=lambda build: DistinctCount(*_common(build)),
        divides_by=as_they_are,
        parameters=(
            _FIELD,
            Parameter("output", "string", "Field for the estimate.", "distinct", parse=new_field),
            _PERIOD,
            Parameter(
                "standard_error",
                "number",
                "Its standard error: about that, or less. 0.0325 takes 1.9 kB per key, 0.01 takes 19 kB. All keys take "
                "32 MB at most (with names of usual length): then the oldest is forgotten, and counted.",
                0.0325,
                minimum=0.005,
                maximum=0.26,
            ),
        ),
    ),
    OperatorSpec(
        type="second_moment",
        doc="Adds the second frequency moment of a field so far, per key: the sum over its values of how often each "
        "came, squared. An estimate (Alon, Matias and Szegedy's tug of war). n rows of n different values give n, n "
        "of one value n².",
        fields=_fields,
        logic=lambda build: Moment(*_common(build)),
        divides_by=as_they_are,
        parameters=(
            _FIELD,
            Parameter("output", "string", "Field for the estimate.", "moment", parse=new_field),
            _PERIOD,
            Parameter(
                "standard_error",
                "number",
                "That of each of five estimates, whose median is taken; this is wrong by more than twice of it in at "
                "most 10.4 % of cases. 0.177 takes 3.6 kB per key, 0.05 takes 42 kB; memory as with `distinct_count`.",
                0.177,
                minimum=0.032,
                maximum=0.5,
            ),
        ),
    ),
)
