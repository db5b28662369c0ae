"""Weights: how the time of the workers is divided among instances that all want more of it than there is.

Start-time fair queueing with deadlines (Goyal, Vin, Cheng 1996; Stoica, Abdel-Wahab 1995), bounded by a policy instead
of ordered by one. Each instance has a *used* time: the seconds of its turns divided by its weight. Of two that always
have rows, the used times stay together, so their shares of the time are as their weights. Time is counted and not
turns: a turn may cost a hundred times another.

A policy still orders the candidates, within a lead: its choice stands while the chosen one has used no more than some
other candidate's used time and `lead_s` divided by that one's weight. So an instance of weight 4 goes first after a
quarter of the wait of one of weight 1. This is the ageing of a weighed pool: it bounds how long anybody waits, whatever
the policy prefers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from edgert.scheduling.lazy_heap import LazyHeap, May

LEAST, MOST = 1e-3, 1e3
"""Weights may differ by a million. (Those of Linux, nice -20 to 19, differ by 6,000.)"""
LEAD_S: Final = 0.05
"""Lead of a policy without an ageing of its own, seconds."""
CREDIT: Final = 2.0
"""Leads by which an instance that had nothing to do may be behind when it comes back: it is served soon, but what it
did not use while it was idle is not made up for."""


def checked_weight(weight: object) -> float:
    """Raises ValueError for anything but a number from `LEAST` to `MOST`."""
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not LEAST <= weight <= MOST:
        raise ValueError(f"expected a weight from {LEAST:g} to {MOST:g}, got {weight!r}")
    return float(weight)


class Shares(LazyHeap):
    """The used time of every instance of a policy, and its candidates in the order of their deadlines."""

    def __init__(self, instances: Iterable[int], waiting: Iterable[int], lead_s: float) -> None:
        """`waiting`: those of the `instances` that are candidates, who waits longest first."""
        super().__init__()
        self._lead_s = lead_s if math.isfinite(lead_s) else LEAD_S
        self._now = 0.0
        """Used time of the candidate with the earliest deadline; it never goes back. New instances begin there."""
        self._turns = 0
        self.weights: dict[int, float] = dict.fromkeys(instances, 1.0)
        self._used: dict[int, float] = dict.fromkeys(self.weights, 0.0)
        for instance in waiting:
            self.entered(instance)

    def add(self, instance: int) -> None:
        """A new instance, with weight 1."""
        self.weights[instance], self._used[instance] = 1.0, self._now

    def remove(self, instance: int) -> None:
        """The instance is gone; it is no candidate."""
        del self.weights[instance], self._used[instance]

    def weigh(self, instance: int, weight: float) -> None:
        """Sets the weight from now on. The seconds by which the instance is ahead of the others, or behind them, stay
        the same: with the quotient of before, an instance of weight 0.001 that gets weight 1 would wait for a thousand
        times as long as its last turns took."""
        self._used[instance] = self._now + (self._used[instance] - self._now) * self.weights[instance] / weight
        self.weights[instance] = weight
        if instance in self._entry:
            self._put_in(instance)

    def even(self) -> bool:
        """True if all weights are 1."""
        return all(weight == 1.0 for weight in self.weights.values())

    def ran(self, instance: int, took_s: float) -> None:
        """Turns of an instance that have ended took so long."""
        if instance in self._used:
            self._used[instance] += took_s / self.weights[instance]
            if instance in self._entry:
                self._put_in(instance)

    def entered(self, instance: int) -> None:
        """Notes that the instance has become a candidate."""
        least = self._now - CREDIT * self._lead_s / self.weights[instance]
        if self._used[instance] < least:
            self._used[instance] = least
        self._put_in(instance)

    def left(self, instance: int) -> None:
        """Notes that the instance is no longer a candidate."""
        del self._entry[instance]

    def _put_in(self, instance: int) -> None:
        self._turns += 1
        self._put((self._used[instance] + self._lead_s / self.weights[instance], self._turns, instance))

    def choose(self, preferred: int | None, may: May | None) -> int | None:
        """The candidate that a policy has `preferred` among those that `may`, if it is not too far ahead; else the one
        with the earliest deadline."""
        if preferred is None:
            return None
        first = self._best(may)
        if first is None:
            return preferred
        used = self._used
        if used[first] > self._now:
            self._now = used[first]
        return first if used[preferred] > used[first] + self._lead_s / self.weights[first] else preferred
