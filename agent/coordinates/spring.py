"""Spring relaxation in three dimensions (latency-aware placement, FGCS 2025, §3.4, Algorithms 1 and 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Final

from agent.coordinates.algorithm import LEAST_RTT_MS, Coordinate, Observation, usable

DIMENSIONS: Final = 3
STRENGTH: Final = 0.5
"""The constant k of Algorithm 2 (the paper gives no value) as a share of 1 / Σ (1 / rtt) over the peers of a round.

At a share of 2 a point swings around its peers instead of coming to rest. An absolute k suits only one scale of
round-trip times: one for the Internet lets boards of a local network swing."""
EPSILON_MS: Final = 0.001
"""A round ends when a step moves less than this (ε of Algorithm 1)."""
STEPS: Final = 100
"""Most steps of a round (Algorithm 1, line 6)."""
START_MS: Final = 10.0
"""First coordinates are random within ± this."""


class Spring:
    """Algorithm 1: the peers of a round stand still, and our point follows the sum of their forces."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._point = [random.uniform(-START_MS, START_MS) for _ in range(DIMENSIONS)]

    @property
    def coordinate(self) -> Coordinate:
        return tuple(self._point)

    def estimate_ms(self, first: Coordinate, second: Coordinate) -> float:
        if len(first) != DIMENSIONS or len(second) != DIMENSIONS:
            return math.inf
        return math.dist(first, second)

    def update(self, observations: Sequence[Observation]) -> None:
        peers = [(o.coordinate, max(o.rtt_ms, LEAST_RTT_MS)) for o in observations if usable(o, DIMENSIONS)]
        if not peers:
            return
        strength = STRENGTH / sum(1 / rtt for _, rtt in peers)
        x, y, z = self._point
        for _ in range(STEPS):
            dx = dy = dz = 0.0
            for (px, py, pz), rtt in peers:
                fx, fy, fz = self._force(px - x, py - y, pz - z, rtt, strength)
                dx, dy, dz = dx + fx, dy + fy, dz + fz
            x, y, z = x + dx, y + dy, z + dz
            if dx * dx + dy * dy + dz * dz < EPSILON_MS * EPSILON_MS:
                break
        self._point = [x, y, z]

    def _force(self, dx: float, dy: float, dz: float, rtt: float, strength: float) -> tuple[float, float, float]:
        """Algorithm 2: k · log(‖d‖ / rtt) along the unit vector of d, which points to the peer."""
        distance = math.sqrt(dx * dx + dy * dy + dz * dz)
        if distance < LEAST_RTT_MS:  # no direction: any one
            gauss = self._random.gauss
            dx, dy, dz = gauss(0, 1), gauss(0, 1), gauss(0, 1)
            length = math.sqrt(dx * dx + dy * dy + dz * dz) or 1.0
            dx, dy, dz = dx / length * LEAST_RTT_MS, dy / length * LEAST_RTT_MS, dz / length * LEAST_RTT_MS
            distance = LEAST_RTT_MS
        scale = strength * math.log(distance / rtt) / distance
        return dx * scale, dy * scale, dz * scale
