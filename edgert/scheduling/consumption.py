"""How much an instance takes from its queue in one turn (EdgeWise, section 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

TURN_S: Final = 0.01
"""A turn is to take no longer, by what rows have cost: on a slow board a turn of a whole flow would hold up others."""
LEAST_ROWS: Final = 10
"""So many may be taken in any case."""
Consumption = Callable[[int], int]
"""Rows waiting (at least 1) → rows to take (at least 1)."""


def at_most(rows: int) -> Consumption:
    """At most `rows` per turn (EdgeWise: 50). Small: fair and slow; great: the turns grow long."""
    return lambda waiting: rows if waiting > rows else waiting


def everything(waiting: int) -> int:
    """All that waits: the fewest turns, and the longest."""
    return waiting


def half(waiting: int) -> int:
    """Half of what waits: long queues get long turns, and yet come back to the policy."""
    return (waiting + 1) // 2


def most_rows(cost_s: float) -> int:
    """How many rows of that cost a turn takes at most, whatever the consumption says."""
    return max(LEAST_ROWS, int(TURN_S / max(cost_s, 1e-9)))


CONSUMPTIONS: Mapping[str, Callable[[int], Consumption]] = {
    "at-most": at_most,
    "half": lambda rows: half,
    "all": lambda rows: everything,
}
"""By name; each takes the rows that `at-most` is about."""
