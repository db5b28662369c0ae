"""The quick way through SenML: packs of a shape that was seen before, decoded by types made for exactly that shape.

A sensor's packs differ in their numbers only. So the labels, their order, the names and the units of a pack are
learned as its *shape*, and msgspec is given types that accept nothing else: names and units are compared while parsing
and never become strings, values arrive as floats, and a row is one dict display. Whatever differs in the least is
refused by the types and takes the tolerant way: a shape never changes what a payload means (a test compares the two).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec

from edgert.codecs.base import LAST_TIME
from edgert.codecs.not_numbers import TEXT
from edgert.codecs.senml_names import MAX_LENGTH, is_legal, source_of_base
from edgert.codecs.senml_pack import OLD_KINDS, RELATIVE, RFC_KINDS, TEXTS, Pack
from edgert.codecs.shapes import Getter, ShapeRun, Tail, captured_values, function
from edgert.core.batch import GREATEST

MAX_RECORDS: Final = 64
"""Longer packs take the tolerant way: they hold a series, not one row."""
_BASE: Final = ("bn", "bt", "bu", "bver")
_CONSTANT: Final = ("n", "u", "bu", "bver")
_KNOWN_SOURCES: Final = 4096
_NEVER: Final = Annotated[int, msgspec.Meta(ge=1, le=0)]
"""The type of what must not be there: no sensor sends this."""

Labels = tuple[tuple[str, object], ...]
"""The labels of a record in their order, each with its constant (name, unit) or None."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Common structure of the packs of one kind of sensor."""

    old: bool
    top: Labels
    records: tuple[Labels, ...]
    colons: int
    """How often `":` stands in the payload. A message in which it stands more often may hold a key twice."""

    @property
    def kinds(self) -> Mapping[str, type]:
        """The labels of values, and what they hold."""
        return OLD_KINDS if self.old else RFC_KINDS

    @property
    def base(self) -> Labels:
        """The labels that stand where base fields do."""
        return self.top if self.old else self.records[0]


def shape_of(pack: Pack, colons: int) -> Shape | None:
    """The shape of a `pack` that gave one row without a fault; None if it has something that no shape covers."""
    if not 1 <= len(pack.records) <= MAX_RECORDS:
        return None
    kinds = OLD_KINDS if pack.old else RFC_KINDS
    top = _labels({key: value for key, value in pack.base.items() if key != "e"}, (*_BASE, "ver"))
    records: list[Labels] = []
    for index, record in enumerate(pack.records):
        labels = _labels(record, ("n", "u", "ut", *kinds, *(() if pack.old or index else _BASE)))
        if labels is None:
            return None
        records.append(labels)
    if top is None:
        return None
    shape = Shape(pack.old, top, tuple(records), colons)
    return shape if _is_plain(shape) else None


def _labels(record: Mapping[str, Any], allowed: tuple[str, ...]) -> Labels | None:
    if not all(key in allowed and (key not in _CONSTANT or _is_constant(value)) for key, value in record.items()):
        return None
    return tuple((key, value if key in _CONSTANT else None) for key, value in record.items())


def _is_constant(value: object) -> bool:
    return type(value) is int or (isinstance(value, str) and len(value) <= MAX_LENGTH)


def _is_plain(shape: Shape) -> bool:
    """True if each record is one value under a name of its own, or base fields alone."""
    names: list[object] = []
    for labels in map(dict, shape.records):
        kinds = [kind for key, kind in shape.kinds.items() if key in labels]
        name = labels.get("n", "value" if kinds else None)
        if name is None:
            continue
        if len(kinds) != 1 or name == "time" or (name == "source" and kinds[0] is not str):
            return False
        if "n" not in labels and "bn" not in dict(shape.base):
            return False
        names.append(name)
    return len(set(names)) == len(names) and all(is_legal(str(name)) for name in names)


class _Sources(dict[str, str]):
    """Base name to source, checked once. Raises `ValueError` for what is no SenML name."""

    def __missing__(self, base_name: str) -> str:
        if not is_legal(base_name):
            raise ValueError(base_name)
        if len(self) >= _KNOWN_SOURCES:  # a hostile publisher may use endless names
            self.clear()
        source = self[base_name] = source_of_base(base_name)
        return source


def compile_shape(shape: Shape, fields: frozenset[str] | None, captured: frozenset[str], tail: Tail) -> ShapeRun:
    """The function that decodes `fields` of packs of `shape`, beside what the topic has `captured`, for the `tail`.

    The text of the function holds nothing of a payload.
    """
    writer = _ShapeWriter(shape, fields, captured)
    return function(writer.lines(), writer.values, tail, captured, decode=writer.decode(), sources=_Sources())


