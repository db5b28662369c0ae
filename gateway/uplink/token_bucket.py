"""How many bytes may leave now, so that in the long run there are no more than a rate allows. Pure: time is given."""

from __future__ import annotations

import math

BURST_S = 1.0
"""After a silence, as much as this long allows may leave at once."""


class TokenBucket:
    """`rate` in bytes/s; 0: no limit.

    Something may leave while the bucket is not empty, and may take more than is in it: what is owed then has to flow
    in first. So a batch larger than the bucket leaves too, and no batch is cut. Within t seconds, at most
    rate · (t + `BURST_S`) bytes and one batch leave.
    """

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._level = rate * BURST_S
        self._at = now

    def wait(self, now: float) -> float:
        """Seconds until something may leave; 0: now."""
        self._fill(now)
        if not self._rate or self._level > 0:
            return 0.0
        # one byte more than is owed; never 0, which would say that it is there already
        return max(math.ulp(now), (1 - self._level) / self._rate)

    def spend(self, size: int, now: float) -> None:
        """`size` bytes left."""
        if self._rate:
            self._fill(now)
            self._level -= size

    def _fill(self, now: float) -> None:
        self._level = min(self._rate * BURST_S, self._level + (now - self._at) * self._rate)
        self._at = now
