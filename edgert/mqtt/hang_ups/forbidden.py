"""Topics or filters at which a broker hung up, and for how long nothing is sent with them. Pure.

A circuit breaker per name: closed, open for a time that doubles each time, then on probation.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

FIRST_S: Final = 60.0
"""The first time for which a name is refused: at most one hang-up a minute by it."""
MOST_S: Final = 3_600.0
"""The longest: what a broker's administrator mends is tried again within an hour."""
MOST_NAMES: Final = 1_000
"""Most names that are remembered; the one whose time ends first is forgotten for a new one."""
Name = TypeVar("Name", bound=Hashable)


@dataclass(slots=True)
class _Refused:
    blamed: int = 0
    period_s: float = 0.0
    """The last time for which the name was refused; 0: it never was."""
    until: float = 0.0
    """The end of it, monotonic."""


class Forbidden(Generic[Name]):
    """Times are monotonic seconds."""

    def __init__(self, blames: int, most_s: float = MOST_S) -> None:
        """`blames`: a name is refused from so many on; `most_s`: no longer than that at a time."""
        self._blames, self._most_s = blames, most_s
        self._entries: dict[Name, _Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def blamed(self, name: Name, now: float) -> float:
        """The broker hung up at `name`. Returns seconds for which it is refused from now on, 0: not yet."""
        entry = self._entries.pop(name, None) or self._new()
        self._entries[name] = entry
        entry.blamed += 1
        if entry.blamed < self._blames:
            return 0.0
        if now < entry.until:  # sent before it was refused
            return entry.until - now
        entry.period_s = min(2 * entry.period_s or FIRST_S, self._most_s)
        entry.until = now + entry.period_s
        return entry.period_s

    def _new(self) -> _Refused:
        if len(self._entries) >= MOST_NAMES:
            del self._entries[min(self._entries, key=lambda name: self._entries[name].until)]
        return _Refused()

    def admits(self, name: Name, now: float) -> bool:
        """True if something may be sent with `name`."""
        entry = self._entries.get(name)
        return entry is None or now >= entry.until

    def on_probation(self, name: Name, now: float) -> bool:
        """True if `name` was refused, and the broker has not answered to it since: it is blamed at the first end of a
        connection then."""
        entry = self._entries.get(name)
        return entry is not None and entry.period_s > 0 and now >= entry.until

    def taken(self, name: Name) -> None:
        """The broker has answered: it does not hang up at `name` any more."""
        self._entries.pop(name, None)

    def refused(self, now: float) -> dict[Name, float]:
        """Names that are refused now, with the seconds until they are tried again."""
        return {name: entry.until - now for name, entry in self._entries.items() if now < entry.until}

    def keep(self, names: Collection[Name]) -> None:
        """Forgets all other names."""
        self._entries = {name: entry for name, entry in self._entries.items() if name in names}
