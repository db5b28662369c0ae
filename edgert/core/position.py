"""How far a flow has come in its input: an arrival index, and the holes below it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """Everything with an arrival index up to `index` was taken, except `missing`.

    Holes come from a restart only: messages that the id table knew and the flow had not committed, which the broker
    may deliver again in any order.
    """

    index: int = 0
    missing: frozenset[int] = frozenset()

    def covers(self, index: int) -> bool:
        return index <= self.index and index not in self.missing
