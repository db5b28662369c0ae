"""Activity of flows in the last seconds, from two reports each: rates, and results."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.latency import quantile_s
from edgert.runtime.instance.report import Report
from gateway.status.all_dropped import REFUSED, AllDropped, AllDroppedFinder
from gateway.status.rows_ahead import RowsAhead, RowsAheadFinder
from gateway.status.unusable_fields import UnusableField, UnusableFieldFinder

WINDOW_S: Final = 10.0
"""Rates are averages over the last so many seconds, or those since the flow started."""
RESTS_S: Final = 2 * WINDOW_S
"""Seconds without a change, after which a flow is looked at no more until something changes."""


@dataclass(frozen=True, slots=True)
class RecentActivity:
    """Recent activity of a flow."""

    rates: Mapping[str, float] = field(default_factory=dict)
    """Rows in per second, by operator."""
    utilisation: Mapping[str, float] = field(default_factory=dict)
    """ρ_w of EdgeWise (section 7.2), by instance (its first operator)."""
    balance: float | None = None
    """Coefficient of variation of the utilisation over the instances; 0 is all alike."""
    latency_ms: Mapping[str, float | None] = field(default_factory=dict)
    """p50 and p99 from arrival to a sink."""
    dropping: tuple[AllDropped, ...] = ()
    """Operators that have dropped all the rows that came to them."""
    unusable: tuple[UnusableField, ...] = ()
    """Fields of which no value was usable."""
    ahead: RowsAhead | None = None
    """Rows ahead of time, where nearly all are."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Activity of a stage between two of its reports."""

    rate: float
    utilisation: float
    latency: list[int]

    @classmethod
    def between(cls, before: Report, now: Report) -> Pace:
        passed = now.at - before.at
        return cls(
            max(0, now.rows_in - before.rows_in) / passed,
            round(min(1.0, max(0.0, 1 - (now.idle_s - before.idle_s) / passed)), 4),
            [n - then for n, then in zip(now.latency, before.latency, strict=True)],
        )


class ActivityMeter:
    """Figures of a flow that are kept from look to look."""

    def __init__(self, run: FlowRun) -> None:
        self.run = run
        self.progress = LastProgress()
        self._drops_all = AllDroppedFinder(run.flow.name)
        self._unusable = UnusableFieldFinder(run.flow.name)
        self._rows_ahead = RowsAheadFinder()
        self._said: dict[str, deque[Report]] = {}
        self._paces: dict[str, Pace] = {}
        self._changes = math.nan
        self._changed_at = self._rested_at = -math.inf

    def rests(self, changes: float, now: float) -> bool:
        """True if the flow's counts have stood still for so long that the last look holds until they change, whenever
        it is read: all rates are 0. `changes`: see `HostFigures`."""
        if changes != self._changes:
            self._changes, self._changed_at = changes, now
        elif now - self._changed_at > RESTS_S and self._rows_ahead.found() is None:
            self._rested_at = now
            return True
        return False

    def look(self, reports: Mapping[str, Report]) -> RecentActivity:
        """A stage that has not reported since the last look keeps its figures: slots do so at their own times."""
        for name, told in reports.items():
            said = self._said.setdefault(name, deque())
            if said and said[-1].at < self._rested_at < told.at:  # it said the same at the last look
                idle_s = said[-1].idle_s + self._rested_at - said[-1].at
                said.append(dataclasses.replace(said.pop(), at=self._rested_at, idle_s=idle_s))
                while len(said) > 1:
                    said.popleft()
            if not told.at or (said and told.at <= said[-1].at):
                continue
            said.append(told)
            while len(said) > 2 and told.at - said[1].at >= WINDOW_S:
                said.popleft()
            if len(said) > 1:
                self._paces[name] = Pace.between(said[0], told)
        found = self._drops_all.look(reports), self._unusable.look(reports), self._rows_ahead.look(reports)
        return self._recent(*found) if self._paces else RecentActivity()

    def _recent(
        self, dropping: tuple[AllDropped, ...], unusable: tuple[UnusableField, ...], ahead: RowsAhead | None
    ) -> RecentActivity:
        first = {name: pace for name, pace in self._paces.items() if not self.run.stages[name].number}
        used = {name: pace.utilisation for name, pace in first.items()}
        mean = statistics.fmean(used.values())
        balance = round(statistics.pstdev(used.values()) / mean, 3) if mean else None
        counts = [sum(rows) for rows in zip(*(pace.latency for pace in first.values()), strict=True)]
        latency = {key: quantile_s(counts, part) for key, part in (("p50", 0.5), ("p99", 0.99))}
        in_ms = {key: None if value is None else round(value * 1e3, 3) for key, value in latency.items()}
        rates = {name: pace.rate for name, pace in self._paces.items()}
        return RecentActivity(rates, used, balance, in_ms, dropping, unusable, ahead)


