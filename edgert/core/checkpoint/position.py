"""How far a flow has come in each of its inputs: by MQTT an arrival index, and the holes below it; by a link from
another gateway an epoch and a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Position:
    """How far an input was taken: all with an arrival index up to `index`, except `missing`.

    Holes come from a restart only: messages that the id table knew and the flow had not committed, which the broker
    may deliver again in any order.
    """

    index: int = 0
    missing: frozenset[int] = frozenset()
    links: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Gateway → (epoch, sequence) of the last batch that was taken from it."""

    def covers(self, index: int) -> bool:
        return index <= self.index and index not in self.missing
