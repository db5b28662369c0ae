"""How much an instance takes from its queue in one turn (EdgeWise, section 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

TURN_S: Final = 0.01
"""A turn is to take no longer, by what rows have cost: on a slow board a turn of a whole flow would hold up others."""
SLOW_S: Final = 0.02
"""A turn that took so long is slow, and says at once how few rows the next one may take. Well above the interpreter's
switch interval (5 ms): who loses the lock in the middle of a turn is not slow, but left to the workers (see
`edgert.runtime.pool.thread_roles`) would lose it again and again."""
LEAST_ROWS, LEAST_ROWS_S = 10, 0.2
"""Rows that a turn may take in any case, if they take no longer than this many seconds. An operator may have a cost per
turn, whatever the number of rows (it asks a server, or commits), and fewer rows would mean more such costs."""
DEFAULT_ROWS: Final = 200
"""Rows per turn at most, as the setting `pool.consumption_rows` is at first."""
FIRST_ROWS: Final = 200
"""A new instance takes no more until it is known what they cost."""
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
    """Returns how many rows of that cost a turn takes at most, whatever the consumption says; one in any case."""
    cost_s = max(cost_s, 1e-9)
    return max(1, int(TURN_S / cost_s), min(LEAST_ROWS, int(LEAST_ROWS_S / cost_s)))


def after_turn(most: int, rows: int, took_s: float) -> int:
    """Returns how many rows a turn takes at most after one of so many `rows`, where `most` was allowed: fewer if it was
    long, up to twice as many if it was short. (One of less than half of `most` says nothing of more; batches may not
    fit.)"""
    limit = most_rows(took_s / max(rows, 1))
    if 2 * rows >= most and limit > most:
        return min(2 * most, limit)
    return min(most, limit) if took_s >= SLOW_S else most


CONSUMPTIONS: Mapping[str, Callable[[int], Consumption]] = {
    "at-most": at_most,
    "half": lambda rows: half,
    "all": lambda rows: everything,
}
"""Consumptions by name; each is made from the number of rows of `at-most`."""