class _ShapeWriter:
    """Makes the types and the text of one shape's function."""

    def __init__(self, shape: Shape, fields: frozenset[str] | None, captured: frozenset[str]) -> None:
        self._shape = shape
        self._fields = fields
        self._captured = captured
        self._base = dict(shape.base)
        self.values = {"time": Getter("t", sure=True, finite=True), "source": Getter("source", sure=True)}
        """Fields, the captured ones last, as the tolerant way has them."""
        self._values: dict[int, str] = {}
        self._numbers: list[str] = []
        self._own_source = ""
        self._records = [self._record(index, labels) for index, labels in enumerate(shape.records)]
        self.values |= captured_values(captured)

    def decode(self) -> Callable[[bytes], Any]:
        """msgspec's decoder for this very shape."""
        records: Any = tuple.__class_getitem__(tuple(self._records))  # tuple[Record0, Record1, ...]
        if self._shape.old:
            top = [("e", records), *((key, _type_of_base(key, constant)) for key, constant in self._shape.top)]
            records = msgspec.defstruct("Pack", top, gc=False, forbid_unknown_fields=True)
        return msgspec.json.Decoder(records, strict=False).decode

    def _record(self, index: int, labels: Labels) -> type[msgspec.Struct]:
        kinds = self._shape.kinds
        name = str(dict(labels).get("n", "value"))
        if self._shape.old and "n" in dict(labels) and not (self._wants(name) or self._wants(f"{name}_sum")):
            # Nothing but a time of its own could make such a record matter: in this layout it has no base fields.
            return msgspec.defstruct(f"Record{index}", [("n", Literal.__getitem__(name)), ("t", _NEVER, "")], gc=False)
        types = [
            (key, self._value(index, name, key, kinds[key]) if key in kinds else _type_of_base(key, constant))
            for key, constant in labels
        ]
        return msgspec.defstruct(f"Record{index}", types, gc=False, forbid_unknown_fields=True)

    def _value(self, index: int, name: str, key: str, kind: type) -> Any:
        """The type of a value, and, if it is wanted, the text that takes it."""
        if not self._wants(name):
            return Any
        if name == "source":
            self._own_source = f"v{index}"
        else:
            self.values[name] = Getter(f"v{index}", sure=True, finite=kind is float)
            if kind is float:
                self._numbers.append(f"v{index}")
        self._values[index] = f"v{index} = r{index}.{key}"
        return TEXT if key in TEXTS else kind

    def _wants(self, name: str) -> bool:
        return name not in self._captured and (name == "source" or self._fields is None or name in self._fields)

    def lines(self) -> list[str]:
        """The function's text: decode, take the values, check them."""
        old = self._shape.old
        lines = ["p = payloads[i]", "if not p.isascii():", "    p.decode()"]  # what msgspec skips, it does not check
        lines += [f"if p.count(b'\":') != {self._shape.colons}:", "    break", "m = decode(p)"]
        lines.append("".join(f"r{i}, " if i in self._values or i == 0 else "_, " for i in range(len(self._records))))
        lines[-1] += "= m.e" if old else "= m"
        lines += self._values.values()
        lines.append(f"t = {'m' if old else 'r0'}.bt" if "bt" in self._base else "t = wall")
        if old:
            lines += ["if t > 1e11:", "    t /= 1e3"]
        squares = " + ".join(f"{v} * {v}" for v in self._numbers) or "0.0"
        lines += [f"if not {squares} < {GREATEST**2!r} or not {RELATIVE} <= t < {LAST_TIME}:", "    break"]
        return lines + self._source()

    def _source(self) -> list[str]:
        """Code of the source: the captured part of the topic, else the base name, else a record of that name, else the
        topic."""
        lines = []
        candidates = [self._own_source] if self._own_source else []
        if "bn" in self._base:  # looked up even if not used: a name that is none makes the pack a bad one
            lines.append(f"base = sources[{'m' if self._shape.old else 'r0'}.bn]")
            candidates.insert(0, "base")
        if "source" in self._captured:
            return [*lines, "if not source:", "    break"]
        return [*lines, f"source = {' or '.join([*candidates, 'topics[i]'])}", "if not source:", "    break"]


def _type_of_base(key: str, constant: object) -> Any:
    if constant is not None:
        return Literal.__getitem__(constant)
    return {"bn": str, "bt": float}.get(key, Any)
