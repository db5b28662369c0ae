"""Batches, which move between instances: of rows, and before decoding of raw messages.

Everything in the data path works on batches; nothing may cost a lock, an allocation or a log line per row.
Rows are shared between branches and queues: an operator never changes a row that it was given.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from sys import getsizeof
from typing import Any, ClassVar, Final

Row = dict[str, Any]
"""One row: always has `time` (event time, float seconds since the epoch, UTC) and `source` (device id, str)."""

NO_WATERMARK = float("-inf")
CLOCK_IS_SET = 1_600_000_000.0
"""Wall times before this (September 2020) come from a clock that was never set."""
GREATEST = 1e150
"""Numbers beyond are bad values to a window: their squares would leave the range of floats and spoil its sums."""


@dataclass(slots=True)
class Batch:
    """Rows plus the bookkeeping that is needed once per batch."""

    rows: list[Row]
    arrival: float
    """Arrival of the oldest row's message, seconds on the runtime's monotonic clock (for latency)."""
    watermark: float = NO_WATERMARK
    """No row with an earlier event time is expected after this batch (seconds since the epoch)."""
    size: int = 0
    """Estimated resident bytes, for the queue's byte budget; 0: `size_of` tells it where the batch leaves for one."""
    owed: ClassVar[bool] = False
    """False: see `RawBatch.owed`."""

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(slots=True)
class RawBatch:
    """Undecoded messages of one subscription, in arrival order. `topics[i]` belongs to `payloads[i]`."""

    topics: list[str]
    payloads: list[bytes]
    arrival: float
    """Arrival of the oldest message, monotonic seconds."""
    wall: float
    """Wall-clock time of that moment (seconds since the epoch, UTC)."""
    size: int = 0
    owed: bool = False
    """True if acknowledgements are owed for them (QoS 1 and 2): for all of a batch or for none, so that what may be
    dropped can be told from what may not."""

    def __len__(self) -> int:
        return len(self.payloads)


ROW_BASE_BYTES = 240
"""Resident size of a small row: the dict and its floats (measured with sys.getsizeof, 8 fields: 360 + 8 * 24)."""
FIELD_BYTES = 45
SHORT: Final = 15
"""Characters of a text that is part of `FIELD_BYTES`, as numbers are."""
NUMBERS: Final = frozenset((float, int, bool, type(None)))
"""Kinds of values that are part of `FIELD_BYTES`."""
_NUMBER_BYTES: Final = 24
_ALL: Final = 3
"""Rows of which each is looked at."""
_STEPS: Final = (1, 2, 3, 5, 7, 11, 13, 19, 29, 41, 59, 83, 127)
"""From one row that is looked at to the next, one of three that are near √n: primes, so that of fewer devices that take
turns none is left out."""


def size_of(rows: list[Row], nth: int = 0) -> int:
    """Estimated resident bytes of `rows`: what a few of them take, long strings and bytes included, for all.

    Of n rows about √n are looked at. First row and step are scrambled out of `nth`, any number that differs from batch
    to batch: each row is as likely to be looked at, and no pattern of rows keeps in step with it. So the sizes of
    batches add up to what they hold, those of a hundred to no less than half of it with texts of up to 20 kB. What is
    far greater and rare is seen in one of about √n batches, and then counts √n times.
    """
    length = len(rows)
    scrambled = hash((nth, length))  # of numbers: the same in every process
    step = 1
    if length > _ALL:
        step = _STEPS[min(length.bit_length(), len(_STEPS)) - 3 + scrambled % 3]
    elif not length:
        return 0
    looked_at = rows[scrambled // 3 % step :: step]
    return sum(map(row_bytes, looked_at)) * length // len(looked_at)


def row_bytes(row: Row) -> int:
    """Returns the estimated size of one row."""
    return ROW_BASE_BYTES + FIELD_BYTES * len(row) + great_bytes(row.values())


def great_bytes(values: Iterable[Any]) -> int:
    """Returns the bytes of values for which `FIELD_BYTES` has no room: long texts, lists and their contents."""
    size = 0
    for value in values:
        kind = type(value)
        if kind is float:  # as most are
            continue
        if kind is str:
            if len(value) > SHORT:
                size += getsizeof(value)
        elif kind not in NUMBERS:
            size += held_bytes(value)
    return size


def held_bytes(value: Any) -> int:
    """Resident bytes of a value with all that is in it, however deep."""
    size, waiting = 0, [value]
    while waiting:
        value = waiting.pop()
        size += getsizeof(value, 0)
        kind = type(value)
        if kind is dict:
            waiting += value.keys()
            waiting += value.values()
        elif kind is list or kind is tuple:
            if NUMBERS.issuperset(map(type, value)):  # as most are, and long
                size += _NUMBER_BYTES * len(value)
            else:
                waiting += value
    return size


def slice_of(batch: Batch | RawBatch, start: int, stop: int) -> Batch | RawBatch:
    """Rows `start` to `stop` (0 ≤ start < stop ≤ length) as a batch. Only the last slice has the watermark: the others
    must not promise what it still holds. The sizes of slices that make up the whole add up to its size."""
    whole = batch.size
    if isinstance(batch, RawBatch):
        topics, payloads = batch.topics, batch.payloads
        length = len(payloads)
        size = whole * stop // length - whole * start // length
        return RawBatch(topics[start:stop], payloads[start:stop], batch.arrival, batch.wall, size, batch.owed)
    rows = batch.rows
    length = len(rows)
    size = whole * stop // length - whole * start // length
    return Batch(rows[start:stop], batch.arrival, batch.watermark if stop == length else NO_WATERMARK, size)


def every_second(batch: Batch | RawBatch, start: int) -> Batch | RawBatch:
    """Rows `start`, `start` + 2, ... as a batch, maybe without any."""
    length = len(batch)
    size = batch.size * len(range(start, length, 2)) // length
    if isinstance(batch, RawBatch):
        return replace(batch, topics=batch.topics[start::2], payloads=batch.payloads[start::2], size=size)
    return replace(batch, rows=batch.rows[start::2], size=size)
