"""How long a heuristic may search: a number of evaluations, a time on a clock that the caller passes, or both."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

Draw = Callable[[], float]
"""A random number from 0 (inclusive) to 1 (exclusive)."""


class Budget:
    """Counts evaluations of placements; reads the clock at each 16th."""

    def __init__(
        self, evaluations: float = inf, seconds: float = inf, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._evaluations = evaluations
        self._clock = clock
        self._end = clock() + seconds
        self._next_look = 0
        self.spent = 0
        """Evaluations so far."""

    def spend(self, evaluations: int = 1) -> bool:
        """Count `evaluations`; False if the budget is used up."""
        self.spent += evaluations
        return not self.used_up()

    def used_up(self) -> bool:
        if self.spent >= self._evaluations:
            return True
        if self.spent >= self._next_look:
            self._next_look = self.spent + 16
            if self._clock() >= self._end:
                self._evaluations = self.spent
                return True
        return False

    def part(self, share: float) -> Budget:
        """A budget of its own with a `share` of what is left."""
        now = self._clock()
        return Budget((self._evaluations - self.spent) * share, (self._end - now) * share, self._clock)
