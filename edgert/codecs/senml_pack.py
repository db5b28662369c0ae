"""Resolving a SenML pack (RFC 8428, section 4) to rows, forgiving each record its own faults only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from edgert.codecs.base import LAST_TIME, brief, number_or_none, source_of, unit_of
from edgert.codecs.not_numbers import is_no_number
from edgert.codecs.senml_names import is_legal, source_of_base
from edgert.core.batch import Row
from edgert.core.errors import PayloadError

RELATIVE: Final = 2.0**28
"""Times below are seconds from now (RFC 8428, section 4.5.3)."""
VERSION: Final = 10
REGULAR: Final = frozenset(("n", "u", "v", "vs", "vb", "vd", "s", "t", "ut"))
"""The labels of a record without base fields."""
NAME_RULE: Final = "a SenML name (A-Z a-z 0-9 - : . / _, first a letter or digit)"
RFC_KINDS: Final = {"v": float, "vs": str, "vb": bool, "vd": str}
OLD_KINDS: Final = {"v": float, "sv": str, "bv": bool, "vs": str, "vb": bool}
"""Value keys and what they hold. In the old layout `bv` is a boolean, in the RFC the base value."""
TEXTS: Final = frozenset(("vs", "sv"))
"""Value keys of texts; that of data (`vd`) may spell anything."""
LABELS: Final = REGULAR | OLD_KINDS.keys() | {"bn", "bt", "bu", "bv", "bs", "bver", "e"}
"""All that is read."""


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack of either layout. `base` holds the base fields that the old layout keeps beside its records."""

    records: list[Any]
    base: Mapping[str, Any]
    old: bool


def split(document: object, max_rows: int) -> Pack:
    """Tell the layouts apart. Raises `PayloadError` for neither and for more than `max_rows` records."""
    if isinstance(document, list):
        pack = Pack(document, {}, old=False)
    elif isinstance(document, dict) and isinstance(document.get("e"), list):
        pack = Pack(document["e"], document, old=True)
    else:
        raise PayloadError(f'expected a SenML array, or an object with an array "e", got {brief(document)}')
    if len(pack.records) > max_rows:
        raise PayloadError(f"expected at most {max_rows} records in a pack, got {len(pack.records)}")
    return pack


