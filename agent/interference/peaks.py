"""The greatest load that a board had in the last half hour: against moves to and fro.

A ring sees three minutes. Where loads rise and fall with a longer period, a board at the foot of its wave would take
instances that it has to give back at the top. So boards are compared by what they needed at most in a time that is
longer than such a period. Instances that come and go are added to it and taken off, so that it says what the board
would have needed with the instances that it has now.

Other programs count by the median of each five minutes: an upgrade of a minute or two says nothing of the next half
hour, and the load average shows it for longer than it takes. What they use now counts in full.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

BUCKET_S: Final = 300.0
BUCKETS: Final = 6


class Load(NamedTuple):
    """Parts of a board's room that are needed."""

    cpu: float = 0.0
    link: float = 0.0

    @property
    def most(self) -> float:
        """Returns the load of the scarcer resource."""
        return max(self)

    def plus(self, other: Load) -> Load:
        """Both together, on a board of the same room."""
        return Load(self.cpu + other.cpu, self.link + other.link)

    def minus(self, other: Load) -> Load:
        """Without `other`; never below nothing."""
        return Load(max(0.0, self.cpu - other.cpu), max(0.0, self.link - other.link))


@dataclass(slots=True)
class _Bucket:
    """Five minutes, each as parts of the board's room."""

    number: int
    own: Load
    """The greatest use but that of other programs."""
    others: list[float]
    """CPU of other programs, at each look; the median alone once the five minutes are over."""

    @property
    def load(self) -> Load:
        return self.own.plus(Load(cpu=median(self.others)))


class Peaks:
    """Peaks of buckets of five minutes; memory is that of six of them."""

    def __init__(self) -> None:
        self._buckets: deque[_Bucket] = deque(maxlen=BUCKETS)
        self._now = Load()

    def observe(self, load: Load, now: float, others: float = 0.0) -> None:
        """The load of now. `others`: CPU of other programs in it; `now`: seconds on a monotonic clock."""
        number, own = int(now // BUCKET_S), load.minus(Load(cpu=others))
        self._now = load
        if self._buckets and self._buckets[-1].number == number:
            bucket = self._buckets[-1]
            bucket.own = Load(max(bucket.own.cpu, own.cpu), max(bucket.own.link, own.link))
            bucket.others.append(others)
        else:
            if self._buckets:
                self._buckets[-1].others = [median(self._buckets[-1].others)]
            self._buckets.append(_Bucket(number, own, [others]))
        while self._buckets[0].number <= number - BUCKETS:
            self._buckets.popleft()

    def arrived(self, load: Load) -> None:
        """An instance came that needs so much at most."""
        self._now = self._now.plus(load)
        for bucket in self._buckets:
            bucket.own = bucket.own.plus(load)

    def left(self, load: Load) -> None:
        """An instance went."""
        self._now = self._now.minus(load)
        for bucket in self._buckets:
            bucket.own = bucket.own.minus(load)

    @property
    def load(self) -> Load:
        """The greatest of all; nothing before the first."""
        loads = [self._now, *(bucket.load for bucket in self._buckets)]
        return Load(max(one.cpu for one in loads), max(one.link for one in loads))
