"""How often something may be done in an hour, by name: a token bucket for each. Pure."""

from __future__ import annotations

from typing import Final

from edgert.central.landing.lru import LruCache

HOUR_S: Final = 3_600.0
_MOST_NAMES: Final = 20_000


class HourlyBudget:
    """At most `most` at once, and as many in each hour, evenly. A name that was forgotten has its whole budget."""

    def __init__(self, most: int, most_names: int = _MOST_NAMES) -> None:
        self._most = most
        self._left: LruCache[str, tuple[float, float]] = LruCache(most_names)
        """Name -> (what is left, as of when)."""

    def admits(self, name: str, now: float) -> bool:
        """True if it may be done once more; if so, that is one less. `now` in seconds of a clock that never goes
        back."""
        left, since = self._left.get(name) or (float(self._most), now)
        left = min(self._most, left + (now - since) * self._most / HOUR_S)
        self._left.set(name, (left - 1 if left >= 1 else left, now))
        return left >= 1
