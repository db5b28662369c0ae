"""The interface of a codec, and common parts of all: untrusted values to numbers, times, sources and clear errors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec

from edgert.codecs.local_times import DIGITS_FROM, DIGITS_TO, UTC_TIMES, LocalTimes, of_digits
from edgert.codecs.not_numbers import json_readable
from edgert.core.batch import Row
from edgert.core.errors import PayloadError, show

Captures = Callable[[str], Mapping[str, str]]
"""Topic to what its template captured, such as `{"source": "abc"}`. Called once per message: let the caller cache it
(`__getitem__` of a dict with `__missing__` is the quickest). One codec sees the same names for every topic."""

MAX_ROWS: Final = 10_000
"""Records that one payload may hold. More is refused whole: a sensor that sends more is broken or hostile."""
LAST_TIME: Final = 253_402_300_800.0
"""Year 10000 in seconds since the epoch: where dates end in Python, Spark and Parquet. Beyond it the unit is wrong."""
DAY_S: Final = 86_400.0
BAD_BYTES: Final = (ValueError, RecursionError)
"""All that msgspec raises for bytes from outside: its own errors and `UnicodeDecodeError` are ValueErrors."""
_KEYS: Final = re.compile(rb'"\s*:')
"""The end of each key; it may stand in a string too."""


@dataclass(slots=True)
class Decoded:
    """The content of a batch of payloads."""

    rows: list[Row] = field(default_factory=list)
    bad_payloads: list[tuple[int, str]] = field(default_factory=list)
    """(index in the batch, reason) of each payload of which nothing could be used."""
    bad_values: int = 0
    """Values and records left out of payloads that were used otherwise."""


class Codec(Protocol):
    """Bytes to rows and back. An instance belongs to one source operator or one sink, and to one thread at a time."""

    def decode_untrusted(
        self, payload: bytes, captures: Mapping[str, str], arrival_wall: float, out: list[Row], topic: str = ""
    ) -> int:
        """Append the payload's rows to `out`; return how many values were left out as bad.

        `arrival_wall` (seconds since the epoch) is the time of what carries none: NaN while the clock is not set, and
        then such rows have that. `topic` is the source of what names none. Raises `PayloadError`, with `out` as it was,
        if nothing of the payload can be used.
        """
        ...

    def decode_batch_untrusted(
        self, topics: Sequence[str], payloads: Sequence[bytes], captures: Captures, wall: float
    ) -> Decoded:
        """Decode the messages of a batch, rows in their order. No payload, however bad, raises or costs another."""
        ...

    def encode(self, rows: Sequence[Row]) -> list[bytes]:
        """One payload per row."""
        ...


def one_by_one(
    codec: Codec, topics: Sequence[str], payloads: Sequence[bytes], captures: Captures, wall: float
) -> Decoded:
    """`decode_batch_untrusted` for a codec that has no quicker way."""
    decoded = Decoded()
    for index, payload in enumerate(payloads):
        decode_into(decoded, codec, index, topics[index], payload, captures(topics[index]), wall)
    return decoded


def decode_into(
    decoded: Decoded, codec: Codec, index: int, topic: str, payload: bytes, captured: Mapping[str, str], wall: float
) -> None:
    """Decode one message of a batch; a payload that is bad as a whole is noted under its `index`."""
    try:
        decoded.bad_values += codec.decode_untrusted(payload, captured, wall, decoded.rows, topic)
    except PayloadError as error:
        decoded.bad_payloads.append((index, str(error)))


def parse_untrusted(payload: bytes) -> Any:
    """JSON text to plain objects. Raises `PayloadError` only.

    Python's own parser has a second look at what msgspec refuses for a single number (NaN, inf, -nan(ind), 1e999):
    such a number is then one bad value and not a lost payload. A byte-order mark in front is skipped, and NULs at the
    end: C programs send the end of their string, too.
    """
    try:
        return msgspec.json.decode(payload)
    except BAD_BYTES as error:
        strict = error
    try:
        text = text_untrusted(payload)
        document = json.loads(json_readable(text), parse_int=_integer)
        if "\\ud" in text or "\\uD" in text:
            # Only this parser lets half a surrogate pair through, which no encoder downstream can write.
            msgspec.json.encode(document)
        return document
    except (ValueError, RecursionError):
        pass
    raise PayloadError(_why(payload, strict)) from None


def text_untrusted(payload: bytes) -> str:
    """UTF-8 without a byte-order mark in front and NULs at the end. Raises UnicodeDecodeError."""
    return payload.rstrip(b"\0").decode("utf-8-sig")


def repeated_keys_untrusted(payload: bytes, document: object, interesting: Callable[[str], bool]) -> int:
    """Returns how often an `interesting` key of an object came again in it: each time an earlier value was lost.
    `document` is what `parse_untrusted` made of the payload; almost every payload has as many keys, which is quick to
    see."""
    keys = _keys_of(document)
    if payload.count(b":") == keys or len(_KEYS.findall(payload)) == keys:
        return 0
    repeated = 0

    def count(pairs: list[tuple[str, Any]]) -> None:
        nonlocal repeated
        seen: set[str] = set()
        for key, _ in pairs:
            repeated += key in seen and interesting(key)
            seen.add(key)

    json.loads(json_readable(text_untrusted(payload)), parse_int=_integer, object_pairs_hook=count)
    return repeated


def _keys_of(document: object) -> int:
    """The keys of all objects of a document."""
    count, waiting = 0, [document]
    for item in waiting:  # grows while it is walked
        if isinstance(item, dict):
            count += len(item)
            waiting += [value for value in item.values() if isinstance(value, dict | list)]
        elif isinstance(item, list):
            waiting += item
    return count


def _why(payload: bytes, error: Exception) -> str:
    if not payload:
        return "expected JSON, got an empty payload"
    if isinstance(error, RecursionError):
        return f"expected JSON with moderate nesting, got one too deep to read: {show(payload[:80])}"
    if isinstance(error, UnicodeDecodeError):
        return f"expected JSON in UTF-8, got other bytes ({error.reason}): {show(payload[:80])}"
    return f"expected JSON, got {len(payload)} bytes {show(payload[:80])}: {error}"


def _integer(text: str) -> float:
    """Integers too long for Python's parser too: they are numbers beyond every range, not a broken payload."""
    return float(text) if len(text) > 18 else int(text)


