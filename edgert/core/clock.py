"""Time as an argument: what a clock is, and one that tests turn by hand. The machine's is `core.system_clock`."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Two readings, never mixed: one to measure with, one to name a moment."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def wall(self) -> float:
        """Seconds since 1970-01-01 UTC; may jump when the machine's clock is set."""
        ...


class VirtualClock:
    """Stands still until it is told to move. Its wall clock may be set apart from its monotonic one."""

    def __init__(self, wall: float = 1_700_000_000.0, monotonic: float = 0.0) -> None:
        self._wall = wall
        self._monotonic = monotonic

    def monotonic(self) -> float:
        return self._monotonic

    def wall(self) -> float:
        return self._wall

    def advance(self, seconds: float) -> None:
        """Let `seconds` go by on both clocks. Raises `ValueError` if negative: time does not go back."""
        if seconds < 0:
            raise ValueError(f"expected seconds of at least 0, got {seconds}")
        self._monotonic += seconds
        self._wall += seconds

    def set_wall(self, wall: float) -> None:
        """Sets the wall clock as an administrator or NTP does; the monotonic one does not jump."""
        self._wall = wall
