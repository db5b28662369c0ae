"""Policies whose order changes only with the graph or the profiles: a rank per instance."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from edgert.scheduling.by_heap import ByHeap
from edgert.scheduling.profile import UNKNOWN, Profile, hops_to_sink, outputs, paths

SortKey = tuple[float, float]
"""The smaller goes first."""
_LAST: SortKey = (math.inf, math.inf)


class Ranked(ByHeap):
    """Candidates by rank, ties by who waited longest."""

    def __init__(self, starvation_s: float = math.inf) -> None:
        super().__init__(starvation_s)
        self._downstream: Mapping[int, Sequence[int]] = {}
        self._profiles: dict[int, Profile] = {}
        self.rank: dict[int, SortKey] = {}

    def connect(self, downstream: Mapping[int, Sequence[int]]) -> None:
        self._downstream = downstream
        self._rerank()

    def profile(self, profiles: Mapping[int, Profile]) -> None:
        self._profiles.update(profiles)
        self._rerank()

    def remove(self, instance: int) -> None:
        super().remove(instance)
        self._profiles.pop(instance, None)
        self.rank.pop(instance, None)

    def _rerank(self) -> None:
        self.rank = self._ranks(self._downstream, self._profiles)
        self._entry = {i: (self.rank.get(i, _LAST), turn, i) for i, (_, turn, _) in self._entry.items()}
        self._sort()

    @abstractmethod
    def _ranks(self, downstream: Mapping[int, Sequence[int]], profiles: Mapping[int, Profile]) -> dict[int, SortKey]:
        """The rank of every instance."""

    def _entered(self, instance: int) -> None:
        self._turns += 1
        self._put((self.rank.get(instance, _LAST), self._turns, instance))


class MinLatency(Ranked):
    """Nearer to a sink first, so that old rows leave before new ones enter (Carney et al. 2003, as EdgeWise section 2.3
    restates it); ties by the rows that leave per second of CPU, which needs a profile."""

    def __init__(self, starvation_s: float = math.inf) -> None:
        super().__init__(starvation_s)
        self._hops: dict[int, int] = {}

    def connect(self, downstream: Mapping[int, Sequence[int]]) -> None:
        self._hops = hops_to_sink(downstream)
        super().connect(downstream)

    def _ranks(self, downstream: Mapping[int, Sequence[int]], profiles: Mapping[int, Profile]) -> dict[int, SortKey]:
        after = outputs(downstream, profiles)
        return {k: (hops, -after[k].rate) for k, hops in self._hops.items()}


class MinMemory(Ranked):
    """Chain (Babcock et al. 2003): who makes rows vanish fastest goes first, so queues stay small. Needs a profile.

    Along a path from source to sink the part of a row that is left, Π s, is drawn against the CPU spent on that part.
    An instance's priority is the slope of the segment of the chart's lower envelope on which it lies; of an instance on
    several paths, the steepest.
    """

    def __init__(self, starvation_s: float = math.inf) -> None:
        super().__init__(starvation_s)
        self._paths: list[tuple[int, ...]] = []

    def connect(self, downstream: Mapping[int, Sequence[int]]) -> None:
        self._paths = list(paths(downstream))
        super().connect(downstream)

    def _ranks(self, downstream: Mapping[int, Sequence[int]], profiles: Mapping[int, Profile]) -> dict[int, SortKey]:
        known = {k: profiles.get(k, UNKNOWN) for k in downstream}
        steepest = dict.fromkeys(downstream, -math.inf)
        for path in self._paths:
            for k, slope in zip(path, envelope([known[k] for k in path]), strict=True):
                if slope > steepest[k]:
                    steepest[k] = slope
        return {k: (-slope, 0.0) for k, slope in steepest.items()}


def envelope(path: Sequence[Profile]) -> list[float]:
    """For each operator of a path the slope, rows lost per second, of its segment of the lower envelope. A row that
    reaches the sink is gone: the last point's size is zero. Costs are per row taken, and only the part of a row that is
    left is taken: where a tenth comes through, the next operator's cost counts a tenth."""
    corners = [(0.0, 1.0, 0)]  # CPU spent, part left, operators done
    slopes: list[float] = []  # of the segment behind each corner
    at_s, left, last = 0.0, 1.0, len(path)
    for done, profile in enumerate(path, 1):
        at_s += max(profile.cost_s * left, 1e-12 * (1.0 + at_s))  # so that it grows, whatever it is
        left = left * profile.selectivity if done < last else 0.0
        while True:  # a corner that a steeper segment follows lies above the envelope
            spent_s, part, _ = corners[-1]
            slope = (part - left) / (at_s - spent_s)
            if not slopes or slopes[-1] > slope:
                break
            corners.pop()
            slopes.pop()
        corners.append((at_s, left, done))
        slopes.append(slope)
    ends = [done for _, _, done in corners]
    return [slope for slope, a, b in zip(slopes, ends, ends[1:], strict=False) for _ in range(b - a)]
