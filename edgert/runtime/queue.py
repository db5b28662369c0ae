"""The queue of an instance: batches in order, within a byte budget."""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

from edgert.core.batch import Batch, RawBatch

Overload = Literal["shed-oldest", "shed-newest", "keep"]
"""`keep` drops nothing: the pool runs an instance with such a queue over its budget before those that feed it."""


class Entry(NamedTuple):
    """A batch and the number of the input that it came from."""

    source: int
    batch: Batch | RawBatch
    put: float = 0.0
    """When it was put here, monotonic seconds."""
    busy_s: float = 0.0
    """How long its instance had computed by then, in all."""
    producer: int = 0
    """Which of the copies that feed this input gave it."""


class Queue:
    """Not locked: its pool does that. `rows` counts an empty batch (a watermark) as one, so that it is served too."""

    __slots__ = ("budget_bytes", "entries", "overload", "rows", "size")

    def __init__(self, budget_bytes: int, overload: Overload = "shed-oldest") -> None:
        self.entries: deque[Entry] = deque()
        self.rows = 0
        self.size = 0
        self.budget_bytes = budget_bytes
        self.overload = overload

    def put(self, entry: Entry) -> tuple[int, int]:
        """Appends; returns (change of `rows`, rows shed). A batch greater than the whole budget still enters an
        empty queue: it is here already, and refusing it would lose data to save nothing."""
        batch = entry.batch
        if self.size + batch.size > self.budget_bytes and batch.size and self.entries and self.overload != "keep":
            return self._put_over(entry)
        rows = len(batch) or 1
        self.entries.append(entry)
        self.rows += rows
        self.size += batch.size
        return rows, 0

    def _put_over(self, entry: Entry) -> tuple[int, int]:
        before = self.rows
        shed = 0
        if self.overload == "shed-newest":
            return 0, len(entry.batch)
        while self.entries and self.size + entry.batch.size > self.budget_bytes:
            if type(self.entries[0].batch) is not type(entry.batch):
                break  # rows that a checkpoint found behind the decoder: nobody would send them again
            shed += len(self._pop().batch)
        self.append(entry)
        return self.rows - before, shed

    def waiting_since(self) -> float | None:
        """When the oldest entry was put here; None if there is none. May be asked without the pool's lock."""
        try:
            return self.entries[0].put
        except IndexError:
            return None

    @property
    def over(self) -> bool:
        """Whether it holds more than its budget."""
        return self.size > self.budget_bytes

    def append(self, entry: Entry) -> None:
        """Appends whatever the budget says: for what was accepted before."""
        self.entries.append(entry)
        self.rows += len(entry.batch) or 1
        self.size += entry.batch.size

    def _pop(self) -> Entry:
        entry = self.entries.popleft()
        self.rows -= len(entry.batch) or 1
        self.size -= entry.batch.size
        return entry

    def take(self, limit: int) -> list[Entry]:
        """Whole batches up to `limit` rows; the first is cut when it alone has more. IndexError if there is none: who
        takes then has lost count."""
        if not self.entries:
            raise IndexError("expected a batch to take, got an empty queue")
        if self.rows <= limit:
            return self.take_all()
        first = self.entries[0].batch
        if len(first) > limit:
            return [self._cut(limit)]
        taken = [self._pop()]
        left = limit - len(taken[0].batch)
        while self.entries and len(self.entries[0].batch) <= left:
            taken.append(self._pop())
            left -= len(taken[-1].batch) or 1
        return taken

    def take_all(self) -> list[Entry]:
        """Everything."""
        taken = list(self.entries)
        self.entries.clear()
        self.rows = self.size = 0
        return taken

    def _cut(self, limit: int) -> Entry:
        entry = self.entries[0]
        head, rest = _split(entry.batch, limit)
        self.entries[0] = entry._replace(batch=rest)
        self.rows -= len(head)
        self.size -= head.size
        return entry._replace(batch=head)


def _split(batch: Batch | RawBatch, at: int) -> tuple[Batch | RawBatch, Batch | RawBatch]:
    size = batch.size * at // len(batch)
    if isinstance(batch, RawBatch):
        topics, payloads = batch.topics, batch.payloads
        return (
            RawBatch(topics[:at], payloads[:at], batch.arrival, batch.wall, size),
            RawBatch(topics[at:], payloads[at:], batch.arrival, batch.wall, batch.size - size),
        )
    # the first part must not promise what the second still holds
    return (
        Batch(batch.rows[:at], batch.arrival, size=size),
        Batch(batch.rows[at:], batch.arrival, batch.watermark, batch.size - size),
    )
