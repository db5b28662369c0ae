"""Policies whose order changes only with the graph or the profiles: a rank per instance, and a heap of candidates."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from edgert.scheduling.candidates import Candidates
from edgert.scheduling.profile import UNKNOWN, Profile, hops_to_sink, outputs, paths

Rank = tuple[float, float]
"""The smaller goes first."""
_LAST: Rank = (math.inf, math.inf)
_SLACK = 64
"""Entries of the heap that may be out of date beyond one per candidate and seven more."""


class Ranked(Candidates):
    """Candidates by rank, ties by who waited longest."""

    def __init__(self, starvation_s: float = math.inf) -> None:
        super().__init__(starvation_s)
        self._downstream: Mapping[int, Sequence[int]] = {}
        self._profiles: dict[int, Profile] = {}
        self._rank: dict[int, Rank] = {}
        self._heap: list[tuple[Rank, int, int]] = []
        """(rank, turn, instance); an entry whose turn is over is dropped when it comes to the top."""
        self._turn: dict[int, int] = {}
        self._turns = 0

    def connect(self, downstream: Mapping[int, Sequence[int]]) -> None:
        self._downstream = downstream
        self._rerank()

    def profile(self, profiles: Mapping[int, Profile]) -> None:
        self._profiles.update(profiles)
        self._rerank()

    def remove(self, instance: int) -> None:
        super().remove(instance)
        self._profiles.pop(instance, None)
        self._rank.pop(instance, None)

    def _rerank(self) -> None:
        self._rank = self._ranks(self._downstream, self._profiles)
        self._sort()

    def _sort(self) -> None:
        self._heap = [(self._rank.get(i, _LAST), turn, i) for i, turn in self._turn.items()]
        heapify(self._heap)

    @abstractmethod
    def _ranks(self, downstream: Mapping[int, Sequence[int]], profiles: Mapping[int, Profile]) -> dict[int, Rank]:
        """The rank of every instance."""

    def _entered(self, instance: int) -> None:
        self._turns += 1
        self._turn[instance] = self._turns
        heappush(self._heap, (self._rank.get(instance, _LAST), self._turns, instance))
        if len(self._heap) > 8 * len(self._turn) + _SLACK:
            self._sort()

    def _left(self, instance: int) -> None:
        del self._turn[instance]

    def _best(self) -> int:
        heap, turn = self._heap, self._turn
        while True:
            _, entered, instance = heap[0]
            if turn.get(instance) == entered:
                return instance
            heappop(heap)


class MinLatency(Ranked):
    """Nearer to a sink first, so that old rows leave before new ones enter (Carney et al. 2003, as EdgeWise section 2.3
    restates it); ties by the rows that leave per second of CPU, which needs a profile."""

    def _ranks(self, downstream: Mapping[int, Sequence[int]], profiles: Mapping[int, Profile]) -> dict[int, Rank]:
        after, hops = outputs(downstream, profiles), hops_to_sink(downstream)
        return {k: (hops[k], -after[k].rate) for k in downstream}


class MinMemory(Ranked):
    """Chain (Babcock et al. 2003): who makes rows vanish fastest goes first, so queues stay small. Needs a profile.

    Along a path from source to sink the part of a row that is left, Π s, is drawn against the CPU spent on that part.
    An instance's priority is the slope of the segment of the chart's lower envelope on which it lies; of an instance on
    several paths, the steepest.
    """

    def _ranks(self, downstream: Mapping[int, Sequence[int]], profiles: Mapping[int, Profile]) -> dict[int, Rank]:
        ranks: dict[int, Rank] = dict.fromkeys(downstream, _LAST)
        for path in paths(downstream):
            for k, slope in zip(path, envelope([profiles.get(k, UNKNOWN) for k in path]), strict=True):
                ranks[k] = min(ranks[k], (-slope, 0.0))
        return ranks


def envelope(path: Sequence[Profile]) -> list[float]:
    """For each operator of a path the slope, rows lost per second, of its segment of the lower envelope. A row that
    reaches the sink is gone: the last point's size is zero. Costs are per row taken, and only the part of a row that is
    left is taken: where a tenth comes through, the next operator's cost counts a tenth."""
    spent, left = [0.0], [1.0]
    for cost_s, selectivity in path:
        spent.append(spent[-1] + max(cost_s * left[-1], 1e-12))
        left.append(left[-1] * selectivity)
    left[-1] = 0.0
    slopes: list[float] = []
    while (at := len(slopes)) < len(path):
        slope, end = max(((left[at] - left[j]) / (spent[j] - spent[at]), j) for j in range(at + 1, len(left)))
        slopes += [slope] * (end - at)
    return slopes
