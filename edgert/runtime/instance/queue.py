"""The queue of an instance: batches in order, within a byte budget."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple

from edgert.core.batch import Batch, RawBatch, every_second, parts

OWED_BYTES: Final = 8_388_608
"""More than can be owed an acknowledgement at a time: twice the input at which the gateway stops reading."""
CUT_AT_ONCE: Final = 64
"""Into so many batches at most is a long one cut at once, where it need not be into more."""
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


class Queue:
    """The batches that wait for an instance. Not locked: its pool does that. `rows` counts an empty batch (a watermark)
    as one, so that it is served too.

    A batch that is owed an acknowledgement is never shed. The queue is not told when the acknowledgement is sent. But
    at most `most_owed_bytes` are owed at a time, and these are the newest: a batch with that many owed bytes behind it
    is owed none any more.

    A queue that `keeps` sheds only while it `sheds`: the pool runs its instance before those that feed it. Then it
    sheds the oldest batches, or with "shed-newest" the newest.

    Entries `ahead` are never shed, and cause no shedding: operators have begun with them, or are to begin with them
    again. In a fused instance they may be rows that its first part has taken already. If these were shed, they would be
    counted there a second time, and be missing where they were to go.
    """

    __slots__ = (
        "ahead", "budget_bytes", "entries", "keeps", "most_owed_bytes", "overload", "owed_bytes", "rows", "sheds",
        "size",
    )  # fmt: skip

    def __init__(
        self,
        budget_bytes: int,
        overload: Overload = "shed-oldest",
        most_owed_bytes: int = OWED_BYTES,
        *,
        keeps: bool = False,
    ) -> None:
        self.entries: deque[Entry] = deque()
        self.rows = 0
        self.size = 0
        self.owed_bytes = 0
        """Bytes of the batches that were owed an acknowledgement when they came, included in `size`."""
        self.budget_bytes = budget_bytes
        self.overload = overload
        self.most_owed_bytes = most_owed_bytes
        self.keeps = keeps
        self.ahead = 0
        """Number of entries at the front that came back, or were restored behind the first part of a fused instance."""
        self.sheds = not keeps

    def put(self, entry: Entry) -> tuple[int, int]:
        """Appends; returns (change of `rows`, rows shed). A batch greater than the whole budget still enters an
        empty queue: it is here already, and refusing it would lose data to save nothing."""
        batch = entry.batch
        if self.size + batch.size > self.budget_bytes and batch.size and self.entries and self.sheds:
            return self._put_inside(entry) if self.keeps else self._put_over(entry)
        return self.append(entry), 0

    def _put_over(self, entry: Entry) -> tuple[int, int]:
        """In front of a decoder: by what is owed."""
        entries, batch, first = self.entries, entry.batch, self.ahead
        ahead, owed_ahead = self._bytes_ahead()
        room = self.budget_bytes + ahead - batch.size
        if self.overload == "sample":
            return self._put_sampled(entry, room + batch.size)
        newest = self.overload == "shed-newest"
        if newest and not batch.owed and first < len(entries) and self.size > room:
            return 0, len(batch)
        before, shed = self.rows, 0
        owed = batch.size if batch.owed else 0
        while not newest and first < len(entries) and self.size > room:
            oldest = entries[first].batch
            if oldest.owed and self.owed_bytes - owed_ahead - oldest.size + owed < self.most_owed_bytes:
                break
            shed += len(self._pop(first).batch)
        kept = self.owed_bytes - owed_ahead
        if newest:
            kept = min(kept, self.most_owed_bytes - owed)
        if self.size > room and self.size - ahead > kept:
            shed += self._shed_between(self.size - room, owed, newest)
        if not batch.owed and first < len(self.entries) and self.size > room:
            return self.rows - before, shed + len(batch)
        self.append(entry)
        return self.rows - before, shed

    def _put_inside(self, entry: Entry) -> tuple[int, int]:
        """Behind the decoder watermarks stand in line with the rows, and are not lost with them."""
        first = self.ahead
        room = self.budget_bytes + self._bytes_ahead()[0]
        if self.overload == "shed-newest" and first < len(self.entries) and self.size + entry.batch.size > room:
            return self.append(_watermark(entry)), len(entry.batch)
        before, shed = self.rows, 0
        last: dict[tuple[int, int], Entry] = {}
        """The entry put last, by (input, producer)."""
        self.append(entry)
        while self.size > room and len(self.entries) > first + 1:
            oldest = self._pop(first)
            shed += len(oldest.batch)
            last[oldest.source, oldest.producer] = oldest
        for gone in last.values():
            self.entries.insert(first, _watermark(gone))
        self.rows += len(last)
        return self.rows - before, shed

    def _bytes_ahead(self) -> tuple[int, int]:
        """Bytes of the entries ahead: (all, those that are owed an acknowledgement)."""
        batches = [entry.batch for entry in islice(self.entries, self.ahead)]
        return sum(batch.size for batch in batches), sum(batch.size for batch in batches if batch.owed)

    def _shed_between(self, excess: int, behind: int, newest: bool) -> int:
        """Sheds entries that are owed no acknowledgement from between those that are; returns the number of rows.
        `behind`: bytes owed that come after all of them. A call looks at all entries, so it sheds somewhat more than
        `excess`, in order not to run for each batch."""
        entries = list(self.entries)
        free = self._free(entries, behind)
        excess += self.budget_bytes // 32
        gone: set[int] = set()
        for at in free if newest else reversed(free):
            if excess <= 0:
                break
            gone.add(at)
            excess -= entries[at].batch.size
        self._stand([entry for at, entry in enumerate(entries) if at not in gone])
        return sum(len(entries[at].batch) for at in gone)

    def _stand(self, entries: Sequence[Entry]) -> None:
        """Replaces the entries of the queue by `entries`, which include all that stand ahead."""
        self.entries = deque(entries)
        self.rows = self.size = self.owed_bytes = 0
        self._count(entries)

    def _count(self, entries: Sequence[Entry]) -> None:
        """They stand here from now on."""
        self.rows += sum(len(entry.batch) or 1 for entry in entries)
        self.size += sum(entry.batch.size for entry in entries)
        self.owed_bytes += sum(entry.batch.size for entry in entries if entry.batch.owed)

    def _free(self, entries: Sequence[Entry], behind: int) -> list[int]:
        """Indices of the entries that are owed no acknowledgement, the newest first."""
        free = []
        for at in range(len(entries) - 1, self.ahead - 1, -1):
            batch = entries[at].batch
            if batch.owed and behind < self.most_owed_bytes:
                behind += batch.size
            elif batch.size:
                free.append(at)
        return free

    def _put_sampled(self, entry: Entry, most: int) -> tuple[int, int]:
        """Puts an entry and halves the queue if there is no room. The rows left are a sample of the whole time of the
        queue. Halving looks at all entries, and makes so much room that it is not due again for long."""
        before, shed = self.rows, 0
        self.append(entry)
        while self.size > most:
            entries = list(self.entries)
            free = set(self._free(entries, 0))
            if not free:
                break
            left: list[Entry] = []
            passed = 0
            for at, waiting in enumerate(entries):
                if at not in free:
                    left.append(waiting)
                    continue
                kept = every_second(waiting.batch, (passed + 1) % 2)
                passed += len(waiting.batch)
                shed += len(waiting.batch) - len(kept)
                if len(kept):
                    left.append(waiting._replace(batch=kept))
            self._stand(left)
        return self.rows - before, shed

    def waiting_since(self) -> float | None:
        """When the oldest entry was put here; None if there is none. May be asked without the pool's lock."""
        try:
            return self.entries[0].put
        except IndexError:
            return None

    def head_arrival(self) -> float | None:
        """When the oldest row of the first entry came to the gateway; None if there is none. Needs no lock, either."""
        try:
            return self.entries[0].batch.arrival
        except IndexError:
            return None

    @property
    def over(self) -> bool:
        """True if the queue holds more than its budget, and sheds nothing."""
        return not self.sheds and self.size > self.budget_bytes

    def append(self, entry: Entry) -> int:
        """Appends whatever the budget says: for what was accepted before. Returns the change of `rows`."""
        rows = len(entry.batch)
        if not rows:
            if isinstance(entry.batch, Batch) and self._renews(entry):
                return 0
            rows = 1
        self.entries.append(entry)
        self.rows += rows
        self.size += entry.batch.size
        if entry.batch.owed:
            self.owed_bytes += entry.batch.size
        return rows

    def put_ahead(self, entry: Entry) -> None:
        """Behind all that stands ahead and before any other, whatever the budget says: what was restored."""
        self.entries.insert(self.ahead, entry)
        self.ahead += 1
        self._count([entry])

    def _renews(self, entry: Entry) -> bool:
        """Puts a watermark in the place of an older one behind which no rows wait, if there is one: in front of an
        instance that does not run they would grow without bound, and have no size."""
        for at in range(len(self.entries) - 1, -1, -1):
            waiting = self.entries[at]
            if len(waiting.batch):
                return False
            if (waiting.source, waiting.producer) == (entry.source, entry.producer):
                self.entries[at] = entry._replace(put=waiting.put)
                return True
        return False

    def put_first(self, entry: Entry) -> int:
        """Puts an entry before all that came later, whatever the budget says; no operator has begun with it. Returns
        the change of `rows`."""
        self.entries.appendleft(entry)
        self._count([entry])
        return len(entry.batch)

    def put_back(self, entries: Sequence[Entry]) -> int:
        """Before all that waits, whatever the budget says: what was taken and is to be taken again. Returns the change
        of `rows`."""
        before = self.rows
        self.entries.extendleft(reversed(entries))
        self.ahead += len(entries)
        self._count(entries)
        return self.rows - before

    def _pop(self, at: int = 0) -> Entry:
        entry = self.entries[at]
        del self.entries[at]
        batch = entry.batch
        self.rows -= len(batch) or 1
        self.size -= batch.size
        if batch.owed:
            self.owed_bytes -= batch.size
        return entry

    def take(self, limit: int) -> list[Entry]:
        """Whole batches up to `limit` rows; the first is cut when it alone has more. IndexError if there is none: who
        takes then has lost count."""
        if not self.entries:
            raise IndexError("expected a batch to take, got an empty queue")
        if self.rows <= limit:
            return self.take_all()
        entries = self.entries
        rows = len(entries[0].batch)
        if rows > limit:
            self._cut(limit)
            rows = limit
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
        if self.ahead:
            self.ahead = max(0, self.ahead - len(taken))
        return taken

    def take_all(self) -> list[Entry]:
        """Everything."""
        self.ahead = 0
        taken = list(self.entries)
        self.entries.clear()
        self.rows = self.size = self.owed_bytes = 0
        return taken

    def _cut(self, limit: int) -> None:
        """The first batch, which has more than `limit` rows, into batches of so many. All of it is cut at once: to copy
        what is left at each turn would cost the square of its length. One that is very long first into some that are
        not: a hundred thousand batches of a row would take 0.1 s, and the next turn may take more."""
        before = len(self.entries)
        source, batch, put, producer = self.entries.popleft()
        if len(batch) > limit * CUT_AT_ONCE:
            batch, *rest = parts(batch, limit * CUT_AT_ONCE)
            self.entries.extendleft([Entry(source, part, put, producer) for part in reversed(rest)])
        self.entries.extendleft([Entry(source, part, put, producer) for part in reversed(parts(batch, limit))])
        if self.ahead:
            self.ahead += len(self.entries) - before


def _watermark(entry: Entry) -> Entry:
    """The watermark of an entry whose rows are shed."""
    batch = entry.batch
    assert isinstance(batch, Batch)
    return entry._replace(batch=Batch([], batch.arrival, batch.watermark))
