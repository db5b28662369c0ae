"""The queue of a source: undecoded messages, of which some are owed an acknowledgement."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from edgert.core.batch import every_second
from edgert.runtime.instance.queue import Entry, Overload, Queue

OWED_BYTES: Final = 8_388_608
"""More than can be owed an acknowledgement at a time: twice the input at which the gateway stops reading."""


class SourceQueue(Queue):
    """The queue of a source. Past its budget it sheds, as its flow chose.

    A batch that is owed an acknowledgement is never shed. The queue is not told when the acknowledgement is sent. But
    at most `most_owed_bytes` are owed at a time, and these are the newest: a batch with that many owed bytes behind it
    is owed none any more.
    """

    __slots__ = ("most_owed_bytes",)

    def __init__(
        self, budget_bytes: int, overload: Overload = "shed-oldest", most_owed_bytes: int = OWED_BYTES
    ) -> None:
        super().__init__(budget_bytes, overload)
        self.most_owed_bytes = most_owed_bytes

    def put(self, entry: Entry) -> tuple[int, int]:
        batch = entry.batch
        if self.size + batch.size > self.budget_bytes and batch.size and self._entries:
            self._settle()
            return self._put_over(entry)
        return self.append(entry), 0

    def _put_over(self, entry: Entry) -> tuple[int, int]:
        """In front of a decoder: by what is owed."""
        entries, batch, first = self._entries, entry.batch, self.protected
        protected, owed_protected = self._protected_bytes()
        room = self.budget_bytes + protected - batch.size
        if self.overload == "sample":
            return self._put_sampled(entry, room + batch.size)
        newest = self.overload == "shed-newest"
        if newest and not batch.owed and first < len(entries) and self.size > room:
            return 0, len(batch)
        before, shed = self.rows, 0
        owed = batch.size if batch.owed else 0
        while not newest and first < len(entries) and self.size > room:
            oldest = entries[first].batch
            if oldest.owed and self.owed_bytes - owed_protected - oldest.size + owed < self.most_owed_bytes:
                break
            shed += len(self._pop(first).batch)
        kept = self.owed_bytes - owed_protected
        if newest:
            kept = min(kept, self.most_owed_bytes - owed)
        if self.size > room and self.size - protected > kept:
            shed += self._shed_between(self.size - room, owed, newest)
        if not batch.owed and first < len(self._entries) and self.size > room:
            return self.rows - before, shed + len(batch)
        self.append(entry)
        return self.rows - before, shed

    def _put_sampled(self, entry: Entry, most: int) -> tuple[int, int]:
        """Puts an entry and halves the queue if there is no room. The rows left are a sample of the whole time of the
        queue. Halving looks at all entries, and makes so much room that it is not due again for long."""
        before, shed = self.rows, 0
        self.append(entry)
        while self.size > most:
            entries = list(self._entries)
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

    def _shed_between(self, excess: int, behind: int, newest: bool) -> int:
        """Sheds entries that are owed no acknowledgement from between those that are; returns the number of rows.
        `behind`: bytes owed that come after all of them. A call looks at all entries, so it sheds somewhat more than
        `excess`, in order not to run for each batch."""
        entries = list(self._entries)
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

    def _free(self, entries: Sequence[Entry], behind: int) -> list[int]:
        """Indices of the entries that are owed no acknowledgement, the newest first."""
        free = []
        for at in range(len(entries) - 1, self.protected - 1, -1):
            batch = entries[at].batch
            if batch.owed and behind < self.most_owed_bytes:
                behind += batch.size
            elif batch.size:
                free.append(at)
        return free

    def _stand(self, entries: Sequence[Entry]) -> None:
        """Replaces the entries of the queue by `entries`, which include the protected ones."""
        self._entries = deque(entries)
        self.rows = self.size = self.owed_bytes = 0
        self._count(entries)
