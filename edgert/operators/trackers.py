"""Operators that follow one field per key, row by row: each adds a field with what it makes of the values so far.

kalman               the value, with the sensor's noise taken out
sliding_regression   where the line through the last n values will be, some rows ahead
interpolate          the mean of the last n values where there is none
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edgert.core.batch import GREATEST, Batch, RawBatch, Row
from edgert.flow.graph import Node
from edgert.flow.spec import FieldUse, OperatorSpec, Parameter
from edgert.operators.base.fields import field_name, key_reader, new_field
from edgert.operators.base.inline import Fields, Inlinable, Lines, indented
from edgert.operators.base.logic import Build, Emission, Now, emission_of
from edgert.operators.state.aggregates import plain_sum
from edgert.operators.state.bounded_keys import SLOT_BYTES, ByKey, forgets
from edgert.operators.state.partitioning import as_they_are

TrackState = list[float]
_IS_NUMBER = "(type({v}) is float or type({v}) is int)"


class Tracker(Inlinable, ABC):
    """State: a list of numbers per key."""

    at_once = True
    fills = False
    """True if it leaves a row that has a value as it is."""

    def __init__(self, field: str, output: str, keys: Sequence[str], numbers: int) -> None:
        """`numbers`: in a track, at most."""
        super().__init__()
        self._by_key: ByKey[TrackState] = ByKey("tracks", numbers * SLOT_BYTES)
        self.memory = self._by_key.memory
        self.tracks = self._by_key.kept
        self._field, self._output, self._keys = field, output, tuple(keys)
        self._key_of = key_reader(keys)

    @abstractmethod
    def follow(self, track: TrackState | None, value: float) -> tuple[TrackState, float | None]:
        """Another track, which has one more value, and what to put out; None as yet."""

    def absent(self, track: TrackState | None) -> float | None:
        """The output for a row without a value."""
        return None

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        return emission_of(batch, self._followed(batch.rows) if batch.rows else [])

    def _followed(self, rows: Sequence[Row]) -> list[Row]:
        field, output, tracks, dirty = self._field, self._output, self.tracks, self._by_key.changed
        key_of, follow, fills = self._key_of, self.follow, self.fills
        out = []
        bad = 0
        for row in rows:
            key = key_of(row)
            value = row.get(field)
            track = tracks.get(key)
            kind = type(value)
            if (kind is float or kind is int) and -GREATEST <= value <= GREATEST:  # type: ignore[operator]
                if track is None:
                    self._by_key.weighs(key)
                tracks[key], made = follow(track, float(value))  # type: ignore[arg-type]
                dirty[key] = None
            else:
                if value is not None:
                    bad += 1
                    self.unusable.note(field, value)
                made = self.absent(track)
            out.append(row if fills and value is not None else {**row, output: made})
        self._followed_all(bad)
        return out

    def _followed_all(self, bad: int) -> None:
        """Behind the rows of a batch."""
        if bad:
            self.drops["bad_value (values)"] += bad
        self._by_key.forget_beyond(self.drops)

    def _following(self) -> tuple[Any, ...]:
        """Values for the lines until the next checkpoint."""
        return self.tracks, self._by_key.changed, self._by_key.weighs

    def look(self, value: str, number: str) -> list[str]:
        """Lines that make `made` of a row's value; if `is_value`, that is a `number`. They change nothing."""
        return ["if is_value:", f"    after, made = follow(track, {number})", "else:", "    made = absent(track)"]

    def keep(self, number: str) -> list[str]:
        """Lines by which the track has one more."""
        return ["tracks[key] = after"]

    def inline(self, row: Fields, source: int) -> Lines:
        value = row.of(self._field)
        finite, sure = value in row.finite, value in row.sure
        number_or_none = finite or value in row.numbers
        is_value = _IS_NUMBER.format(v=value) if not number_or_none else "True" if sure else f"{value} is not None"
        if not finite:
            is_value += f" and -GREATEST <= {value} <= GREATEST"
        number = value if finite else f"float({value})"
        made = replace(
            row,
            variables={**row.variables, self._output: "made"},
            numbers=row.numbers | {"made"} if number_or_none or not self.fills else row.numbers,
        )
        return Lines(
            check=[
                f"key = {row.key(self._keys)}",
                "track = tracks.get(key)",
                f"is_value = {is_value}",
                *self.look(value, number),
            ],
            effect=[
                "if is_value:",
                "    if track is None:",
                "        weighs(key)",
                *indented(self.keep(number)),
                "    dirty[key] = None",
                f"elif {value} is not None:",
                "    bad += 1",
                f"    unusable({self._field!r}, {value})",
            ],
            row=row if self.fills and sure else made,
            setup=["tracks, dirty, weighs = following()", "bad = 0"],
            finish=["followed_all(bad)"],
            constants={
                "GREATEST": GREATEST, "follow": self.follow, "absent": self.absent, "following": self._following,
                "followed_all": self._followed_all, "unusable": self.unusable.note,
            },
        )  # fmt: skip

    def delta(self) -> Any | None:
        return self._by_key.delta(lambda track: (list(track),))

    def snapshot(self) -> Any | None:
        return self._by_key.snapshot(lambda track: (list(track),))

    def restore(self, state: Any) -> None:
        for key, track in self._by_key.told(state):
            self.tracks[key] = list(track)


