"""The interference score: how much an instance disturbs, and is disturbed on, a board (TPDS 2017, section 4.1.3).

With ring r of the board without the instance and ring c of the instance, over all windows p:

    ru = ½ r[p-1] + r[p] + ½ r[p+1]      cu = ru + ½ c[p-1] + c[p] + ½ c[p+1]
    score += (cuⁿ - ruⁿ) / (roomⁿ · resolution) · (1 - distance / horizon)

The paper has one ring, of arrivals × time × size, and room = cpuFrac · bwFrac. Here each resource has its ring and its
room, and the score is the sum: otherwise an instance that needs much CPU for tiny rows would disturb no other.

By the binomial formula a score is n dot products of powers of the two smoothed rings. The powers of an instance's ring
are kept with the instance, those of a board's with the board, and the product that has nothing of the board is a number
kept with the instance. So a score costs n - 1 products, and an instance that comes or
goes one addition per window.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat
from math import comb
from operator import add, mul, sub
from typing import Final, NamedTuple

from agent.interference.peaks import Load
from agent.interference.ring import HORIZON, SECONDS, STARTS, Ring

AMPLIFIER: Final = 2
"""n: crowded windows count more the greater it is; 1 would not tell them from free ones."""
NEARNESS: Final = tuple((1 - start / HORIZON) / seconds for start, seconds in zip(STARTS, SECONDS, strict=True))
"""Weight of each window."""


class Room(NamedTuple):
    """The part of a board that operators may use."""

    cpu: float
    """Cores of the reference board: cpuFrac × its capacity."""
    link: float
    """Bytes per second: bwFrac × its bandwidth."""


def smooth(values: Sequence[float]) -> list[float]:
    """Each window with half of the one before and half of the one behind it; at the ends nothing is beyond."""
    before, behind = [0.0, *values[:-1]], [*values[1:], 0.0]
    return [0.5 * a + b + 0.5 * c for a, b, c in zip(before, values, behind, strict=True)]


def _dot(some: Sequence[float], others: Sequence[float]) -> float:
    return sum(map(mul, some, others), 0.0)


def _powers(values: list[float], highest: int) -> list[list[float]]:
    """From the first power to `highest`."""
    return list(accumulate(repeat(values, highest), lambda power, factor: list(map(mul, power, factor))))


def _highest(values: list[float], powers: list[list[float]]) -> float:
    """Weighted sum of the power behind the last of `powers`."""
    return _dot(NEARNESS, list(map(mul, values, powers[-1])))


class Footprint:
    """An instance's ring, ready for scores. `ring` and the footprint stand for each other: make a new one for a new
    prediction."""

    __slots__ = ("own", "powers", "ring", "smoothed")

    def __init__(self, ring: Ring, amplifier: int = AMPLIFIER) -> None:
        self.ring = ring
        cpu, ratio = smooth(ring.cpu), ring.ratio
        link = smooth(ring.link) if ratio is None else [ratio * value for value in cpu]
        self.smoothed = cpu, link
        of_cpu, of_link = _powers(cpu, amplifier - 1), _powers(link, amplifier - 1)
        self.powers = list(map(add, of_cpu, of_link))
        """All below the highest, both resources one behind the other."""
        own = _highest(cpu, of_cpu)
        self.own = own, _highest(link, of_link) if ratio is None else own * ratio**amplifier
        """Weighted sum of the highest power, by resource."""


class Crowd:
    """A board's ring, ready for scores. Raises `ValueError` for room or amplifier out of range."""

    def __init__(self, ring: Ring, room: Room, amplifier: int = AMPLIFIER) -> None:
        if not (min(room) > 0 and amplifier > 1):
            raise ValueError(f"expected room above 0 and an amplifier above 1, got {room} and {amplifier}")
        self.ring, self.room, self.amplifier = ring, room, amplifier
        self._smoothed = smooth(ring.cpu), smooth(ring.link)
        self._scales = math.pow(room.cpu, -amplifier), math.pow(room.link, -amplifier)
        self._weigh()

    def _weigh(self) -> None:
        n = self.amplifier
        of_cpu, of_link = (_powers(values, n - 1) for values in self._smoothed)
        self._terms: list[list[float]] = []
        """Factors of the k-th power of a footprint, for each k below n."""
        for k in range(1, n):
            both = zip((of_cpu[n - k - 1], of_link[n - k - 1]), self._scales, strict=True)
            self._terms.append(
                [scale * comb(n, k) * w * p for powers, scale in both for w, p in zip(NEARNESS, powers, strict=True)]
            )

    def joined(self, footprint: Footprint) -> float:
        """Score of an instance that is not on the board, were it here: (r + c)ⁿ - rⁿ, the board's ring is r."""
        return self._sum(footprint, 1.0)

    def within(self, footprint: Footprint) -> float:
        """Score of an instance that is on the board: rⁿ - (r - c)ⁿ, the board's ring is r."""
        return -self._sum(footprint, -1.0)

    def _sum(self, footprint: Footprint, sign: float) -> float:
        total: float = 0.0
        factor = sign
        for term, power in zip(self._terms, footprint.powers, strict=True):
            total += factor * _dot(term, power)
            factor *= sign
        own, scales = footprint.own, self._scales
        total += factor * (own[0] * scales[0] + own[1] * scales[1])
        return total

    def change(self, arrived: Iterable[Footprint] = (), left: Iterable[Footprint] = ()) -> None:
        """Instances came and went."""
        cpu, link = self._smoothed
        ring_cpu, ring_link = self.ring.cpu, self.ring.link
        for some, operation in ((arrived, add), (left, sub)):
            for footprint in some:
                cpu = list(map(operation, cpu, footprint.smoothed[0]))
                link = list(map(operation, link, footprint.smoothed[1]))
                ring_cpu = tuple(map(operation, ring_cpu, footprint.ring.cpu))
                ring_link = tuple(map(operation, ring_link, footprint.ring.link))
        self._smoothed, self.ring = (cpu, link), Ring(ring_cpu, ring_link)
        self._weigh()

    @property
    def load(self) -> Load:
        """Greatest parts of its room that are predicted to be needed in any window; 1 is full."""
        return self.share(self.ring)

    def share(self, ring: Ring) -> Load:
        """Greatest parts of the board's room that `ring` needs in any window."""
        return Load(max(ring.cpu) / self.room.cpu, max(ring.link) / self.room.link)
