"""How long rows take from their arrival to a sink: counts in buckets, cheap enough to be always on."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import mul
from typing import Final

PER_OCTAVE: Final = 4
BUCKETS: Final = 33 * PER_OCTAVE
"""From 1 µs to more than two hours."""
_ENDS: Final = [2 ** ((bucket + 1) / PER_OCTAVE) * 1e-6 for bucket in range(BUCKETS - 1)]
"""Upper bounds of all buckets but the last, seconds."""
_MIDDLES: Final[list[float]] = [2 ** ((bucket + 0.5) / PER_OCTAVE) * 1e-6 for bucket in range(BUCKETS)]
"""Seconds."""


class Latency:
    """Rows by the time they took."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: list[int] = [0] * BUCKETS

    def add(self, seconds: float, rows: int) -> None:
        """`rows` took so long."""
        self.counts[bisect_left(_ENDS, seconds)] += rows

    def mean_s(self) -> float:
        """The mean, to a twentieth: each row counts as the middle of its bucket. There are rows."""
        return mean_s(self.counts)


def mean_s(counts: Sequence[int]) -> float:
    """The mean of such counts, seconds. There are rows."""
    return float(sum(map(mul, counts, _MIDDLES)) / sum(counts))


def quantile_s(counts: Sequence[int], part: float) -> float | None:
    """The time within which `part` (0 to 1) of the rows came, to a tenth; None without rows."""
    total = sum(counts)
    if not total:
        return None
    wanted, seen = part * total, 0
    for bucket, count in enumerate(counts):
        seen += count
        if count and seen >= wanted:
            return _MIDDLES[bucket]
    raise AssertionError("unreachable: the last bucket completes the total")
