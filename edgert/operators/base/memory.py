"""The memory for what operators keep by key: a budget for a process, shared among its flows, and by each flow among its
operators.

Each part may hold its even share of the whole at any time, and beyond it what the other parts leave free. Of 90 MB for
two flows with one operator each, an operator that holds 70 MB keeps them while the other holds up to 20 MB. If the
other grows to 30 MB, the first forgets 10 MB after its next batch; the other may always hold 45 MB. An operator without
input keeps what it has until its next batch.
"""

from __future__ import annotations

import math
from typing import Final

PROCESS_BYTES: Final = 64 << 20
"""Memory of a process without any keys, as measured."""
STATE_PART: Final = 2
"""Keys may take one part in so many of the rest: as much again goes to the rows of a window that ends, to checkpoints
and to a start, as measured (`tests/integration/test_memory_limit.py`)."""


class MemoryBudget:
    """A budget, or a part of one. Only the loop takes parts in and lets them go; operators ask on any thread, and see
    figures of others that are a moment old."""

    def __init__(self, limit_bytes: float = math.inf) -> None:
        self.limit_bytes = limit_bytes
        """Bytes that it never exceeds, whatever the others leave free."""
        self.own_bytes = 0
        """Bytes that an operator held after its last batch; parts not included."""
        self._within: MemoryBudget | None = None
        self._parts: tuple[MemoryBudget, ...] = ()

    def take_in(self, part: MemoryBudget) -> None:
        """Makes `part` share this budget."""
        if part._within is not self:
            part._within = self
            self._parts = (*self._parts, part)

    def let_go(self, part: MemoryBudget) -> None:
        """Gives back what `part` had of this budget."""
        if part._within is self:
            part._within = None
            self._parts = tuple(other for other in self._parts if other is not part)

    @property
    def held_bytes(self) -> int:
        """Bytes that it and its parts hold, about."""
        return self.own_bytes + sum(part.held_bytes for part in self._parts)

    def even_bytes(self) -> float:
        """Bytes that it may hold whatever the others hold."""
        if self._within is None:
            return self.limit_bytes
        return min(self.limit_bytes, self._within.even_bytes() // len(self._within._parts))

    def most_bytes(self) -> float:
        """Bytes that it may hold now."""
        whole = self._within
        if whole is None:
            return self.limit_bytes
        most, others = whole.most_bytes(), sum(part.held_bytes for part in whole._parts if part is not self)
        return min(self.limit_bytes, max(most // len(whole._parts), most - others))

    def room_for(self, held_bytes: int) -> float:
        """Takes note of what an operator holds. Returns bytes that it may hold: less than `held_bytes` where it has to
        forget some. What the others hold is added up only if it exceeds its even share."""
        self.own_bytes = held_bytes
        even = self.even_bytes()
        return even if held_bytes <= even else self.most_bytes()


def state_bytes(limit_bytes: float, processes: int) -> int:
    """Bytes for the keys of all flows together, where `processes` may take `limit_bytes` together."""
    rest = max(limit_bytes - processes * PROCESS_BYTES, limit_bytes / 8)
    return int(rest / STATE_PART)
