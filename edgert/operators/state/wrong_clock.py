"""Watermarks that a wrong clock has left behind.

A watermark never goes back while the clock is right. A clock that was ahead, be it for two seconds, moves it to where
right rows are late for years, and a checkpoint keeps it there. A right watermark is ahead of the arrival of a later
batch by no more than the source's tolerance. The source takes a greater one back. It compares with the clock of the
arrival, not with that of now: batches that waited in a queue, or come again after a crash, are judged alike.

Behind the source no clock is asked: a watermark that is lower than the one before, by far, was taken back.
"""

from __future__ import annotations

import math
from typing import Final

from edgert.core.batch import CLOCK_IS_SET

AHEAD_S: Final = 60.0
"""How far a watermark or a remembered time may be ahead of the clock, where no source says otherwise. By less no
operator behind a source takes its watermarks back: after a clock that was so little ahead, rows are in time again as
soon."""
SLACK_S: Final = 5.0
"""Beside that: the clock may be set back a little, as NTP does."""
TAKEN_BACK: Final = "clock was ahead (marks taken back)"
"""Drop reason that counts resets of a watermark. No row is lost."""


def is_ahead(time: float, wall: float, tolerance_s: float) -> bool:
    """True if an event time or watermark is from a clock that was ahead of that of a later arrival, `wall`. Always
    False while the clock is not set."""
    return wall > CLOCK_IS_SET and time > wall + tolerance_s + SLACK_S


def is_taken_back(before: float, watermark: float) -> bool:
    """True if the source of a batch with this watermark has taken the watermark `before` back."""
    return -math.inf < watermark < before - AHEAD_S
