"""The local health multiplier (Lifeguard §IV-A): an agent that is starved itself suspects others more slowly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class LocalHealth:
    """A score from 0 (healthy) to `limit`. Probe interval and time-out are multiplied by score + 1."""

    limit: int
    score: int = 0

    @property
    def multiplier(self) -> int:
        return self.score + 1

    def adjust(self, change: int) -> None:
        """Add `change`, within the bounds: positive for signs of trouble of our own, negative for a good probe."""
        self.score = min(max(self.score + change, 0), self.limit)
