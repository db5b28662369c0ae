"""Flows of which all rows come too late: what a wrong clock, or a wrong time field, looks like from outside.

Such a flow runs, acknowledges its input and gives nothing. Each late row is counted; that all of them are is a fault.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from edgert.runtime.instance.report import Report

log = logging.getLogger(__name__)

REASONS: Final = ("late", "late (values)")
FOR_S: Final = 10.0
"""All rows of an operator must have been late for so long, monotonic seconds,"""
ROWS: Final = 10
"""and so many of them, before it is said."""
QUIET_S: Final = 300.0
"""After so long without a row nothing is said any more."""
SAID: Final = "all %d rows of the last %.0f s came too late for %s: is the clock of the devices or of this board wrong?"


@dataclass(slots=True)
class _Streak:
    """Rows that were late one after the other."""

    rows_in: int
    late: int
    since: float
    heard: float
    rows: int = 0


class LateFlows:
    """Lives on the daemon's loop; is told of the reports of places."""

    def __init__(self) -> None:
        self._streaks: dict[str, dict[str, _Streak]] = {}
        """By flow and operator."""
        self.said: dict[str, str] = {}
        """By flow: what is wrong with it."""

    def keep(self, flows: Iterable[str]) -> None:
        """Only these run."""
        known = set(flows)
        for gone in self._streaks.keys() - known:
            del self._streaks[gone]
            self.said.pop(gone, None)

    def look(self, flow: str, reports: Mapping[str, Report], now: float) -> None:
        """Takes the reports of a flow's operators at `now`, monotonic seconds."""
        streaks = self._streaks.setdefault(flow, {})
        found = ""
        for name, report in reports.items():
            late = sum(report.drops.get(reason, 0) for reason in REASONS)
            streak = streaks.get(name)
            if streak is None or late < streak.late or report.rows_in < streak.rows_in:
                streaks[name] = _Streak(report.rows_in, late, now, now)
                continue
            came, were_late = report.rows_in - streak.rows_in, late - streak.late
            streak.rows_in, streak.late = report.rows_in, late
            if came > were_late or not streak.rows + were_late or now - streak.heard > QUIET_S:
                streak.since, streak.heard, streak.rows = now, now, 0
                continue
            if came:
                streak.heard = now
            streak.rows += were_late
            if streak.rows >= ROWS and now - streak.since >= FOR_S:
                found = found or SAID % (streak.rows, now - streak.since, name)
        if found and not self.said.get(flow):
            log.warning("flow %s: %s", flow, found)
        elif not found and self.said.pop(flow, ""):
            log.info("flow %s: rows are in time again", flow)
        if found:
            self.said[flow] = found
