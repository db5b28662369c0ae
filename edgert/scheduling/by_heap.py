"""Policies that keep an order among the candidates in a heap."""

from __future__ import annotations

import math

from edgert.scheduling.candidates import Candidates
from edgert.scheduling.lazy_heap import LazyHeap


class ByHeap(LazyHeap, Candidates):
    """A choice costs the logarithm of the candidates, not a look at each. Ties go to who waited longest.

    A policy overrides `_entered`, and calls `_put` there and whenever the order of a candidate changes.
    """

    def __init__(self, starvation_s: float = math.inf) -> None:
        Candidates.__init__(self, starvation_s)
        LazyHeap.__init__(self)
        self._turns = 0
        """Numbers candidates in the order in which they became so."""

    def _left(self, instance: int) -> None:
        del self._entry[instance]
