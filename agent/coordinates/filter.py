"""Filters before and after the coordinate algorithm (Ledlie, Seltzer, Harvard TR-17-05).

Before it: the median of the last few round-trip times to a peer. After it: the application-level coordinate, which
changes only when the system's coordinate has moved significantly.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import Final

from agent.coordinates.algorithm import Algorithm, Coordinate

HISTORY: Final = 5
"""Round-trip times of a peer that the median is taken of. Fewer: outliers pass. More: changes are seen later."""
SIGNIFICANT: Final = 0.15
"""A move is significant if it exceeds this share of the estimated distance to the nearest peer."""
LEAST_MOVE_MS: Final = 0.2
MOST_PEERS: Final = 4_096


class MedianFilter:
    """The median of a peer's last `HISTORY` round-trip times, for each of a bounded number of peers."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}

    def add(self, peer: str, rtt_ms: float) -> float:
        """Take in a round-trip time; returns the filtered one."""
        times = self._times.get(peer)
        if times is None:
            if len(self._times) >= MOST_PEERS:
                del self._times[next(iter(self._times))]
            times = self._times[peer] = deque(maxlen=HISTORY)
        times.append(rtt_ms)
        return statistics.median(times)

    def get(self, peer: str) -> float | None:
        """The filtered round-trip time of a peer; None if it was never measured."""
        times = self._times.get(peer)
        return statistics.median(times) if times else None

    def forget(self, peer: str) -> None:
        self._times.pop(peer, None)


class ApplicationCoordinate:
    """The coordinate that placement sees."""

    def __init__(self) -> None:
        self.value: Coordinate = ()
        self.changes = 0

    def follow(self, system: Coordinate, algorithm: Algorithm, nearest_ms: float | None) -> bool:
        """Take over the system's coordinate if that moved significantly; True if so. `nearest_ms`: the round-trip
        time to the nearest peer, None if unknown."""
        moved = algorithm.estimate_ms(self.value, system) if self.value else math.inf
        if moved <= max(LEAST_MOVE_MS, SIGNIFICANT * (nearest_ms or 0.0)):
            return False
        self.value = system
        self.changes += 1
        return True
