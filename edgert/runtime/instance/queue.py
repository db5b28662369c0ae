"""The queue of an instance: batches in order. `SourceQueue` and `InnerQueue` say what happens over the byte budget."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple

from edgert.core.batch import Batch, RawBatch, slice_of

MERGED: Final = -1
"""In place of a copy's number: its watermark is what all copies had promised when it was taken for the first time. What
they have promised when it is taken again may be ahead of rows behind it."""
Overload = Literal["shed-oldest", "shed-newest", "sample"]
"""`sample` leaves every second row of all that waits, as often as it takes."""


class Entry(NamedTuple):
    """A batch and the number of the input that it came from."""

    source: int
    batch: Batch | RawBatch
    put: float = 0.0
    """When it was put here, monotonic seconds."""
    producer: int = 0
    """The number of the copy that gave the batch, among those that feed this input, or `MERGED`."""


class Queue(ABC):
    """The batches that wait for an instance, in order. Not locked: its pool does that.

    `protected` entries are never shed, and cause no shedding: operators have begun with them, or are to begin with them
    again. In a fused instance they may be rows that its first stage has taken already. If these were shed, they would
    be counted there a second time, and be missing where they were to go.

    A batch that is longer than a turn stays where it is while turns take parts of it; a cursor says how much is taken.
    To copy the rest at each turn would cost the square of its length.
    """

    __slots__ = (
        "_entries", "_taken", "budget_bytes", "overload", "owed_bytes", "protected", "rows", "shedding", "size",
    )  # fmt: skip

    def __init__(self, budget_bytes: int, overload: Overload = "shed-oldest") -> None:
        self._entries: deque[Entry] = deque()
        self._taken = 0
        """Rows of the first entry that turns have taken."""
        self.rows = 0
        """Rows that wait. An empty batch (a watermark) counts as one, so that it is served too: 0 means no entries."""
        self.size = 0
        """Estimated bytes that wait."""
        self.owed_bytes = 0
        """Bytes of the batches that were owed an acknowledgement when they came, included in `size`."""
        self.budget_bytes = budget_bytes
        self.overload: Overload = overload
        self.protected = 0
        """Number of entries at the front that came back, or were restored behind the first stage of an instance."""
        self.shedding = False
        """True while the pool lets an inner queue shed, because its instance does no row."""

    @abstractmethod
    def put(self, entry: Entry) -> tuple[int, int]:
        """Appends within the budget; returns (change of `rows`, rows shed). A batch greater than the whole budget still
        enters an empty queue: it is here already, and refusing it would lose data to save nothing."""

    @property
    def over(self) -> bool:
        """True if the queue holds more than its budget, and those that feed it are to wait."""
        return False

    @property
    def entries(self) -> list[Entry]:
        """All that waits, in order: a copy."""
        entries = list(self._entries)
        if self._taken:
            entries[0] = self._remainder()
        return entries

    def _protected_bytes(self) -> tuple[int, int]:
        """Bytes of the protected entries: (all, those that are owed an acknowledgement)."""
        batches = [entry.batch for entry in islice(self._entries, self.protected)]
        return sum(batch.size for batch in batches), sum(batch.size for batch in batches if batch.owed)

    def _count(self, entries: Sequence[Entry]) -> None:
        """Adds entries of the queue to its counts."""
        self.rows += sum(len(entry.batch) or 1 for entry in entries)
        self.size += sum(entry.batch.size for entry in entries)
        self.owed_bytes += sum(entry.batch.size for entry in entries if entry.batch.owed)

    def waiting_since(self) -> float | None:
        """Returns when the oldest entry was put here; None if there is none. May be asked without the pool's lock."""
        try:
            return self._entries[0].put
        except IndexError:
            return None

    def head_arrival(self) -> float | None:
        """Returns when the oldest row of the first entry came to the gateway; None if there is none. Needs no lock,
        either."""
        try:
            return self._entries[0].batch.arrival
        except IndexError:
            return None

    def append(self, entry: Entry) -> int:
        """Appends whatever the budget says: for what was accepted before. Returns the change of `rows`."""
        rows = len(entry.batch)
        if not rows:
            if isinstance(entry.batch, Batch) and self._renews(entry):
                return 0
            rows = 1
        self._entries.append(entry)
        self.rows += rows
        self.size += entry.batch.size
        if entry.batch.owed:
            self.owed_bytes += entry.batch.size
        return rows

    def put_protected(self, entry: Entry) -> None:
        """Puts a restored entry behind the protected ones and before all others, whatever the budget says."""
        self._settle()
        self._entries.insert(self.protected, entry)
        self.protected += 1
        self._count([entry])

    def _renews(self, entry: Entry) -> bool:
        """Puts a watermark in the place of an older one behind which no rows wait, if there is one: in front of an
        instance that does not run they would grow without bound, and have no size."""
        for at in range(len(self._entries) - 1, -1, -1):
            waiting = self._entries[at]
            if len(waiting.batch):
                return False
            if (waiting.source, waiting.producer) == (entry.source, entry.producer):
                self._entries[at] = entry._replace(put=waiting.put)
                return True
        return False

    def put_back(self, entries: Sequence[Entry]) -> int:
        """Before all that waits, whatever the budget says: what was taken and is to be taken again. Returns the change
        of `rows`."""
        before = self.rows
        self._settle()
        self._entries.extendleft(reversed(entries))
        self.protected += len(entries)
        self._count(entries)
        return self.rows - before

    def _pop(self, at: int = 0) -> Entry:
        entry = self._entries[at]
        del self._entries[at]
        batch = entry.batch
        self.rows -= len(batch) or 1
        self.size -= batch.size
        if batch.owed:
            self.owed_bytes -= batch.size
        return entry

    def take(self, limit: int) -> list[Entry]:
        """Whole batches up to `limit` rows; the first is cut when it alone has more. IndexError if there is none: who
        takes then has lost count."""
        if not self._entries:
            raise IndexError("expected a batch to take, got an empty queue")
        if self.rows <= limit:
            return self.take_all()
        entries = self._entries
        rows = len(entries[0].batch)
        if rows - self._taken > limit:
            return [self._cut(limit)]
        if self._taken:
            self._settle()
            rows = len(entries[0].batch)
        taken = []
        while rows <= limit:  # in place of `_pop`: each turn comes here
            entry = entries.popleft()
            taken.append(entry)
            batch = entry.batch
            limit -= rows or 1
            self.rows -= rows or 1
            self.size -= batch.size
            if batch.owed:
                self.owed_bytes -= batch.size
            if limit <= 0 or not entries:
                break
            rows = len(entries[0].batch)
        if self.protected:
            self.protected = max(0, self.protected - len(taken))
        return taken

    def take_all(self) -> list[Entry]:
        """Takes all that waits."""
        taken = self.entries
        self._entries.clear()
        self._taken = self.protected = self.rows = self.size = self.owed_bytes = 0
        return taken

    def _cut(self, limit: int) -> Entry:
        """The next `limit` rows of the first entry, which has more."""
        source, batch, put, producer = self._entries[0]
        first, self._taken = self._taken, self._taken + limit
        cut = slice_of(batch, first, self._taken)
        self.rows -= limit
        self.size -= cut.size
        if cut.owed:
            self.owed_bytes -= cut.size
        return Entry(source, cut, put, producer)

    def _remainder(self) -> Entry:
        """The first entry without the rows that are taken."""
        entry = self._entries[0]
        return entry._replace(batch=slice_of(entry.batch, self._taken, len(entry.batch)))

    def _settle(self) -> None:
        """Makes the rest of the first entry an entry of its own, before others are put in front of it or shed."""
        if self._taken:
            self._entries[0] = self._remainder()
            self._taken = 0
