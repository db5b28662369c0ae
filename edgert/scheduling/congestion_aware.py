"""The longest queue first (EdgeWise, section 4.2); needs no profile of the operators."""

from __future__ import annotations

from edgert.scheduling.by_heap import ByHeap


class CongestionAware(ByHeap):
    """Unlike the published code it counts rows, breaks ties by who waited longest, and ages (`Candidates`), so that a
    short queue cannot starve behind busy ones. With an infinite `starvation_s` it may, as it was published."""

    def __init__(self, starvation_s: float = 0.05) -> None:
        super().__init__(starvation_s)

    def _entered(self, instance: int) -> None:
        self._turns += 1
        self._put((-self._length[instance], self._turns, instance))

    def _grew(self, instance: int) -> None:
        self._put((-self._length[instance], self._entry[instance][1], instance))
