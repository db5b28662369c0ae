"""The quick way through JSON objects whose keys were seen before: decoded by types made for exactly these keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from edgert.codecs.base import LAST_TIME, seconds_or_none, unit_of
from edgert.codecs.local_times import DIGITS_FROM, LocalTimes
from edgert.codecs.not_numbers import TEXT
from edgert.codecs.shapes import Getter, ShapeRun, Tail, captured_values, function

MAX_KEYS: Final = 64
_NEVER: Final = Annotated[int, msgspec.Meta(ge=1, le=0)]
"""The type of what must not be there: no value fits."""
_INTEGER: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_NUMBER: Final[Any] = bool | _INTEGER | float | None


@dataclass(frozen=True, slots=True)
class JsonShape:
    """The keys of the objects of one kind of sensor: `present` ones that are used, and used ones that are `absent`."""

    present: tuple[str, ...]
    absent: tuple[str, ...]
    text_time: bool
    """True if the time is a string, which takes longer to read."""
    texts: frozenset[str]
    """The present ones that hold a string: in the others one is another shape, so that only these are looked at for a
    quoted "nan"."""
    colons: int
    """How often `":` stands in the payload. A message in which it stands more often may hold a key twice."""


class TimeField(NamedTuple):
    """How the event time is read: `JsonCodec`."""

    name: str | None
    divisor: float
    local: LocalTimes


def shape_of(
    item: Mapping[str, Any], fields: frozenset[str] | None, time_field: str | None, colons: int
) -> JsonShape | None:
    """The shape of an object that gave one row without a fault; None if it is nested, or its keys are odd."""
    time = frozenset() if time_field is None else {time_field}
    used = item.keys() if fields is None else fields | time | {"source"}
    present = tuple(key for key in item if key in used)
    absent = tuple(sorted(used - item.keys()))
    if len(present) + len(absent) > MAX_KEYS or not all(map(_is_plain_key, (*present, *absent))):
        return None
    if fields is None and any(isinstance(value, dict | list) for value in item.values()):
        return None
    if any("." in key for key in (*present, *absent)) or any(item.get(key, 0) is None for key in time):
        return None  # a dotted name may come from a nested object, or from both
    texts = frozenset(key for key in present if isinstance(item[key], str))
    return JsonShape(present, absent, time_field in texts, texts, colons)


def _is_plain_key(key: str) -> bool:
    return len(key) <= 256 and key.isascii() and key.isprintable() and '"' not in key and "\\" not in key


def compile_shape(
    shape: JsonShape,
    fields: frozenset[str] | None,
    captured: frozenset[str],
    time: TimeField,
    tail: Tail,
) -> ShapeRun:
    """The function that decodes objects of `shape` for the `tail`. Its text holds nothing of a payload."""
    values = {"time": Getter("t", sure=True, finite=True), "source": Getter("source", sure=True)}
    types: list[Any] = []
    for index, key in enumerate(shape.present):
        wanted = (fields is None or key in fields) and key not in captured and key not in ("time", "source")
        kind: Any = Any
        if wanted or fields is None:  # an object's own keys are fields, too
            kind = TEXT | None if key in shape.texts else _NUMBER
        if key == time.name:
            kind = str if shape.text_time else _INTEGER | float
        elif key == "source" and key not in captured:
            kind = str
        types.append((f"f{index}", kind))
        if wanted:
            values[key] = Getter(f"m.f{index}")
    types += [(f"f{len(shape.present) + index}", _NEVER, "") for index in range(len(shape.absent))]
    values |= captured_values(captured)
    lines = ["p = payloads[i]", "if not p.isascii():", "    p.decode()", "m = decode(p)"]
    lines += _each_key_once(shape, fields)
    lines += _source(shape, captured) + _time(shape, time)
    reads = {"unit_of": unit_of, "seconds_or_none": seconds_or_none, "local": time.local}
    keys = tuple(f'"{key}":'.encode() for key in shape.present)
    return function(lines, values, tail, captured, decode=_decoder(shape, types, fields), keys=keys, **reads)


def _each_key_once(shape: JsonShape, fields: frozenset[str] | None) -> list[str]:
    """Leaves it to the tolerant way to count the keys that came twice."""
    if fields is None:
        return [f"if p.count(b'\":') != {shape.colons}:", "    break"]
    return [f"if p.count(b'\":') != {shape.colons} and any(p.count(key) > 1 for key in keys):", "    break"]


def _decoder(shape: JsonShape, types: list[Any], fields: frozenset[str] | None) -> Callable[[bytes], Any]:
    rename = {f"f{index}": key for index, key in enumerate((*shape.present, *shape.absent))}
    # All keys are wanted: then a new one is another shape.
    made = msgspec.defstruct("Object", types, gc=False, forbid_unknown_fields=fields is None, rename=rename)
    return msgspec.json.Decoder(made).decode


def _time(shape: JsonShape, time: TimeField) -> list[str]:
    divisor = time.divisor
    if time.name is None or time.name not in shape.present:
        return ["t = wall"]
    given = f"m.f{shape.present.index(time.name)}"
    if shape.text_time:
        return [f"t = seconds_or_none({given}, {divisor}, local, source, wall)", "if t is None:", "    break"]
    latest = LAST_TIME if divisor else DIGITS_FROM / 1e3  # what may be a local time is left to the tolerant way
    unit = f"{divisor}" if divisor else f"(unit_of({given}) if {given} > 1e11 else 1.0)"
    return [f"t = {given} / {unit}", f"if not 0.0 <= t < {latest}:", "    break"]


def _source(shape: JsonShape, captured: frozenset[str]) -> list[str]:
    lines = []
    if "source" in shape.present and "source" not in captured:
        lines.append(f"source = m.f{shape.present.index('source')} or topics[i]")
    elif "source" not in captured:
        lines.append("source = topics[i]")
    return [*lines, "if not source:", "    break"]
