"""Sources nearly all of whose rows are ahead of time: a device sends local time as UTC, most often.

Such rows are kept, and their windows close when the clock has come to their end: hours later. Until then the flow looks
well from outside and gives nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from edgert.operators.sources.source import AHEAD_KEPT
from edgert.runtime.instance.report import Report

ROWS: Final = 3
FOR_S: Final = 10.0
"""Rows that must have been ahead of time, and seconds for which they must: devices send each few seconds or each few
minutes."""
SHARE: Final = 0.9


class RowsAhead(NamedTuple):
    """Rows ahead of time, of one source, since a row in time came last."""

    rows: int
    seconds: float


@dataclass(slots=True)
class _AheadStreak:
    told: Report
    since: float
    rows: int = 0
    ahead: int = 0

    def look(self, told: Report) -> None:
        rows = told.rows_out - self.told.rows_out
        ahead = told.drops.get(AHEAD_KEPT, 0) - self.told.drops.get(AHEAD_KEPT, 0)
        self.told = told
        if rows < 0 or 2 * ahead < rows:
            self.since, self.rows, self.ahead = told.at, 0, 0
        else:
            self.rows, self.ahead = self.rows + rows, self.ahead + ahead

    def found(self) -> RowsAhead | None:
        """None if it does not last."""
        seconds = round(self.told.at - self.since, 1)
        lasts = self.ahead >= ROWS and self.ahead >= SHARE * self.rows and seconds >= FOR_S
        return RowsAhead(self.ahead, seconds) if lasts else None


class RowsAheadFinder:
    """Finds a flow with such a source, from the reports of its stages."""

    def __init__(self) -> None:
        self._streaks: dict[str, _AheadStreak] = {}

    def look(self, reports: Mapping[str, Report]) -> RowsAhead | None:
        """Takes the newest reports, and returns the longest that lasts."""
        for name, told in reports.items():
            streak = self._streaks.get(name)
            if streak is None and told.at:
                self._streaks[name] = _AheadStreak(told, told.at)
            elif streak is not None and told.at > streak.told.at:
                streak.look(told)
        return self.found()

    def found(self) -> RowsAhead | None:
        """Returns the longest that lasts, as of the last look."""
        return max(
            filter(None, (streak.found() for streak in self._streaks.values())), key=lambda a: a.rows, default=None
        )
