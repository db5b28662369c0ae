"""Marks of event time that a wrong clock has left behind.

A watermark never goes back while the clock is right. A clock that was ahead, be it for two seconds, moves it to where
right rows are late for years, and a checkpoint keeps it there. No right mark is beyond the clock by more than the
source's tolerance; so one that is, is a wrong clock's, and is taken back.
"""

from __future__ import annotations

from typing import Final

from edgert.core.batch import CLOCK_IS_SET

AHEAD_S: Final = 60.0
"""How far a mark or a remembered time may be ahead of the clock, where no source says otherwise."""
SLACK_S: Final = 5.0
"""Beside that: the clock may be set back a little, as NTP does."""
TAKEN_BACK: Final = "clock was ahead (marks taken back)"
"""Counted once for each time that an operator took its marks back; no row is lost by it."""


def is_ahead(mark: float, wall: float, tolerance_s: float = AHEAD_S) -> bool:
    """Whether a mark is from a clock that was ahead. While the clock is not set that cannot be told."""
    return wall > CLOCK_IS_SET and mark > wall + tolerance_s + SLACK_S
