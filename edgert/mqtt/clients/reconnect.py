"""How long to wait before the next attempt to connect; for the client of the sensors' broker and that of the control
plane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

FOUND_EACH: Final = 8
"""After so many reasons that were found, and none of the connections stable, the series begins one attempt later."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential with equal jitter: between half and all of `first_s` × 2^attempt, at most `max_s`.

    Half stays fixed so that no client hammers the broker; half is drawn so that a fleet does not come back in one
    instant.
    """

    first_s: float = 0.5
    max_s: float = 30.0
    stable_s: float = 5.0
    """A connection that lived this long starts the series anew; one that is closed at once (session taken over by a
    twin, a broker that falls over) does not."""

    def __post_init__(self) -> None:
        if not 0 < self.first_s <= self.max_s:
            raise ValueError(f"expected 0 < first_s <= max_s, got {self.first_s} and {self.max_s}")

    def delay(self, attempt: int, draw: Callable[[], float]) -> float:
        """Seconds before attempt number `attempt` (0, 1, ...); `draw` gives 0 <= x < 1."""
        ceiling = min(self.max_s, self.first_s * 2.0 ** min(attempt, 40))
        return ceiling * (0.5 + 0.5 * draw())


class ShortConnections:
    """Connections in a row that ended soon after they were made, as those of two clients with one id do."""

    SOON_S: Final = 60.0
    MANY: Final = 3

    def __init__(self) -> None:
        self._in_a_row = 0
        self._made_s: float | None = None

    def made(self, now: float) -> None:
        """Notes the beginning of a connection."""
        self._made_s = now

    def ended(self, now: float) -> None:
        """Counts the connection, if there was one."""
        if self._made_s is not None:
            self._in_a_row = self._in_a_row + 1 if now - self._made_s < self.SOON_S else 0
        self._made_s = None

    def lasted(self, now: float) -> bool:
        """True once a connection has lasted that came after short ones: these are forgotten."""
        lasts = self._made_s is not None and now - self._made_s >= self.SOON_S
        if not (lasts and self._in_a_row):
            return False
        self._in_a_row = 0
        return True

    @property
    def many(self) -> bool:
        return self._in_a_row >= self.MANY


class Attempts:
    """The attempts to connect since a connection was stable."""

    def __init__(self, backoff: Backoff, draw: Callable[[], float]) -> None:
        """`draw` gives 0 <= x < 1."""
        self._backoff, self._draw = backoff, draw
        self._count = self._found = 0
        self.short = ShortConnections()

    def begin_anew(self) -> None:
        """Forgets the attempts so far: the reason why they failed is found. Fewer of them the more were found since a
        connection was stable, or the wait would never grow where ever new messages make the broker hang up."""
        self._found += 1
        self._count = min(self._count, self._found // FOUND_EACH)

    def ended(self, stood_s: float = 0.0) -> float:
        """A connection ended that had stood for so long (0: there was none). Returns seconds to wait."""
        if stood_s >= self._backoff.stable_s:
            self._count = self._found = 0
        self._count += 1
        return self._backoff.delay(self._count - 1, self._draw)
