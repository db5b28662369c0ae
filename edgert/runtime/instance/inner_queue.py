"""The queue of an instance behind the sources: rows and watermarks."""

from __future__ import annotations

from edgert.core.batch import Batch
from edgert.runtime.instance.queue import Entry, Queue


class InnerQueue(Queue):
    """The queue of an instance behind the sources. While it is over its budget, the pool runs no instance that feeds
    it, so it sheds nothing. While it is `shedding` (`Backpressure.look`), its feeders go on, and it sheds the oldest
    rows, or with "shed-newest" the newest. Their watermarks stay."""

    __slots__ = ()

    def put(self, entry: Entry) -> tuple[int, int]:
        batch = entry.batch
        if self.shedding and self.size + batch.size > self.budget_bytes and batch.size and self._entries:
            self._settle()
            return self._put_over(entry)
        return self.append(entry), 0

    @property
    def over(self) -> bool:
        return not self.shedding and self.size > self.budget_bytes

    def _put_over(self, entry: Entry) -> tuple[int, int]:
        """Behind the decoder watermarks stand in line with the rows, and are not lost with them."""
        first = self.protected
        room = self.budget_bytes + self._protected_bytes()[0]
        if self.overload == "shed-newest" and first < len(self._entries) and self.size + entry.batch.size > room:
            return self.append(_watermark(entry)), len(entry.batch)
        before, shed = self.rows, 0
        last: dict[tuple[int, int], Entry] = {}
        """The entry put last, by (input, producer)."""
        self.append(entry)
        while self.size > room and len(self._entries) > first + 1:
            oldest = self._pop(first)
            shed += len(oldest.batch)
            last[oldest.source, oldest.producer] = oldest
        for gone in last.values():
            self._entries.insert(first, _watermark(gone))
        self.rows += len(last)
        return self.rows - before, shed


def _watermark(entry: Entry) -> Entry:
    """The watermark of an entry whose rows are shed."""
    batch = entry.batch
    assert isinstance(batch, Batch)
    return entry._replace(batch=Batch([], batch.arrival, batch.watermark))
