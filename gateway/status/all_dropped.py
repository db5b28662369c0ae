"""Operators that drop all rows that come to them: a wrong clock, time field or key looks so from outside.

Such a flow runs, acknowledges its input and gives nothing. Each row is counted; that all of them go is a fault, until
one is kept. Silence counts neither for nor against it: rows may come once an hour.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from edgert.operators.base.logic import NOT_IN_TABLE, NOTHING_TO_JOIN
from edgert.runtime.instance.report import Report

log = logging.getLogger(__name__)

REFUSED: Final = "bad_payload"
"""The reason of a source's drops that stands for malformed payloads: they are no rows, and told by themselves."""
LATE: Final = ("late", "late (values)")
NO_ROWS: Final = ("(values)", "(kept)", "(devices)", "(predictions)", "(keys)", "(marks taken back)")
"""Ends of the reasons of drops by which no row is lost."""
AS_ASKED: Final = (NOTHING_TO_JOIN, NOT_IN_TABLE)
"""Beginnings of the reasons of drops that the flow asks for: they are no more a fault than those of a filter."""
FOR_S: Final = 10.0
"""All rows of an operator must have been dropped for so long, monotonic seconds,"""
ROWS: Final = 10
"""and so many of them, before it is a fault."""
CLOCK: Final = "is the clock of the devices or of this board wrong?"


def loses_rows(reason: str) -> bool:
    """False for a drop of something else: values, devices or keys of rows that are kept."""
    return not reason.endswith(NO_ROWS)


class AllDropped(NamedTuple):
    """Rows that one operator has dropped, one after the other."""

    operator: str
    reason: str
    rows: int
    seconds: float
    example: str = ""
    """The newest row, and what was wrong, where it is known."""

    @property
    def lasts(self) -> bool:
        """True if it is a fault, rather than a moment's."""
        return self.rows >= ROWS and self.seconds >= FOR_S

    def __str__(self) -> str:
        why = ": ".join(filter(None, (self.reason, self.example)))
        said = f"{self.operator} has dropped all of its last {self.rows:,} rows: {why}"
        return f"{said}; {CLOCK}" if self.reason in LATE else said

    @classmethod
    def of(cls, plain: list[Any]) -> AllDropped:
        """From a status."""
        return cls(*plain)


@dataclass(slots=True)
class _DropStreak:
    told: Report
    since: float
    heard: float
    """Reports: the last one before all rows were dropped, and the last one with a row."""
    reasons: Counter[str] = field(default_factory=Counter)

    def look(self, told: Report) -> None:
        lost = _lost(self.told, told)
        self.told = told
        if lost is None:
            self.since, self.heard, self.reasons = told.at, told.at, Counter()
            return
        if lost:
            self.heard = told.at
        self.reasons += lost


def _lost(before: Report, now: Report) -> Counter[str] | None:
    """Rows dropped between two reports, by reason; None if one was kept, or the operator began anew."""
    dropped = Counter(now.drops) - Counter(before.drops)
    came = now.rows_in - before.rows_in - dropped.pop(REFUSED, 0)
    late = Counter({reason: dropped[reason] for reason in LATE if dropped[reason]})
    if came < 0 or any(now.drops.get(reason, 0) < before.drops.get(reason, 0) for reason in LATE):
        return None
    if late.total() >= came:  # an operator that emits windows of before has kept none of these
        return late
    lost = Counter({r: rows for r, rows in dropped.items() if loses_rows(r) and not r.startswith(AS_ASKED)})
    return None if lost.total() < came or now.rows_out > before.rows_out else lost


class AllDroppedFinder:
    """Finds a flow that drops all its rows, from the reports of its stages."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._streaks: dict[str, _DropStreak] = {}
        self._said = False

    def look(self, reports: Mapping[str, Report]) -> tuple[AllDropped, ...]:
        """Takes the newest reports, and returns which operators drop all. A fault is logged when it begins and ends."""
        for name, told in reports.items():
            streak = self._streaks.get(name)
            if streak is None and told.at:
                self._streaks[name] = _DropStreak(told, told.at, told.at)
            elif streak is not None and told.at > streak.told.at:
                streak.look(told)
        found = tuple(
            AllDropped(name, reason, s.reasons.total(), round(s.heard - s.since, 1), s.told.lost.get(reason, ""))
            for name, s in self._streaks.items()
            for reason, _ in s.reasons.most_common(1)
        )
        self._say(next((each for each in found if each.lasts), None))
        return found

    def _say(self, fault: AllDropped | None) -> None:
        if fault and not self._said:
            log.warning("flow %s: %s", self._flow, fault)
        elif not fault and self._said:
            log.info("flow %s: no operator drops all its rows any more", self._flow)
        self._said = fault is not None
