"""A heap whose entries are replaced without a search: an entry that is out of date stays until it comes to the top."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

May = Callable[[int], bool]
"""True for an instance that may be chosen now."""
_SLACK = 16
"""Entries of the heap that may be out of date beyond one per member and one more."""
_LOOKS = 32
"""One in so many members, and one more, are taken out and put back if they may not run: to take out more would cost
more than a look at each."""
HeapEntry = tuple[float | tuple[float, float], int, int]
"""(what to order by, the smaller first; turn; instance)"""


class LazyHeap:
    """Instances by an order that changes. A change adds an entry and leaves the old one, which is dropped when it comes
    to the top: so `first` costs the logarithm of the members, not a look at each."""

    def __init__(self) -> None:
        self._heap: list[HeapEntry] = []
        self._entry: dict[int, HeapEntry] = {}
        """The entry of each member that is not out of date."""

    def _put(self, entry: HeapEntry) -> None:
        """Adds an instance, or gives it another place."""
        self._entry[entry[2]] = entry
        heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entry) + _SLACK:
            self._sort()

    def _sort(self) -> None:
        self._heap = list(self._entry.values())
        heapify(self._heap)

    def _best(self, may: May | None) -> int | None:
        """The member with the least entry, of those that `may`; None when there is none."""
        heap, current = self._heap, self._entry
        passed: list[HeapEntry] = []
        first = None
        while heap:
            entry = heap[0]
            if current.get(entry[2]) is not entry:
                heappop(heap)
            elif may is None or may(entry[2]):
                first = entry
                break
            elif len(passed) <= len(current) // _LOOKS:
                passed.append(heappop(heap))
            else:
                first = min([entry for entry in current.values() if may(entry[2])], default=None)
                break
        for entry in passed:
            heappush(heap, entry)
        return first and first[2]
