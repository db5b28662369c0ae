"""The greatest rate that something bears: a search by steps, with two tries for each rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

STEP, FINE_STEP = 1.4, 1.09
LEAST_RATE: Final = 100.0
TRIES: Final = 2
"""A neighbour on the machine can only disturb: what was borne once is borne."""


def greatest_rate(bears: Callable[[float], bool], first: float, *, quick: bool) -> tuple[float, bool]:
    """The greatest rate that is borne, and whether there is one: from the first rate down by half until one is borne,
    then up by steps, and by fine steps from the last good one. `quick`: by steps of the first kind alone."""

    def borne(rate: float) -> bool:
        return any(bears(rate) for _ in range(TRIES))

    best = first
    while not borne(best):
        if best <= LEAST_RATE:
            return best, False
        best /= 2
    for step in (STEP,) if quick else (STEP, FINE_STEP):
        while borne(best * step):
            best *= step
    return best, True