class _SourceInput:
    """Input of one source of a flow, all its copies together. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.messages = self.taken = self.refused = 0
        self.refusing_since: float | None = None
        """When it began to take no row any more and to refuse payloads."""
        self._refused_before = 0
        """Payloads refused until a row was taken last."""

    @property
    def refused_since_row(self) -> int:
        return self.refused - self._refused_before

    def look(self, told: Sequence[Report], now: float) -> None:
        taken = sum(one.rows_out for one in told)
        refused = sum(one.drops.get(REFUSED, 0) for one in told)
        self.messages = sum(one.rows_in for one in told)
        if refused > self.refused and self.refusing_since is None:
            self.refusing_since = now
        if taken > self.taken:
            self._refused_before, self.refusing_since = refused, None
        self.taken, self.refused = taken, refused


class LastProgress:
    """When a flow last took rows, refused payloads and gave results. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._sources: dict[str, _SourceInput] = {}
        self._taken = self._refused = self._results = 0
        self.taken_at: float | None = None
        self.refused_at: float | None = None
        self.result_at: float | None = None

    def look(self, run: FlowRun, reports: Mapping[str, Report], now: float) -> None:
        """Compares the reports with those of the last look. A stage of a flow whose source is on another board takes
        what comes from there."""
        came = results = 0
        of_sources: dict[str, list[Report]] = {}
        for name, told in reports.items():
            planned = run.stages[name].planned
            came += told.rows_in
            if planned.kind == "source" and run.on_board(planned):
                of_sources.setdefault(planned.nodes[0].name, []).append(told)
            elif planned.kind == "sink":
                results += told.rows_in
        for name, copies in of_sources.items():
            self._sources.setdefault(name, _SourceInput()).look(copies, now)
        taken = sum(source.taken for source in self._sources.values()) if of_sources else came
        refused = sum(source.refused for source in self._sources.values())
        if refused > self._refused:
            self.refused_at = now
        if taken > self._taken:
            self.taken_at = now
        if results > self._results:
            self.result_at = now
        self._taken, self._refused, self._results = taken, refused, results

    def plain(self, now: float) -> dict[str, Any]:
        """For the status: ages in seconds (None: never), and how many payloads the source that is worst off has refused
        since it took a row; of several sources also its name, and which have had no message."""

        def age(at: float | None) -> float | None:
            return None if at is None else round(now - at, 1)

        several = len(self._sources) > 1
        worst = max(self._sources, key=lambda name: self._sources[name].refused_since_row, default="")
        source = self._sources.get(worst, _SourceInput())
        return {
            "row_age_s": age(self.taken_at),
            "refused_age_s": age(self.refused_at),
            "result_age_s": age(self.result_at),
            "refusing_s": age(source.refusing_since),
            "refused_since_row": source.refused_since_row,
            "refusing": worst if several and source.refusing_since is not None else "",
            "messages": sum(one.messages for one in self._sources.values()),
            "silent": [name for name, one in self._sources.items() if several and not one.messages],
        }


class AcknowledgementWait:
    """How long results, of one flow or of all, wait in the outbox without one being acknowledged."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Returned by the last look."""
        self._since: float | None = None
        self._acknowledged = -1

    def look(self, rows: int, acknowledged: int, now: float) -> float:
        """Seconds; 0 while nothing waits."""
        if not rows:
            self._since, self.seconds = None, 0.0
            return 0.0
        if self._since is None or acknowledged != self._acknowledged:
            self._since, self._acknowledged = now, acknowledged
        self.seconds = round(now - self._since, 1)
        return self.seconds

    def begin_anew(self) -> None:
        """The collector is back: the wait counts from the next look."""
        self._since = None


class MessageRate:
    """Messages per second, averaged over `WINDOW_S`, and when one came last."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._changed: float | None = None

    def look(self, messages: int, now: float) -> None:
        if self._seen and messages > self._seen[-1][1]:
            self._changed = now
        self._seen.append((now, messages))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_S:
            self._seen.popleft()

    def plain(self, now: float) -> dict[str, Any]:
        (began, before), (at, messages) = (self._seen[0], self._seen[-1]) if self._seen else ((now, 0), (now, 0))
        rate = round((messages - before) / (at - began), 2) if at > began else None
        return {"rate": rate, "message_age_s": None if self._changed is None else round(now - self._changed, 1)}
