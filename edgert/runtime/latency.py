"""How long rows take from their arrival to a sink: counts in buckets, cheap enough to be always on."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Final

PER_OCTAVE: Final = 4
BUCKETS: Final = 33 * PER_OCTAVE
"""From 1 µs to more than two hours."""


class Latency:
    """Rows by the time they took."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: list[int] = [0] * BUCKETS

    def add(self, seconds: float, rows: int) -> None:
        """`rows` took so long."""
        micros = seconds * 1e6
        bucket = int(log2(micros) * PER_OCTAVE) if micros > 1.0 else 0
        self.counts[min(bucket, BUCKETS - 1)] += rows


def quantile_s(counts: Sequence[int], part: float) -> float | None:
    """The time within which `part` (0 to 1) of the rows came, to a tenth; None without rows."""
    total = sum(counts)
    if not total:
        return None
    wanted, seen = part * total, 0
    for bucket, count in enumerate(counts):
        seen += count
        if count and seen >= wanted:
            return float(2 ** ((bucket + 0.5) / PER_OCTAVE) * 1e-6)
    raise AssertionError("unreachable: the last bucket completes the total")
