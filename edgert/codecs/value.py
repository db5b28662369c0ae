"""A bare value as the whole payload (`231.5`, `ON`, `true`): Shelly, ESPHome, Wiren Board, switches and displays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from edgert.codecs.base import Captures, Decoded, number_or_none, one_by_one, source_of, text_untrusted
from edgert.codecs.not_numbers import is_no_number
from edgert.core.batch import Row
from edgert.core.errors import DocumentError, PayloadError, Problem, show
from edgert.core.text.spelled_number import spelled_number

FIELD: Final = "value"
TRUE: Final = frozenset(("true", "on", "yes", "1", "online", "open"))
FALSE: Final = frozenset(("false", "off", "no", "0", "offline", "closed"))
_encode = msgspec.json.Encoder().encode


class FieldAlone:
    """Writes one field of a row: a string as it is (UTF-8), any other value as JSON."""

    def __init__(self, field: str) -> None:
        self._field = field

    def encode(self, rows: Sequence[Row]) -> list[bytes]:
        """One payload per row. Raises ValueError if one has no value in the field."""
        return list(map(self.encode_row, rows))

    def encode_row(self, row: Row) -> bytes:
        """Payload of one row, see `encode`."""
        value = row.get(self._field)
        if value is None:
            raise ValueError(f"expected a value in {self._field!r}, got null")
        return value.encode() if type(value) is str else _encode(value)


class ValueCodec(FieldAlone):
    """A payload is one row, whose field `value` holds it; time and source are those of arrival and topic."""

    def __init__(
        self, fields: frozenset[str] | None = None, *, value_type: str = "auto",
        units: Sequence[str] = (), decimal: str = "point",
    ) -> None:  # fmt: skip
        """`value_type`: `number`, `text` or `boolean` refuse any other payload; `auto` takes a number, else text.
        `units` may stand behind a number; with `decimal` "comma" its decimal sign is a comma."""
        super().__init__(FIELD)
        if value_type not in READERS:
            problem = Problem("value_type", f"one of {', '.join(READERS)}", repr(value_type))
            raise DocumentError("codec 'value'", [problem])
        self._read = READERS[value_type]
        self._units, self._comma = tuple(units), decimal == "comma"
        self._spelled = value_type in ("auto", "number") and (bool(units) or self._comma)
        self._wanted = fields is None or FIELD in fields

    def decode_untrusted(
        self, payload: bytes, captures: Mapping[str, str], arrival_wall: float, out: list[Row], topic: str = ""
    ) -> int:
        """Implements `Codec`. The only value of a payload is bad with it."""
        try:
            text = text_untrusted(payload).strip()
        except UnicodeDecodeError as error:
            raise PayloadError(
                f"expected text in UTF-8, got other bytes ({error.reason}): {show(payload[:80])}"
            ) from None
        if not text:
            raise PayloadError("expected a value, got an empty payload")
        value = spelled_number(text, self._units, comma=self._comma) if self._spelled else None
        value = self._read(text) if value is None else value
        row: Row = {"time": arrival_wall, "source": captures.get("source") or source_of(None, topic)}
        if self._wanted:
            row[FIELD] = value
        row.update((name, level) for name, level in captures.items() if name not in ("time", "source"))
        out.append(row)
        return 0

    def decode_batch_untrusted(
        self, topics: Sequence[str], payloads: Sequence[bytes], captures: Captures, wall: float
    ) -> Decoded:
        """Implements `Codec`."""
        return one_by_one(self, topics, payloads, captures, wall)


def _auto(text: str) -> float | str:
    number = _number_or_none(text)
    if number is not None:
        return number
    if is_no_number(text) or _overflows(text):
        raise PayloadError(f"expected a value, got {show(text[:80])}, which is no finite number")
    return text


def _number(text: str) -> float:
    number = _number_or_none(text)
    if number is None:
        raise PayloadError(f"expected a finite number, got {show(text[:80])}")
    return number


def _number_or_none(text: str) -> float | None:
    return number_or_none(text) if text.isascii() and not text[0].isalpha() else None


def _overflows(text: str) -> bool:
    """True for `1e999`: a number beyond a double, which would be text among numbers."""
    try:
        return "_" not in text and math.isinf(float(text))
    except ValueError:
        return False


def _text(text: str) -> str:
    return text


def _boolean(text: str) -> bool:
    word = text.lower()
    if word in TRUE or word in FALSE:
        return word in TRUE
    raise PayloadError(f"expected one of {', '.join(sorted(TRUE | FALSE))}, got {show(text[:80])}")


READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "auto": _auto,
    "number": _number,
    "text": _text,
    "boolean": _boolean,
}
