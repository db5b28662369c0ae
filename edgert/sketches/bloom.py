"""Bloom filters: whether a value is in a set, with errors on one side only (Bloom 1970, CACM 13(7)).

For n values and a rate p of false positives: m = -n ln p / (ln 2)² bits and k = (m / n) ln 2 hashes, at which half of
the bits are set. The k bits come from one hash of 64 bits, which a linear congruential generator (Knuth's MMIX) takes
from bit to bit. (h1 + i·h2 mod m, as often used, has only m² ways: too few for small filters and small rates.)
"""

from __future__ import annotations

import math
from typing import Final

MOST_BITS: Final = 2**32
"""A bit is chosen by 32 bits of the hash."""
_FACTOR: Final = 6364136223846793005
_TERM: Final = 1442695040888963407
_MASK: Final = 2**64 - 1


class Bloom:
    """A filter for `expected` values: what was added is in it; of what was not, the part `rate` seems to be."""

    def __init__(self, expected: int, rate: float) -> None:
        if expected < 1 or not 0 < rate < 1:
            raise ValueError(f"expected at least 1 value and a rate between 0 and 1, got {expected} and {rate}")
        ideal = -expected * math.log(rate) / math.log(2) ** 2
        self.bits = 8 * math.ceil(ideal / 8)
        if self.bits > MOST_BITS:
            raise ValueError(f"expected a filter of at most {MOST_BITS} bits, got {self.bits}")
        self.hashes = max(1, round(self.bits / expected * math.log(2)))
        self.array = bytearray(self.bits // 8)

    def __contains__(self, hashed: int) -> bool:
        """True if the value with this hash (64 bits) was probably added; if not, it certainly was not."""
        array, bits = self.array, self.bits
        for _ in range(self.hashes):
            bit = (hashed >> 32) * bits >> 32
            if not array[bit >> 3] & (1 << (bit & 7)):
                return False
            hashed = hashed * _FACTOR + _TERM & _MASK
        return True

    def add(self, hashed: int) -> None:
        """Adds the value with this hash (64 bits)."""
        array, bits = self.array, self.bits
        for _ in range(self.hashes):
            bit = (hashed >> 32) * bits >> 32
            array[bit >> 3] |= 1 << (bit & 7)
            hashed = hashed * _FACTOR + _TERM & _MASK


class DoubleFilter:
    """Which values came among the newest, in two filters by turns (Chang, Feng, Li 2004, "double buffering").

    New values go into the current one. When it holds `expected`, it becomes the previous one, and that one's values
    are forgotten. So a value that came within the last `expected` different ones is always known; of new ones at
    most the part `rate` seems to be.
    """

    def __init__(self, expected: int, rate: float) -> None:
        self.expected = expected
        # asked of two filters: (1 - p)² = 1 - rate
        self._rate = -math.expm1(0.5 * math.log1p(-rate))
        self.current, self.previous = Bloom(expected, self._rate), Bloom(expected, self._rate)
        self.count = self.previous_count = 0
        self.forgotten = 0
        """Values that left with a filter, at most: some of them may be in the newer one, too."""

    def insert(self, hashed: int) -> None:
        """Adds to the current filter what is not in it."""
        if self.count >= self.expected:
            self.forgotten += self.previous_count
            self.previous, self.previous_count = self.current, self.count
            self.current, self.count = Bloom(self.expected, self._rate), 0
        self.current.add(hashed)
        self.count += 1
