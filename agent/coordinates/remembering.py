"""A point with a height, fitted anew in each round to the last round-trip time of every peer that is remembered.

The peers of one round say little: 8 of them leave a point in six dimensions almost free, and what the rounds before
said is lost. Here it stays: each remembered peer says how far from it we should be, on the line between us, and the
weighted mean of these places is our next one (majorization of stress: de Leeuw, 1977). The weight of a peer falls with
its error (iteratively reweighted least squares: absolute errors count, not squares), so that a few paths that no space
can hold do not bend the rest. Height vectors: Dabek et al., SIGCOMM 2004, §5.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from statistics import fmean
from typing import Final

from agent.coordinates.algorithm import LEAST_RTT_MS, Coordinate, Observation, usable

DIMENSIONS: Final = 5
LENGTH: Final = DIMENSIONS + 1
"""Numbers of a coordinate: the point, then the height."""
MOST_PEERS: Final = 256
"""Peers that are remembered. More: each round takes longer, and the oldest times were measured longer ago."""
MOST_ROUNDS: Final = 100
"""A time that was measured longer ago counts no more: the peer may be gone, or the way another one."""
STEPS: Final = 30
"""Most steps of a round. Fewer: it takes more rounds until the points have unfolded."""
LEAST_STEP: Final = 1e-4
"""A round ends when a step moves less than this share of the mean round-trip time."""
RELATIVE_PER_ROUND: Final = 0.07
"""At first absolute errors count, so that far peers unfold the points; after 15 rounds relative ones, so that near
peers count as much. Relative ones from the start leave folds that never go."""
SHARPNESS: Final = 0.1
"""Errors below this share of the round-trip time weigh alike. Near 0 the peers with the least errors hold the point."""
SPREAD: Final = 0.2
"""The first point is random, this share of the mean round-trip time wide, in whatever scale that is."""

_Peer = tuple[Coordinate, float, float, float]
"""Point, height, round-trip time, and its power in the weight."""


class Remembering:
    """Peers stand where they said when they were measured last."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._point = [random.gauss(0, LEAST_RTT_MS) for _ in range(DIMENSIONS)]
        self._height = 0.0
        self._rounds = 0
        self._known: dict[str, tuple[Coordinate, float, int]] = {}
        """Coordinate, round-trip time and round of each peer, the one measured longest ago first."""

    @property
    def coordinate(self) -> Coordinate:
        return (*self._point, self._height)

    def estimate_ms(self, first: Coordinate, second: Coordinate) -> float:
        if len(first) != LENGTH or len(second) != LENGTH:
            return math.inf
        return math.dist(first[:-1], second[:-1]) + first[-1] + second[-1]

    def update(self, observations: Sequence[Observation]) -> None:
        found = [o for o in observations if usable(o, LENGTH) and o.coordinate[-1] >= 0]
        if not found:
            return
        if not self._rounds:
            wide = SPREAD * fmean(o.rtt_ms for o in found)
            self._point = [self._random.gauss(0, wide) for _ in range(DIMENSIONS)]
        self._rounds += 1
        self._remember(found)
        power = min(1.0, RELATIVE_PER_ROUND * (self._rounds - 1))
        peers = [(at[:-1], at[-1], rtt, rtt**power) for at, rtt, _ in self._known.values()]
        least = LEAST_STEP * fmean(rtt for _, _, rtt, _ in peers)
        for _ in range(STEPS):
            if self._step(peers) < least:
                break

    def _remember(self, found: Sequence[Observation]) -> None:
        for o in found:
            self._known.pop(o.peer, None)
            self._known[o.peer] = o.coordinate, max(o.rtt_ms, LEAST_RTT_MS), self._rounds
        too_many = len(self._known) - MOST_PEERS
        oldest = [
            peer for n, (peer, (_, _, when)) in enumerate(self._known.items())
            if n < too_many or when <= self._rounds - MOST_ROUNDS
        ]  # fmt: skip
        for peer in oldest:
            del self._known[peer]

    def _step(self, peers: Sequence[_Peer]) -> float:
        """Move to the weighted mean of the places where the peers want us; returns how far."""
        own, mean = self._point, [0.0] * DIMENSIONS
        weights = errors = 0.0
        for point, height, rtt, scale in peers:
            distance, wanted = math.dist(own, point), rtt - height - self._height
            error = distance - wanted
            weight = 1 / (scale * max(abs(error), SHARPNESS * rtt))
            weights, errors = weights + weight, errors + weight * error
            share = max(wanted, 0.0) / max(distance, LEAST_RTT_MS)
            mean = [m + weight * (p + share * (x - p)) for m, p, x in zip(mean, point, own, strict=True)]
        self._point = [m / weights for m in mean]
        self._height = max(self._height - errors / weights, 0.0)
        return math.dist(own, self._point)
