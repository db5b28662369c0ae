"""The batch in the hand of a lent thread: it came while nothing else waited, and never entered a queue."""

from __future__ import annotations

from edgert.core.batch import Batch, RawBatch, part
from edgert.runtime.instance.queue import Entry


class Hand:
    """A batch that a lent thread works on piece by piece, each cut when it is due. Only that thread may take from
    it."""

    __slots__ = ("_batch", "_first", "_source", "put", "rows")

    def __init__(self, source: int, batch: Batch | RawBatch, put: float) -> None:
        """The arguments are those of an `Entry`."""
        self._source, self._batch = source, batch
        self._first = 0
        self.put = put
        """Arrival of the batch, monotonic seconds."""
        self.rows = len(batch)
        """Rows not taken yet."""

    def take(self, limit: int) -> list[Entry]:
        """Takes the next rows of the batch, at most `limit` (≥ 1)."""
        batch, first = self._batch, self._first
        if limit < self.rows:
            self._first = stop = first + limit
            self.rows -= limit
            batch = part(batch, first, stop)
        else:
            self.rows = 0
            if first:
                batch = part(batch, first, len(batch))
        return [Entry(self._source, batch, self.put)]

    @property
    def size(self) -> int:
        """Bytes of the rows not taken yet."""
        length = len(self._batch)
        return self._batch.size - self._batch.size * self._first // length if self.rows else 0
