"""Policies that use only the set of candidates: in turn, and at random."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from edgert.scheduling.candidates import Candidates
from edgert.scheduling.lazy_heap import May

_DRAWS: Final = 8
"""Random draws among all candidates before each is examined. Each draw gives every candidate that may run the same
probability."""


class RoundRobin(Candidates):
    """The oldest candidate. An instance that ran and still has rows stands at the end again."""

    def _best(self, may: May | None) -> int | None:
        return next(iter(self.waiting) if may is None else filter(may, self.waiting), None)


class Random(Candidates):
    """Any candidate, each with the same probability (EdgeWise, section 6: WP+Random)."""

    def __init__(self, draw: Callable[[], float], starvation_s: float = math.inf) -> None:
        """`draw` gives numbers from 0 to below 1."""
        super().__init__(starvation_s)
        self._draw = draw
        self._all: list[int] = []
        self._index: dict[int, int] = {}

    def _entered(self, instance: int) -> None:
        self._index[instance] = len(self._all)
        self._all.append(instance)

    def _left(self, instance: int) -> None:
        index, last = self._index.pop(instance), self._all.pop()
        if last != instance:
            self._all[index] = last
            self._index[last] = index

    def _best(self, may: May | None) -> int | None:
        every = self._all
        if may is None:
            return every[int(self._draw() * len(every))]
        for _ in range(_DRAWS):
            drawn = every[int(self._draw() * len(every))]
            if may(drawn):
                return drawn
        among = list(filter(may, every))
        return among[int(self._draw() * len(among))] if among else None
