"""Policies that keep an order among the candidates: a heap in which what is out of date stays until it is met."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush

from edgert.scheduling.candidates import Candidates, May

_SLACK = 16
"""Entries of the heap that may be out of date beyond one per candidate and one more."""
_LOOKS = 32
"""One in so many candidates, and one more, are taken out and put back if they may not run: to take out more would cost
more than a look at each."""
Entry = tuple[float | tuple[float, float], int, int]
"""(what to order by, the smaller first; turn; instance)"""


class ByHeap(Candidates):
    """A change adds an entry and leaves the old one, which is dropped when it comes to the top. So a choice costs the
    logarithm of the candidates, not a look at each. Ties go to who waited longest.

    A policy overrides `_entered`, and calls `_put` there and whenever the order of a candidate changes.
    """

    def __init__(self, starvation_s: float = math.inf) -> None:
        super().__init__(starvation_s)
        self._heap: list[Entry] = []
        self._entry: dict[int, Entry] = {}
        """That of each candidate which is not out of date."""
        self._turns = 0
        """Numbers candidates in the order in which they became so."""

    def _put(self, entry: Entry) -> None:
        self._entry[entry[2]] = entry
        heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entry) + _SLACK:
            self._sort()

    def _sort(self) -> None:
        self._heap = list(self._entry.values())
        heapify(self._heap)

    def _left(self, instance: int) -> None:
        del self._entry[instance]

    def _best(self, may: May | None) -> int | None:
        heap, current = self._heap, self._entry
        passed: list[Entry] = []
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