class Resolver:
    """Walks through a pack once: base fields in, rows out; `bad` counts the values left out."""

    def __init__(self, fields: frozenset[str] | None, captures: Mapping[str, str], wall: float, topic: str) -> None:
        self.bad = 0
        self._fields = fields
        self._captures = captures
        self._wall = wall
        self._topic = topic
        self._name = ""
        self._time = 0.0
        self._value = 0.0
        self._has_value = False
        self._sum: float | None = None
        self._per_second = 1.0
        self._rows: dict[tuple[str, float], Row] = {}
        self._last: tuple[str, float] | None = None
        self._row: Row = {}

    def rows(self, pack: Pack) -> list[Row]:
        """The rows of `pack`, in the order in which their first records stand.

        Raises `PayloadError` for a wrong base field, a version above 10, and a label that must be understood.
        """
        if pack.old:
            self._base(pack.base, "the pack", old=True)
        unusable: PayloadError | None = None
        for index, record in enumerate(pack.records):
            if not isinstance(record, dict):
                self.bad += 1
                unusable = unusable or PayloadError(f"record {index}: expected an object, got {brief(record)}")
                continue
            if not pack.old and not record.keys() <= REGULAR:
                self._base(record, f"record {index}", old=False)
            try:
                self._record(record, pack.old)
            except PayloadError as error:
                self.bad += 1
                unusable = unusable or PayloadError(f"record {index}: {error}")
        if unusable and not self._rows:
            raise unusable
        for row in self._rows.values():
            self._finish(row)
        return list(self._rows.values())

    def _base(self, record: Mapping[str, Any], where: str, old: bool) -> None:
        """Take over the base fields of `record`. A wrong one would shift all that follows: the pack is refused."""
        if not old:
            for label in record:
                if label.endswith("_"):  # RFC 8428, section 4.4
                    raise PayloadError(f"{where}: expected known labels, got {brief(label)}, which must be understood")
        if "bn" in record:
            self._name = self._base_name(record["bn"], where)
        if "bt" in record:
            self._time = _number(record["bt"], f"{where}: bt")
            if old:  # those senders count in ms as often as in s; the RFC allows seconds only
                self._per_second = min(unit_of(self._time), 1e3)
        if "bver" in record and _number(record["bver"], f"{where}: bver") > VERSION:
            raise PayloadError(f"{where}: bver: expected at most {VERSION}, got {brief(record['bver'])}")
        if "bv" in record and not old:
            self._value = _number(record["bv"], f"{where}: bv")
            self._has_value = True
        if "bs" in record:
            self._sum = _number(record["bs"], f"{where}: bs")

    def _base_name(self, name: object, where: str) -> str:
        if not isinstance(name, str) or (name and not is_legal(name)):
            raise PayloadError(f"{where}: bn: expected {NAME_RULE}, got {brief(name)}")
        return name

    def _record(self, record: dict[str, Any], old: bool) -> None:
        """Put a record's value and sum into its row. Raises `PayloadError` if it has no usable name or time."""
        kinds = OLD_KINDS if old else RFC_KINDS
        keys = [key for key in record if key in kinds]
        own = record.get("n", "")
        if not keys and "s" not in record and not own:
            return  # carries base fields only
        if type(own) is not str or not is_legal(f"x{own}" if self._name else own):  # the base name is known to be one
            raise PayloadError(f"n: expected {NAME_RULE} after bn {brief(self._name)}, got {brief(own)}")
        self._enter(self._resolved(record))
        name = own or "value"
        has_sum = "s" in record or self._sum is not None
        if len(keys) == 1:
            value = _value(record[keys[0]], kinds[keys[0]], self._value)
            self._put(name, None if keys[0] in TEXTS and value and is_no_number(str(value)) else value)
        elif not keys and self._has_value and "s" not in record:
            self._put(name, self._value)
        elif keys or not has_sum:  # several, of which nobody can tell which is meant, or none
            self._put(name, None)
        if has_sum:
            self._put(f"{name}_sum", _value(record.get("s", 0.0), float, self._sum or 0.0))

    def _resolved(self, record: dict[str, Any]) -> float:
        """Event time of `record`, seconds since the epoch (RFC 8428, section 4.5.3); NaN where it is relative to an
        arrival that is."""
        time = (self._time + (_number(record["t"], "t") if "t" in record else 0.0)) / self._per_second
        if time < RELATIVE:
            if self._wall != self._wall:  # and the same object each time, so that the pack's records are one row
                return self._wall
            time += self._wall
        if not 0 <= time < LAST_TIME:
            raise PayloadError(f"t: expected seconds that lie between 1970 and 9999, got {time}")
        return time

    def _enter(self, time: float) -> None:
        """Let `_row` be the row of the base name in force and `time`."""
        key = (self._name, time)
        if key == self._last:
            return
        self._last = key
        row = self._rows.get(key)
        if row is None:
            source = self._captures.get("source") or source_of_base(self._name)
            row = self._rows[key] = {"time": time, "source": source}
        self._row = row

    def _put(self, name: str, value: object) -> None:
        """Set a field of the row, if it is wanted. None is a bad value."""
        row = self._row
        if name in self._captures and name != "time":
            return
        if name == "source" and isinstance(value, str):
            row["source"] = row["source"] or value
        elif name in ("time", "source"):  # what these mean in a row is settled
            self.bad += 1
        elif self._fields is None or name in self._fields:
            if value is None:
                self.bad += 1
            else:
                self.bad += name in row  # twice the same name and time: the later one stays
                row[name] = value

    def _finish(self, row: Row) -> None:
        if not row["source"]:
            row["source"] = source_of(None, self._topic)
        for name, text in self._captures.items():
            if name not in ("time", "source"):
                row[name] = text


def _value(value: object, kind: type, base: float) -> object:
    """`value` if it is of its key's kind, numbers with the base value added; None if it is bad."""
    if kind is float:
        number = number_or_none(value)
        return None if number is None else number_or_none(number + base)
    if kind is bool:
        return _boolean(value)
    return value if isinstance(value, kind) else None


def _boolean(value: object) -> bool | None:
    """Also 0, 1 and quoted booleans, as msgspec reads them: senders that quote their numbers quote these too."""
    try:
        return msgspec.convert(value, bool, strict=False)
    except msgspec.ValidationError:
        return None


def _number(value: object, where: str) -> float:
    number = number_or_none(value)
    if number is None:
        raise PayloadError(f"{where}: expected a finite number, got {brief(value)}")
    return number
