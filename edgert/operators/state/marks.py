"""Marks of event time that a wrong clock has left behind.

A watermark never goes back while the clock is right. A clock that was ahead, be it for two seconds, moves it to where
right rows are late for years, and a checkpoint keeps it there. No right mark is beyond the arrival of a later batch by
more than the source's tolerance; so one that is, is a wrong clock's, and its source takes it back. By the clock of the
arrival, not of now: what has waited in a queue, or comes again after a crash, is judged alike.

Behind the source no clock is asked: a watermark that is lower than the one before, by far, was taken back.
"""

from __future__ import annotations

import math
from typing import Final

from edgert.core.batch import CLOCK_IS_SET

AHEAD_S: Final = 60.0
"""How far a mark or a remembered time may be ahead of the clock, where no source says otherwise. By less no operator
behind a source takes its marks back: of a clock that was so little ahead they are in time again as soon."""
SLACK_S: Final = 5.0
"""Beside that: the clock may be set back a little, as NTP does."""
TAKEN_BACK: Final = "clock was ahead (marks taken back)"
"""Drop reason that counts resets of a watermark. No row is lost."""


def is_ahead(mark: float, wall: float, tolerance_s: float) -> bool:
    """True if a mark is from a clock that was ahead of that of a later arrival, `wall`. While the clock is not set that
    cannot be told."""
    return wall > CLOCK_IS_SET and mark > wall + tolerance_s + SLACK_S


def is_taken_back(mark: float, watermark: float) -> bool:
    """True if the source of a batch with this watermark has taken the `mark` back that it had given before."""
    return -math.inf < watermark < mark - AHEAD_S
