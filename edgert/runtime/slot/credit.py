"""A bound on the batches that a slot sends to instances in other slots, like the bound on their queues.

    feeding instance ── DATA ──▶ link, sockets ──▶ queue of an instance in another slot
                     ◀─ TAKEN ── number of bytes that have reached the queue
                     ◀─ FULL, ROOM ── the queue is over its budget, or not any more

While FULL travels to the senders, more batches are under way. They are packed, and so many times smaller than in a
queue, so the sender counts the bytes that the rows will take in the queue. If too many are under way, the instances
that feed the queue wait: for their pool its budget is exceeded. Reading a link waits for no instance, so all batches
under way arrive in the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from edgert.links.unix import UnixLink
from edgert.runtime.pool.pool import Pool

UNDER_WAY_BYTES: Final = 2_097_152
"""Estimated resident bytes that may be under way to one instance: half of its queue's budget. It takes some
milliseconds until the other slot says that it has taken them, in which two cores compute less than that."""
BACKLOG_BYTES: Final = 4_194_304
"""Packed bytes that may wait for a link: it does not read, so it hangs."""


def told_bytes() -> int:
    """Bytes that are taken in before the sender is told: less than must be free before waiting instances go on."""
    return UNDER_WAY_BYTES // 4


class SlotCredit:
    """Batches under way from one run in one slot; `sent` may be called on any thread."""

    def __init__(self, links: Mapping[int, UnixLink], pool: Pool, number: Callable[[int], int]) -> None:
        """`number`: by which the pool knows an instance in another slot, from its index in the plan."""
        self._links, self._pool, self._number = links, pool, number
        self._lock = threading.Lock()
        """The lock held while the pool is told: otherwise an older finding of one thread could overwrite a newer
        one."""
        self._bytes: dict[int, int] = {}
        """Estimated resident bytes under way, by index."""
        self._full: set[int] = set()
        """Indexes of instances whose queue is over its budget."""
        self._choked: dict[int, int] = {}
        """Indexes of instances to which too much is under way → their slot."""

    def sent(self, slot: int, index: int, size: int) -> None:
        """A batch of `size` was sent."""
        link = self._links.get(slot)
        with self._lock:
            under_way = self._bytes[index] = self._bytes.get(index, 0) + size
            waits = link is not None and link.backlog_bytes > BACKLOG_BYTES
            if (waits or under_way > UNDER_WAY_BYTES) and index not in self._choked:
                self._choked[index] = slot
                self._pool.mark_full(self._number(index))

    def taken(self, index: int, size: int) -> None:
        """Notes that `size` bytes of those under way stand in the queue now."""
        with self._lock:
            self._bytes[index] = self._bytes.get(index, 0) - size

    def full(self, index: int) -> None:
        """The queue is over its budget."""
        with self._lock:
            self._full.add(index)
            self._pool.mark_full(self._number(index))

    def room(self, index: int) -> None:
        """Notes that the queue of the instance is within its budget again."""
        with self._lock:
            self._full.discard(index)
            if index not in self._choked:
                self._pool.mark_room(self._number(index))

    def look(self) -> None:
        """Lets feeding instances go on once few enough bytes are under way. To be called often."""
        if not self._choked:
            return
        with self._lock:
            for index, slot in list(self._choked.items()):
                link = self._links.get(slot)
                if link is None or (
                    link.backlog_bytes < BACKLOG_BYTES // 2 and self._bytes[index] <= UNDER_WAY_BYTES // 2
                ):
                    del self._choked[index]
                    if index not in self._full:
                        self._pool.mark_room(self._number(index))
