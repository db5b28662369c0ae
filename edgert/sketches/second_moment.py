"""The second frequency moment F2 = Σ f(v)² of a stream, f(v) being how often v came (Alon, Matias, Szegedy 1996).

Tug of war: every value pulls at a counter in a direction of its own, +1 or -1 at random; the square of where the
counter stands is an unbiased estimate of F2 with a variance of at most 2 F2². The paper takes the mean of w such
counters, and the median of several means. So that a value costs one counter instead of w, here it pulls at one of w
that is chosen by its hash, and the squares are summed: the same mean and a variance of at most 2 F2² / w (Charikar,
Chen, Farach-Colton 2002; Thorup and Zhang 2004).

Error of one row of w counters: standard error √(2 / w); beyond √(8 / w) with a probability of at most 1/4 (Chebyshev).
The median of 5 rows is beyond that with one of at most 0.104. The proofs ask for 4-wise independent directions; the
bits of one xxh3 hash are taken for them.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Sequence
from functools import cache
from typing import Final

DEPTH: Final = 5
"""Rows, each with 12 bits of the hash: 1 for the direction, 11 for the counter."""
LEAST_WIDTH: Final = 8
MOST_WIDTH: Final = 2048
MOST_COUNT: Final = 2**53
_TYPES: Final = {"b": 2**7 - 1, "h": 2**15 - 1, "i": 2**31 - 1, "q": 2**63 - 1}
"""Codes of `array`, of 1, 2, 4 and 8 bytes, and the most that each holds."""
NewCounters = tuple[list[tuple[int, int]], list[int]]
"""Counters by index as they will be, and the sums of their squares."""


class SecondMoment:
    """The sums of squares are kept while adding, so an estimate costs a median of five numbers."""

    __slots__ = ("_squares", "_starts", "counters", "width")

    def __init__(self, width: int) -> None:
        if not LEAST_WIDTH <= width <= MOST_WIDTH or width & (width - 1):
            raise ValueError(f"expected a power of two from {LEAST_WIDTH} to {MOST_WIDTH} as width, got {width}")
        self.width = width
        self.counters = array("q", [0]) * (DEPTH * width)
        self._squares = [0] * DEPTH
        self._starts = _starts(width)

    def add(self, hashed: int) -> bool:
        """Adds the value with this hash (64 bits). True: it always changes something."""
        counters, squares, last = self.counters, self._squares, self.width - 1
        for row, start in self._starts:
            at = start + (hashed >> 1 & last)
            count = counters[at]
            if hashed & 1:
                counters[at] = count + 1
                squares[row] += count + count + 1
            else:
                counters[at] = count - 1
                squares[row] += 1 - count - count
            hashed >>= 12
        return True

    def after(self, hashed: int) -> tuple[float, NewCounters]:
        """The `estimate` with this value added, and the argument of `take` for that."""
        counters, squares, last = self.counters, self._squares[:], self.width - 1
        moved = []
        for row, start in self._starts:
            at = start + (hashed >> 1 & last)
            count = counters[at]
            to = count + 1 if hashed & 1 else count - 1
            squares[row] += to * to - count * count
            moved.append((at, to))
            hashed >>= 12
        return float(sorted(squares)[DEPTH // 2]), (moved, squares)

    def take(self, change: NewCounters) -> None:
        """Adds the value for which `after` gave it."""
        moved, self._squares = change
        for at, count in moved:
            self.counters[at] = count

    @property
    def estimate(self) -> float:
        """F2, estimated."""
        return float(sorted(self._squares)[DEPTH // 2])

    def _take(self, counters: Sequence[int]) -> None:
        self.counters = array("q", counters)
        rows = [self.counters[at : at + self.width] for at in range(0, DEPTH * self.width, self.width)]
        self._squares = [sum([count * count for count in row]) for row in rows]

    # -- checkpoints

    def changes(self) -> bytes:
        """All counters, since every value changes some of them: the code of the narrowest type of `array` that holds
        them, then they, little-endian. (As integers they would take ten times the memory, at a start all at once.)"""
        counters = self.counters
        least, greatest = min(counters), max(counters)
        code = next(code for code, most in _TYPES.items() if -most <= least and greatest <= most)
        narrow = array(code, counters)
        if sys.byteorder == "big":
            narrow.byteswap()
        return code.encode() + narrow.tobytes()

    state = changes

    def apply(self, changes: bytes | Sequence[int]) -> None:
        """Takes over what `changes` gave, now or when it gave a list. Raises ValueError for that of another width."""
        if isinstance(changes, bytes):
            changes = _widened(changes)
        if len(changes) != DEPTH * self.width:
            raise ValueError(f"expected {DEPTH * self.width} counters, got {len(changes)}")
        if any(type(count) is not int or abs(count) > MOST_COUNT for count in changes):
            raise ValueError(f"expected integers of at most {MOST_COUNT} as counters, got others")
        self._take(changes)


def _widened(changes: bytes) -> array[int]:
    code = changes[:1].decode("latin-1")
    if code not in _TYPES:
        raise ValueError(f"expected one of {', '.join(_TYPES)} as type of counters, got {code!r}")
    counters = array(code)
    counters.frombytes(changes[1:])
    if sys.byteorder == "big":
        counters.byteswap()
    return counters


def memory_of(width: int) -> int:
    """Bytes of a sketch's counters and of the sums of their squares."""
    return DEPTH * (8 * width + 64)


@cache
def _starts(width: int) -> Sequence[tuple[int, int]]:
    """Per row its number and where its counters begin."""
    return tuple((row, row * width) for row in range(DEPTH))


def width_for(standard_error: float) -> int:
    """The least width whose standard error (√(2 / w)) is at most this."""
    needed = math.ceil(math.log2(2 / standard_error**2) - 1e-9)
    return int(min(MOST_WIDTH, max(LEAST_WIDTH, 2**needed)))
