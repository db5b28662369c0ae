"""What a lent thread has in its hand: a batch that came while nothing else waited, and that no queue has seen."""

from __future__ import annotations

from edgert.core.batch import Batch, RawBatch, part
from edgert.runtime.instance.queue import Entry


class Hand:
    """It is worked on piece by piece, each cut when it is due. Nobody but the thread whose hand it is may take."""

    __slots__ = ("_batch", "_first", "_source", "put", "rows")

    def __init__(self, source: int, batch: Batch | RawBatch, put: float) -> None:
        """As of an `Entry`."""
        self._source, self._batch = source, batch
        self._first = 0
        self.put = put
        """When it came, monotonic seconds."""
        self.rows = len(batch)
        """Not taken yet."""

    def take(self, limit: int) -> list[Entry]:
        """The next of it, `limit` rows (≥ 1) at most."""
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
        """Bytes of what was not taken yet."""
        length = len(self._batch)
        return self._batch.size - self._batch.size * self._first // length if self.rows else 0
