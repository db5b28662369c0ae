"""JSON: an object, or an array of objects, each of which is a row. Nested objects become fields with dotted names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any, Final

import msgspec

from edgert.codecs.base import (
    MAX_ROWS,
    Captures,
    Decoded,
    brief,
    parse_untrusted,
    repeated_keys_untrusted,
    seconds_or_none,
    source_of,
)
from edgert.codecs.json_shape import JsonShape, TimeField, compile_shape, shape_of
from edgert.codecs.local_times import LocalTimes
from edgert.codecs.not_numbers import is_no_number
from edgert.codecs.shapes import Shapes, Tail
from edgert.core.batch import Row
from edgert.core.errors import DocumentError, PayloadError, Problem
from edgert.core.text.spelled_number import spelled_number

UNITS: Final = {"auto": 0.0, "s": 1.0, "ms": 1e3, "us": 1e6}
MAX_DEPTH: Final = 8
"""Objects within objects that are flattened; what lies deeper is a bad value."""
INT64: Final = 1 << 63
"""Integers from here on become floats: the tables have 64 bits."""
_encode = msgspec.json.Encoder().encode


class JsonCodec:
    """`time_field` holds the event time in `time_unit` (or ISO 8601, in `time_zone` where it names no zone); a row
    without one takes the time of arrival. A dotted name is that of a key, or else of a key in nested objects. None: all
    rows take the time of arrival.

    Text that is a number with one of `units` behind it, or a number with a decimal comma (`decimal` "comma"), is that
    number. A row whose time cannot be read is refused: a wrong event time is worse than a loss that is counted.
    """

    def __init__(
        self,
        fields: frozenset[str] | None = None,
        *,
        time_field: str | None = "time",
        time_unit: str = "auto",
        time_zone: tzinfo = UTC,
        units: Sequence[str] = (),
        decimal: str = "point",
        max_rows: int = MAX_ROWS,
    ) -> None:
        if time_unit not in UNITS:
            problem = Problem("time_unit", f"one of {', '.join(UNITS)}", repr(time_unit))
            raise DocumentError("codec 'json'", [problem])
        self._fields = fields
        self._units, self._comma = tuple(units), decimal == "comma"
        self._spelled = bool(units) or self._comma
        """Text may spell a number; then all payloads are decoded the tolerant way."""
        self._time_field = time_field
        self._divisor, self._local = UNITS[time_unit], LocalTimes(time_zone)
        self._max_rows = max_rows
        used = None if fields is None else fields | {"source"} | ({time_field} if time_field else set())
        self._key_parts = None if used is None else {part for name in used for part in (name, *name.split("."))}
        reads = TimeField(time_field, UNITS[time_unit], self._local)
        self._shapes = Shapes[JsonShape](
            lambda shape, captured, tail: compile_shape(shape, fields, captured, reads, tail)
        )

    def decode_untrusted(
        self, payload: bytes, captures: Mapping[str, str], arrival_wall: float, out: list[Row], topic: str = ""
    ) -> int:
        """Implements `Codec`. A row refused in an array of others counts as one bad value."""
        document = parse_untrusted(payload)
        objects = document if isinstance(document, list) else [document]
        if len(objects) > self._max_rows:
            raise PayloadError(f"expected at most {self._max_rows} objects in a payload, got {len(objects)}")
        rows: list[Row] = []
        bad = self._repeated_untrusted(payload, document)
        first: PayloadError | None = None
        for index, item in enumerate(objects):
            try:
                row, left_out = self._row(item, captures, arrival_wall, topic)
            except PayloadError as error:
                first = first or PayloadError(f"object {index}: {error}" if document is objects else str(error))
                bad += 1
                continue
            rows.append(row)
            bad += left_out
        if first and not rows:
            raise first
        if document is not objects and not bad and not self._spelled and self._shapes.due():
            shape = shape_of(document, self._fields, self._time_field, payload.count(b'":'))
            if shape is not None:
                self._shapes.learn(shape, captures)
        out += rows
        return bad

    def decode_batch_untrusted(
        self, topics: Sequence[str], payloads: Sequence[bytes], captures: Captures, wall: float
    ) -> Decoded:
        """Implements `Codec`."""
        return self._shapes.decode_batch(self, topics, payloads, captures, wall)

    def fuse(self, tail: Tail) -> None:
        """Implements `Fusible`."""
        self._shapes.fuse(tail)

    encode_row = staticmethod(_encode)
    """`encode` for one row."""

    def record(self, fields: Sequence[str]) -> Callable[..., Any] | None:
        """Makes of values of `fields`, in that order, what `encode_row` writes as it would the row, in two thirds of
        the time that both take for a row. None for names that JSON writes otherwise than they are."""
        variables = [f"f{number}" for number in range(len(fields))]
        names = dict(zip(variables, fields, strict=True))
        try:
            return msgspec.defstruct("Record", [(place, Any) for place in variables], rename=names, gc=False)
        except ValueError:
            return None

    def encode(self, rows: Sequence[Row]) -> list[bytes]:
        """One object per row. NaN and infinities, which JSON lacks, become null."""
        return [_encode(row) for row in rows]

    def _repeated_untrusted(self, payload: bytes, document: object) -> int:
        """Number of values of used keys that a later value of the same key replaced."""
        parts = self._key_parts
        return repeated_keys_untrusted(payload, document, lambda key: parts is None or key in parts or "." in key)

    def _row(self, item: object, captures: Mapping[str, str], wall: float, topic: str) -> tuple[Row, int]:
        if not isinstance(item, dict):
            raise PayloadError(f"expected an object, got {brief(item)}")
        given = None if self._time_field is None else _named(item, self._time_field)
        source = captures.get("source") or source_of(item.get("source"), topic)
        time = wall if given is None else seconds_or_none(given, self._divisor, self._local, source, wall)
        if time is None:
            expected = "a time between 1970 and 9999 as number or ISO 8601"
            raise PayloadError(f"{self._time_field}: expected {expected}, got {brief(given)}")
        row: Row = {"time": time, "source": ""}
        bad = self._fill(row, item, captures, "", 0)
        row["time"] = time
        row["source"] = source
        if len(captures) > 1 or "source" not in captures:
            row.update((name, text) for name, text in captures.items() if name != "time")
        return row, bad

    def _fill(self, row: Row, item: dict[str, Any], captures: Mapping[str, str], prefix: str, depth: int) -> int:
        """Put the wanted fields of `item` into `row`; return how many were bad."""
        bad = 0
        wanted = self._fields
        for key, value in item.items():
            name = prefix + key
            if isinstance(value, dict):
                if depth < MAX_DEPTH:
                    bad += self._fill(row, value, captures, f"{name}.", depth + 1)
                else:
                    bad += wanted is None or any(field.startswith(f"{name}.") for field in wanted)
            elif name in ("time", "source") or name in captures or (wanted is not None and name not in wanted):
                continue
            elif isinstance(value, list) and wanted is None:
                continue  # no operator names it, and none could use it
            elif not _allowed(value):
                bad += 1
            else:
                if self._spelled and isinstance(value, str):
                    number = spelled_number(value, self._units, comma=self._comma)
                    value = value if number is None else number
                bad += name in row  # "a.b" beside {"a": {"b": ...}}: the later one stays
                row[name] = value if not isinstance(value, int) or -INT64 <= value < INT64 else float(value)
        return bad


def _named(item: dict[str, Any], name: str) -> Any:
    """The value of the key `name`, else that of a dotted name in nested objects; None if there is neither."""
    value = item.get(name)
    if value is None and "." in name:
        inner: Any = item
        for key in name.split("."):
            inner = inner.get(key) if isinstance(inner, dict) else None
        return inner
    return value


def _allowed(value: object) -> bool:
    """Numbers (finite as a float), strings that are no "nan", booleans and null."""
    if isinstance(value, float):
        return value - value == 0
    if isinstance(value, int):
        return value.bit_length() < 1024
    return value is None or (isinstance(value, str) and not is_no_number(value))
