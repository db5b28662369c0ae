"""How much an instance takes from its queue in one turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Consumption = Callable[[int], int]
"""Rows waiting → rows to take."""


def at_most(rows: int) -> Consumption:
    """At most `rows` per turn (EdgeWise, section 4.2: 50). Small: fair and slow; great: the turns grow long."""
    return lambda waiting: min(waiting, rows)


CONSUMPTIONS: Mapping[str, Callable[[int], Consumption]] = {"at-most": at_most}
