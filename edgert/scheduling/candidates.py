"""Candidates to run: the bookkeeping that all policies share. A policy adds an order among the candidates."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from edgert.scheduling.lazy_heap import May
from edgert.scheduling.profile import Profile
from edgert.scheduling.shares import Shares, checked_weight

_NOT_FOUND_YET = math.inf


class Candidates(ABC):
    """Instances that have rows and are free, in the order in which they became so.

    A policy overrides `_best`, and `_entered`, `_left` and `_grew` as needed. A candidate that has waited for
    `starvation_s` goes first, the longest wait first, whatever the policy says: 0 gives first come, first served;
    infinity gives the published policies. The wait counts from the first choice that finds the candidate, since only a
    request for a choice tells the policy the time. If the turns of all instances together take longer than that, the
    policy decides nothing.

    Once an instance has a weight other than 1, `Shares` bounds the policy instead: time is divided by weight among the
    instances that want more than there is, and ageing scales with the weight. While all have weight 1 nothing is
    counted.
    """

    def __init__(self, starvation_s: float = math.inf) -> None:
        self.starvation_s = starvation_s
        self._length: dict[int, int] = {}
        self._busy: set[int] = set()
        self.waiting: OrderedDict[int, float] = OrderedDict()
        """Candidates in the order in which they became so, with the time of the first choice that found them. (A plain
        dictionary takes ever longer to find its first key while keys are taken from its front.)"""
        self._shares: Shares | None = None
        """None while all weights are 1."""

    # -- what the pool tells

    def add(self, instance: int) -> None:
        """A new instance, with an empty queue."""
        self._length[instance] = 0
        if self._shares is not None:
            self._shares.add(instance)

    def remove(self, instance: int) -> None:
        """The instance is gone."""
        self._leave(instance)
        del self._length[instance]
        self._busy.discard(instance)
        if self._shares is not None:
            self._shares.remove(instance)
            self._even_out(self._shares)

    def connect(self, downstream: Mapping[int, Sequence[int]]) -> None:
        """The graph: per instance those that it feeds. Told anew when instances come or go."""

    def profile(self, profiles: Mapping[int, Profile]) -> None:
        """Takes cost and selectivity of instances; called from time to time."""

    def weigh(self, instance: int, weight: float) -> None:
        """Sets the weight of an instance: its share of the workers' time, in relation to the weights of others (1 at
        first). Once an instance has another weight, the caller must report how long turns take, by `ran`. Raises
        ValueError for a weight that is not valid."""
        weight = checked_weight(weight)
        if self._shares is None:
            if weight == 1.0:
                return
            self._shares = Shares(self._length, self.waiting, self.starvation_s)
        self._shares.weigh(instance, weight)
        self._even_out(self._shares)

    def _even_out(self, shares: Shares) -> None:
        if shares.even():
            self._shares = None

    @property
    def weighed(self) -> bool:
        """True if some instance has a weight other than 1: then `ran` must be called."""
        return self._shares is not None

    def ran(self, instance: int, took_s: float) -> None:
        """Turns of an instance that have ended took so many seconds; told before `free`."""
        if self._shares is not None:
            self._shares.ran(instance, took_s)

    def rows_added(self, instance: int, rows: int) -> None:
        """`rows` (≥ 1; an empty batch counts as one) were put on its queue."""
        self._length[instance] += rows
        if instance in self.waiting:
            self._grew(instance)
        elif instance not in self._busy:
            self._enter(instance)

    def rows_taken(self, instance: int, rows: int) -> None:
        """`rows` left its queue, taken or shed."""
        length = self._length[instance] = self._length[instance] - rows
        if instance in self.waiting:
            if length <= 0:
                self._leave(instance)
            else:
                self._grew(instance)

    def busy(self, instance: int) -> None:
        """Notes that the instance runs, or is held back by a pause."""
        self._busy.add(instance)
        self._leave(instance)

    def free(self, instance: int) -> None:
        """Notes that the instance may run again."""
        self._busy.discard(instance)
        if self._length[instance] > 0 and instance not in self.waiting:
            self._enter(instance)

    # -- the choice

    def choose(self, now: float, may: May | None = None) -> int | None:
        """The instance to run at `now` (monotonic seconds), of those for which `may` holds (all, if it is None); the
        others stay candidates. None when there is none."""
        since = self.waiting
        if not since:
            return None
        if self._shares is not None:
            return self._shares.choose(self._best(may), may)
        if self.starvation_s < math.inf:
            for instance in reversed(since):  # candidates since the last choice stand last: each is met here once
                if since[instance] != _NOT_FOUND_YET:
                    break
                since[instance] = now
            latest = now - self.starvation_s
            for oldest in since:
                if since[oldest] > latest:
                    break
                if may is None or may(oldest):
                    return oldest
        return self._best(may)

    def _enter(self, instance: int) -> None:
        self.waiting[instance] = _NOT_FOUND_YET
        self._entered(instance)
        if self._shares is not None:
            self._shares.entered(instance)

    def _leave(self, instance: int) -> None:
        if instance in self.waiting:
            del self.waiting[instance]
            self._left(instance)
            if self._shares is not None:
                self._shares.left(instance)

    # -- for a policy to say

    @abstractmethod
    def _best(self, may: May | None) -> int | None:
        """The candidate that goes first, of those that `may`; there is a candidate."""

    def _entered(self, instance: int) -> None:
        """Called when the instance has become a candidate."""

    def _left(self, instance: int) -> None:
        """Called when the instance is no longer a candidate."""

    def _grew(self, instance: int) -> None:
        """The queue of a candidate has another length, and is not empty."""
