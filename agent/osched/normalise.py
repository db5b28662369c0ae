"""Normalisers (Lachesis §5.3): real-valued priorities → the numbers that a mechanism of the kernel takes.

A normaliser maps a list to a list of the same length and order, keeps the order of priorities, and gives equal values
for equal priorities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

STEP: Final = 1.25
"""Linux gives a thread of nice n + 1 a weight smaller by this factor (sched(7); kernel/sched/core.c)."""
NICE_RANGE: Final = (-20, 19)
K = TypeVar("K")


def shifted(priorities: Sequence[float]) -> list[float]:
    """The priorities, all raised by the same amount if one is not positive, so that the least becomes 1."""
    least = min(priorities, default=1.0)
    return list(priorities) if least > 0.0 else [p - least + 1.0 for p in priorities]


def nice_values(priorities: Sequence[float], best: int = NICE_RANGE[0], worst: int = NICE_RANGE[1]) -> list[int]:
    """Nice values whose weights are to each other as the priorities: n = best + log(p_max / p) / log 1.25.

    The greatest priority gets `best`. If the least would come beyond `worst`, the values are pressed into the range by
    min-max. Raises `ValueError` unless -20 <= best <= worst <= 19.
    """
    if not NICE_RANGE[0] <= best <= worst <= NICE_RANGE[1]:
        raise ValueError(f"expected a range within {NICE_RANGE}, best first, got {best} to {worst}")
    if not priorities:
        return []
    positive = shifted(priorities)
    top = math.log(max(positive))
    steps = [(top - math.log(p)) / math.log(STEP) for p in positive]
    room = worst - best
    press = room / max(steps) if max(steps) > room else 1.0
    return [min(worst, best + round(s * press)) for s in steps]


def min_max(priorities: Sequence[float], low: float, high: float) -> list[float]:
    """Linear: the least priority becomes `low`, the greatest `high`; all `high` if they are equal."""
    if not priorities:
        return []
    least, span = min(priorities), max(priorities) - min(priorities)
    if span <= 0.0 or not math.isfinite(span):
        return [high] * len(priorities)
    return [low + min(1.0, (p - least) / span) * (high - low) for p in priorities]


def log_min_max(priorities: Sequence[float], low: float, high: float) -> list[float]:
    """Min-max of the logarithms, for priorities that differ by factors (highest rate)."""
    return min_max([math.log(p) for p in shifted(priorities)], low, high)


class PrioritySmoothing:
    """Exponential smoothing of priorities from period to period: `part` of a new value, the rest of the old one.

    0 < part <= 1; 1 passes every value on. A key without an old value is passed on; one that is gone is forgotten.
    """

    def __init__(self, part: float) -> None:
        if not 0.0 < part <= 1.0:
            raise ValueError(f"expected a part above 0 and up to 1, got {part}")
        self._part = part
        self._old: dict[Any, float] = {}

    def smooth(self, priorities: Mapping[K, float]) -> dict[K, float]:
        """The smoothed priorities."""
        part, old = self._part, self._old
        new = {key: old.get(key, value) + part * (value - old.get(key, value)) for key, value in priorities.items()}
        self._old = dict(new)
        return new
