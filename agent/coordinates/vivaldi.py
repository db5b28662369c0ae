"""Vivaldi with height and adjustment, as Serf has it: the baseline.

Dabek, Cox, Kaashoek, Morris, SIGCOMM 2004 (§4: height vectors, adaptive time step); Ledlie, Gardner, Seltzer, NSDI 2007
(the adjustment term). A coordinate is 8 numbers of the point, then height, error and adjustment.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Final

from agent.coordinates.algorithm import LEAST_RTT_MS, Coordinate, Observation, usable

DIMENSIONS: Final = 8
LENGTH: Final = DIMENSIONS + 3
GREATEST_ERROR: Final = 1.5
ERROR_WEIGHT: Final = 0.25
"""c_e of Vivaldi §3.3: weight of a new sample in the error estimate."""
STEP: Final = 0.25
"""c_c of Vivaldi §3.3: share of the error that a sample corrects at most."""
LEAST_HEIGHT_MS: Final = 0.01
ADJUSTMENT_WINDOW: Final = 20


class Vivaldi:
    """One sample after the other pulls or pushes our point."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._point = [0.0] * DIMENSIONS
        self._height = LEAST_HEIGHT_MS
        self._error = GREATEST_ERROR
        self._adjustment = 0.0
        self._samples: deque[float] = deque(maxlen=ADJUSTMENT_WINDOW)

    @property
    def coordinate(self) -> Coordinate:
        return (*self._point, self._height, self._error, self._adjustment)

    def estimate_ms(self, first: Coordinate, second: Coordinate) -> float:
        if len(first) != LENGTH or len(second) != LENGTH:
            return math.inf
        distance = _raw(first, second)
        adjusted = distance + first[-1] + second[-1]
        return adjusted if adjusted > 0 else distance

    def update(self, observations: Sequence[Observation]) -> None:
        for observation in observations:
            if usable(observation, LENGTH) and observation.coordinate[-3] >= 0:
                self._sample(observation.coordinate, max(observation.rtt_ms, LEAST_RTT_MS))

    def _sample(self, other: Coordinate, rtt: float) -> None:
        distance = _raw(self.coordinate, other)
        wrongness = abs(distance - rtt) / rtt
        total = self._error + max(other[-2], 0.0)
        weight = self._error / total if total > 0 else 0.5
        share = ERROR_WEIGHT * weight
        self._error = min(wrongness * share + self._error * (1 - share), GREATEST_ERROR)
        self._push(other, STEP * weight * (rtt - distance))
        self._samples.append(rtt - _raw(self.coordinate, other))
        self._adjustment = sum(self._samples) / (2 * len(self._samples))

    def _push(self, other: Coordinate, force: float) -> None:
        direction = [a - b for a, b in zip(self._point, other[:DIMENSIONS], strict=True)]
        length = math.hypot(*direction)
        if length < LEAST_RTT_MS:
            direction = [self._random.gauss(0, 1) for _ in range(DIMENSIONS)]
            apart, length = 0.0, math.hypot(*direction) or 1.0
        else:
            apart = length
        self._point = [x + force * d / length for x, d in zip(self._point, direction, strict=True)]
        if apart:
            height = (self._height + other[-3]) * force / apart + self._height
            self._height = max(height, LEAST_HEIGHT_MS)


def _raw(first: Coordinate, second: Coordinate) -> float:
    return math.dist(first[:DIMENSIONS], second[:DIMENSIONS]) + first[-3] + second[-3]