class Kalman(Tracker):
    """A Kalman filter for a value that drifts. A track is the estimate and the variance of its error."""

    def __init__(
        self, field: str, output: str, keys: Sequence[str], process_noise: float, sensor_noise: float, error: float
    ) -> None:
        super().__init__(field, output, keys, 2)
        self._process, self._sensor, self._error = process_noise, sensor_noise, error

    def follow(self, track: TrackState | None, value: float) -> tuple[TrackState, float | None]:
        if track is None:
            return [value, self._error], value
        error = track[1] + self._process
        gain = error / (error + self._sensor)
        estimate = track[0] + gain * (value - track[0])
        # (1 - gain) error, without the difference of nearly equal numbers
        return [estimate, gain * self._sensor], estimate


class SlidingRegression(Tracker):
    """Least squares through the last `window` values against their number. A track is those values."""

    def __init__(self, field: str, output: str, keys: Sequence[str], window: int, ahead: int) -> None:
        super().__init__(field, output, keys, window)
        self._window = window
        middle = (window - 1) / 2
        square = window * (window * window - 1) / 12  # Σ (x - middle)²
        # the value of the line at x is Σ y (1/n + (x - middle) (x_i - middle) / square): the weights never change
        at = window - 1 + ahead - middle
        self._weights = [1 / window + at * (x - middle) / square for x in range(window)]

    def follow(self, track: TrackState | None, value: float) -> tuple[TrackState, float | None]:
        if track is None:
            return [value], None
        track = [*track[1:], value] if len(track) >= self._window else [*track, value]
        if len(track) < self._window:
            return track, None
        return track, plain_sum([weight * y for weight, y in zip(self._weights, track, strict=True)])


class Interpolate(Tracker):
    """The mean of the last `window` values where there is none. A track is those values."""

    fills = True

    def __init__(self, field: str, output: str, keys: Sequence[str], window: int) -> None:
        super().__init__(field, output, keys, window)
        self._window = window

    def follow(self, track: TrackState | None, value: float) -> tuple[TrackState, float | None]:
        if track is None:
            return [value], value
        return [*track[1:], value] if len(track) >= self._window else [*track, value], value

    def look(self, value: str, number: str) -> list[str]:
        return [f"made = absent(track) if {value} is None else {value}"]

    def keep(self, number: str) -> list[str]:
        more = [f"track.append({number})", f"if len(track) > {self._window}:", "    del track[0]"]
        return ["if track is None:", f"    tracks[key] = [{number}]", "else:", *indented(more)]

    def absent(self, track: TrackState | None) -> float | None:
        return plain_sum(track) / len(track) if track else None


def _fields(node: Node) -> FieldUse:
    return FieldUse(frozenset((node.parameters["field"],)), frozenset((_output(node),)))


def _output(node: Node) -> str:
    return str(node.parameters.get("output") or node.parameters["field"])


def _common(build: Build) -> tuple[str, str, list[str]]:
    return build.node.parameters["field"], _output(build.node), [name for name, _ in build.keys]


def _kalman(build: Build) -> Kalman:
    p = build.node.parameters
    return Kalman(*_common(build), p["process_noise"], p["sensor_noise"], p["initial_error"])


def _sliding_regression(build: Build) -> SlidingRegression:
    p = build.node.parameters
    return SlidingRegression(*_common(build), p["window"], p["ahead"])


def _interpolate(build: Build) -> Interpolate:
    return Interpolate(*_common(build), build.node.parameters["window"])


_FIELD = Parameter("field", "string", "The field to follow.", parse=field_name)
_NOISE = "Variance of what the value itself moves by from row to row."
SPECS = (
    OperatorSpec(
        type="kalman",
        doc="Adds a field with the noise of a sensor taken out (a Kalman filter for a value that drifts), per key. "
        + forgets(),
        fields=_fields,
        logic=_kalman,
        divides_by=as_they_are,
        parameters=(
            _FIELD,
            Parameter("output", "string", "Field for the estimate.", "estimate", parse=new_field),
            Parameter("process_noise", "number", _NOISE, 0.125, minimum=0.0, maximum=1e100),
            Parameter(
                "sensor_noise", "number", "Variance of what the sensor adds.", 0.32, minimum=1e-100, maximum=1e100
            ),
            Parameter(
                "initial_error", "number", "Variance of the first value's error.", 30.0, minimum=0.0, maximum=1e100
            ),
        ),
    ),
    OperatorSpec(
        type="sliding_regression",
        doc="Adds where the line through the last values of a field will be some rows later, per key; null until there "
        f"are so many. {forgets()}",
        fields=_fields,
        logic=_sliding_regression,
        divides_by=as_they_are,
        parameters=(
            _FIELD,
            Parameter("output", "string", "Field for the prediction.", "ahead", parse=new_field),
            Parameter("window", "integer", "Values that the line goes through.", 10, minimum=2, maximum=100),
            Parameter("ahead", "integer", "How many rows later.", 10, minimum=0, maximum=1_000_000),
        ),
    ),
    OperatorSpec(
        type="interpolate",
        doc="Fills a field that is null with the mean of its last values, per key. A value that is there stays as it "
        f"is; what is no number, or beyond ±1e150, is counted, and not part of the mean. {forgets()}",
        fields=_fields,
        logic=_interpolate,
        divides_by=as_they_are,
        parameters=(
            Parameter("field", "string", "The field to fill.", parse=new_field),
            Parameter("window", "integer", "Values that the mean is of.", 5, minimum=1, maximum=100),
        ),
    ),
)
