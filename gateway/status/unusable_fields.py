"""Fields whose values an operator cannot use, one after the other: text where a number is aggregated, most often.

Such a flow takes its rows and emits windows, each with a count of 0: it looks well from outside. A row without the
field counts as one with a usable value: nothing is counted per row for this.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from edgert.runtime.instance.report import Report
from gateway.status.all_dropped import FOR_S, ROWS, loses_rows

log = logging.getLogger(__name__)


class UnusableField(NamedTuple):
    """Values of a field that one operator could not use, one after the other."""

    field: str
    sample: str
    """The newest value, as text."""
    values: int = 0
    seconds: float = 0.0

    @property
    def lasts(self) -> bool:
        """True if it is a fault, rather than a moment's."""
        return self.values >= ROWS and self.seconds >= FOR_S

    def __str__(self) -> str:
        return f"{self.field}: none of the last {self.values:,} values is a usable number, e.g. {self.sample}"


class UnusableFieldFinder:
    """Finds fields of a flow of which no value can be used, from the reports of its stages."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._told: dict[str, Report] = {}
        self._streaks: dict[tuple[str, str], UnusableField] = {}
        self._said: frozenset[tuple[str, str]] = frozenset()

    def look(self, reports: Mapping[str, Report]) -> tuple[UnusableField, ...]:
        """Takes the newest reports, and returns the fields at fault. Each fault is logged when it begins."""
        for name, told in reports.items():
            before = self._told.get(name)
            if told.at and (before is None or told.at > before.at):
                self._told[name] = told
                if before is not None:
                    self._compare(name, before, told)
        lasting = {key: streak for key, streak in self._streaks.items() if streak.lasts}
        for key in lasting.keys() - self._said:
            log.warning("flow %s, operator %s: %s", self._flow, key[0], lasting[key])
        self._said = frozenset(lasting)
        return tuple(lasting.values())

    def _compare(self, name: str, before: Report, told: Report) -> None:
        dropped = Counter(told.drops) - Counter(before.drops)
        kept = told.rows_in - before.rows_in - sum(n for why, n in dropped.items() if loses_rows(why))
        if not kept:
            return
        for field, (count, sample) in told.unusable.items():
            unusable = count - before.unusable.get(field, (0,))[0]
            if not 0 < kept <= unusable:
                self._streaks.pop((name, field), None)
                continue
            streak = self._streaks.get((name, field), UnusableField(field, sample))
            self._streaks[name, field] = UnusableField(
                field, sample, streak.values + unusable, round(streak.seconds + told.at - before.at, 1)
            )
