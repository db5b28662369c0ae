"""The longest queue first (EdgeWise, section 4.2); needs no profile of the operators."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from edgert.scheduling.candidates import Candidates

_SLACK = 64
"""Entries of the heap that may be out of date beyond one per candidate and seven more."""


class CongestionAware(Candidates):
    """Unlike the published code it counts rows, breaks ties by who waited longest, and ages (`Candidates`), so that a
    short queue cannot starve behind busy ones.

    A heap of lengths in which a change adds an entry and leaves the old one: that is out of date, and dropped when it
    comes to the top. So a choice costs the logarithm of the candidates, not a look at each.
    """

    def __init__(self, starvation_s: float = 0.05) -> None:
        super().__init__(starvation_s)
        self._heap: list[tuple[int, int, int]] = []
        """(-length, turn, instance)"""
        self._turn: dict[int, int] = {}
        """Candidates, numbered in the order in which they became so."""
        self._turns = 0

    def _entered(self, instance: int) -> None:
        self._turns += 1
        self._turn[instance] = self._turns
        self._push(instance)

    def _left(self, instance: int) -> None:
        del self._turn[instance]

    def _grew(self, instance: int) -> None:
        self._push(instance)

    def _push(self, instance: int) -> None:
        heap = self._heap
        heappush(heap, (-self._length[instance], self._turn[instance], instance))
        if len(heap) > 8 * len(self._turn) + _SLACK:
            heap[:] = [(-self._length[i], turn, i) for i, turn in self._turn.items()]
            heapify(heap)

    def _best(self) -> int:
        heap, turn, length = self._heap, self._turn, self._length
        while True:
            shortage, entered, instance = heap[0]
            if turn.get(instance) == entered and length[instance] == -shortage:
                return instance
            heappop(heap)
