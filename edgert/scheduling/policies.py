"""Which instance runs next. A policy is told of changes and asked for a choice; it reads no clock and takes no lock.

Instances are small integers given by the caller. To add a policy, write a class here and its line in `POLICIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol


class Policy(Protocol):
    """What a pool asks of a policy. An instance is a candidate while it has rows and is free."""

    def add(self, instance: int) -> None:
        """A new instance, with an empty queue."""

    def remove(self, instance: int) -> None:
        """The instance is gone."""

    def rows_added(self, instance: int, rows: int) -> None:
        """`rows` (≥ 1; an empty batch counts as one) were put on its queue."""

    def rows_taken(self, instance: int, rows: int) -> None:
        """`rows` left its queue, taken or shed."""

    def busy(self, instance: int) -> None:
        """It runs, or is held back by a pause."""

    def free(self, instance: int) -> None:
        """It may run again."""

    def choose(self, now: float) -> int | None:
        """The instance to run at `now` (monotonic seconds); None when there is no candidate."""


class CongestionAware:
    """The longest queue first (EdgeWise, section 4.2); needs no profile of the operators.

    Unlike the published code it counts rows, breaks ties by who waited longest, and ages: an instance that has been a
    candidate for `starvation_s` goes first, so that a short queue cannot starve behind busy ones. At 0 that is first
    come, first served; at infinity the paper's policy.
    """

    def __init__(self, starvation_s: float = 0.05) -> None:
        self.starvation_s = starvation_s
        self._length: dict[int, int] = {}
        self._busy: set[int] = set()
        self._since: dict[int, float | None] = {}
        """Candidates in the order in which they became so, with the time at which a choice first saw them."""

    def add(self, instance: int) -> None:
        self._length[instance] = 0

    def remove(self, instance: int) -> None:
        del self._length[instance]
        self._busy.discard(instance)
        self._since.pop(instance, None)

    def rows_added(self, instance: int, rows: int) -> None:
        self._length[instance] += rows
        if instance not in self._busy and instance not in self._since:
            self._since[instance] = None

    def rows_taken(self, instance: int, rows: int) -> None:
        self._length[instance] -= rows
        if self._length[instance] <= 0:
            self._since.pop(instance, None)

    def busy(self, instance: int) -> None:
        self._busy.add(instance)
        self._since.pop(instance, None)

    def free(self, instance: int) -> None:
        self._busy.discard(instance)
        if self._length[instance] > 0 and instance not in self._since:
            self._since[instance] = None

    def choose(self, now: float) -> int | None:
        since = self._since
        if not since:
            return None
        oldest = next(iter(since))
        waited = since[oldest]
        if waited is None:
            since[oldest] = now
        elif now - waited >= self.starvation_s:
            return oldest
        return max(since, key=self._length.__getitem__)


POLICIES: Mapping[str, Callable[[], Policy]] = {"congestion-aware": CongestionAware}
