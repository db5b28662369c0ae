"""The greatest load that a board had in the last half hour: against moves to and fro.

A ring sees three minutes. Where loads rise and fall with a longer period, a board at the foot of its wave would take
instances that it has to give back at the top. So boards are compared by what they needed at most in a time that is
longer than such a period. Instances that come and go are added to it and taken off, so that it says what the board
would have needed with the instances that it has now.
"""

from __future__ import annotations

from collections import deque
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


class Peaks:
    """Peaks of buckets of five minutes; memory is that of six of them."""

    def __init__(self) -> None:
        self._buckets: deque[tuple[int, Load]] = deque(maxlen=BUCKETS)

    def observe(self, load: Load, now: float) -> None:
        """The load of now. `now`: seconds on a monotonic clock."""
        number = int(now // BUCKET_S)
        if self._buckets and self._buckets[-1][0] == number:
            before = self._buckets.pop()[1]
            load = Load(max(before.cpu, load.cpu), max(before.link, load.link))
        self._buckets.append((number, load))
        while self._buckets[0][0] <= number - BUCKETS:
            self._buckets.popleft()

    def arrived(self, load: Load) -> None:
        """An instance came that needs so much at most."""
        self._buckets = deque(((number, one.plus(load)) for number, one in self._buckets), BUCKETS)

    def left(self, load: Load) -> None:
        """An instance went."""
        self._buckets = deque(((number, one.minus(load)) for number, one in self._buckets), BUCKETS)

    @property
    def load(self) -> Load:
        """The greatest of all; nothing before the first."""
        loads = [one for _, one in self._buckets]
        return Load(max((one.cpu for one in loads), default=0.0), max((one.link for one in loads), default=0.0))
