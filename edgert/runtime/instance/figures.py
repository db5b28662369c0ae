"""Raw figures of instances: counters of the work that was done, and what waits, as the control socket gives them.

    slot                         daemon
    of_instance(...)  --REPORT-> SlotFigures  -> plain
    of_instance(...)             (no slots)   -> plain

Counters are since the start of the process and are read when somebody asks; nothing is added up per row for them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from edgert.runtime.instance.edges import Target
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.latency import mean_s
from edgert.runtime.instance.report import Report

COUNTERS: Final = ("rows_in", "rows_out", "turns", "busy_s", "queued_s", "scheduling_s", "idle_s")
GAUGES: Final = ("queue_rows", "queue_bytes", "head_age_s", "at", "head_since_arrival_s")
"""`at`: when they were read, monotonic seconds; of a slot when it reported last, 0 before its first report."""


@dataclass(slots=True)
class RawFigures:
    """Raw figures of one instance."""

    counters: Sequence[float] = (0,) * len(COUNTERS)
    """Counter values, in the order of `COUNTERS`."""
    gauges: Sequence[float] = (0,) * len(GAUGES)
    """Gauge values, in the order of `GAUGES`."""
    sent: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """(rows, estimated bytes) that went to each instance."""
    left: Sequence[float] = (0, 0.0)
    """Rows that left the flow here, and the sum of their latencies in seconds."""

    def after(self, before: RawFigures) -> RawFigures:
        """These figures plus the counters in `before`."""
        names = {**before.sent, **self.sent}
        sent = {name: _sum(self.sent.get(name, (0, 0)), before.sent.get(name, (0, 0))) for name in names}
        return RawFigures(_sum(self.counters, before.counters), self.gauges, sent, _sum(self.left, before.left))

    def at_least(self, known: RawFigures) -> RawFigures:
        """These figures with counters no smaller than in `known`."""
        counters = list(map(max, self.counters, known.counters))
        return RawFigures(counters, self.gauges, self.sent, max(self.left, known.left, key=lambda left: left[0]))

    def plain(self) -> list[Any]:
        """For a frame."""
        return [self.counters, self.gauges, self.sent, self.left]


def _sum(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    return [a + b for a, b in zip(one, other, strict=True)]


def of_instance(instance: Instance, now: float) -> RawFigures:
    """The figures of an instance in this process, at `now` (monotonic seconds). Needs no lock."""
    c, queue = instance.counters, instance.queue
    since = queue.waiting_since()
    counters = [c.rows_in, c.rows_out, c.turns, c.busy_s, c.queued_s, c.scheduling_s, instance.idle_at(now)]
    arrived = queue.head_arrival() if since is not None else None
    ages = [0.0 if then is None else max(0.0, now - then) for then in (since, since if arrived is None else arrived)]
    gauges = [queue.rows, queue.size, ages[0], now, ages[1]]
    sent: dict[str, list[int]] = {}
    for ends in instance.edges.outputs.values():
        for end in ends:
            for target in end.targets:
                _add(sent, target)
    gone = sum(instance.counters.latency.counts)
    return RawFigures(counters, gauges, sent, [gone, instance.counters.latency.mean_s() * gone] if gone else (0, 0.0))


def of_reports(reports: Sequence[Report], exits: Collection[int]) -> RawFigures:
    """The counters of an instance as the reports of its stages have them. Reports have nothing on edges. `exits`: the
    stages from which rows leave the instance, if it has several."""
    first = reports[0]
    rows_out = first.rows_out if len(reports) == 1 else sum(reports[stage].rows_out for stage in exits)
    counters = [
        first.rows_in, rows_out, first.turns, sum(report.busy_s for report in reports), first.queued_s,
        first.scheduling_s, first.idle_s,
    ]  # fmt: skip
    gone = sum(first.latency)
    return RawFigures(counters, left=[gone, mean_s(first.latency) * gone] if gone else (0, 0.0))


def _add(sent: dict[str, list[int]], target: Target[Instance]) -> None:
    """Several edges to one instance, one for each of its inputs, count as one."""
    name = target.instance.name
    if name in sent:
        sent[name] = [sent[name][0] + target.rows, sent[name][1] + target.size]
    else:
        sent[name] = [target.rows, target.size]


def mean_latency_s(figures: Sequence[RawFigures]) -> float | None:
    """From arrival to the end of the flow, the mean of all rows that got there; None before the first."""
    rows = sum(one.left[0] for one in figures)
    return sum(one.left[1] for one in figures) / rows if rows else None