def number_or_none(value: object) -> float | None:
    """A finite float from a JSON number, or from a string that spells one (many sensors quote theirs); else None."""
    if isinstance(value, float):
        number = value
    elif type(value) is int or (isinstance(value, str) and value.isascii() and "_" not in value):
        # float() takes 1_000 and digits of other scripts, no sensor means them
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
    else:
        return None
    return number if number - number == 0 else None


def seconds_or_none(
    value: object, divisor: float = 0.0, local: LocalTimes = UTC_TIMES, device: str = "", arrival: float = math.nan
) -> float | None:
    """Seconds since the epoch from a number, a string that spells one, or ISO 8601; None if neither.

    `divisor` is the number of units per second; 0 tells the unit by size: above 1e17 ns, 1e14 µs, 1e11 ms, else s, and
    14 digits that spell a date and a time are a local one. ISO 8601 text without a zone is read as `local` time of a
    row of `device` that arrived then. None too for a time before 1970 or after 9999; but local text is
    taken from a day before 1970 on, as 0: so a clock that was never set reads it east of Greenwich.
    """
    number = number_or_none(value)
    if number is None:
        if not isinstance(value, str):
            return None
        try:
            moment = datetime.fromisoformat(value)
            seconds = moment.timestamp() if moment.tzinfo else _local(moment, local, device, arrival)
        except (ValueError, OverflowError):
            return None
    elif not divisor and DIGITS_FROM <= number < DIGITS_TO:
        try:
            seconds = _local(of_digits(number), local, device, arrival)
        except (ValueError, OverflowError):
            return None
    else:
        seconds = number / (divisor or unit_of(number))
    return seconds if 0 <= seconds < LAST_TIME else None


def _local(moment: datetime, local: LocalTimes, device: str, arrival: float) -> float:
    seconds = local.seconds(moment, device, arrival)
    return max(0.0, seconds) if seconds >= -DAY_S and local.zone is not UTC else seconds


def unit_of(number: float) -> float:
    """Returns how many units a second has, told by the size of a time since the epoch."""
    return 1e9 if number > 1e17 else 1e6 if number > 1e14 else 1e3 if number > 1e11 else 1.0


def source_of(candidate: object, topic: str) -> str:
    """The source of a row whose topic template captures none: what the payload says, else the whole topic.

    Raises `PayloadError` if there is neither.
    """
    if isinstance(candidate, int) and not isinstance(candidate, bool) and candidate.bit_length() < 64:
        candidate = str(candidate)
    source = candidate if isinstance(candidate, str) and candidate else topic
    if not source:
        raise PayloadError("expected a source in the topic or the payload, got neither")
    return source


def brief(value: object) -> str:
    """`show` for parsed JSON, where a rendering may itself be too deep or too long to make."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, int) and value.bit_length() > 64:
        return "an integer beyond 64 bits"
    return show(value[:80] if isinstance(value, str) else value)
