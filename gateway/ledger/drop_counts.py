"""What flows have dropped since the start of the process: those that run, and those that have ended.

Counts stand in what runs, and go with it. So what a run has dropped by its very end is kept here, by the names of flow,
operator and reason: no figure goes back when a flow is replaced or removed, or fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from edgert.runtime.flow_run import FlowRun
from gateway.hosts.host import Host

Drops = Counter[tuple[str, str, str]]
"""Rows (or messages) by flow, operator and reason."""


class _Said(NamedTuple):
    """What became of the messages of one place, still counted there when its run has ended."""

    operator: str
    part: int
    unsent: Counter[int]
    unacknowledged: Counter[int]


class DropCounts:
    """Lives on the daemon's loop."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._ended: Drops = Counter()
        self._last: dict[str, list[_Said]] = {}
        """Of the newest run of each flow that has ended: the broker may refuse yet what it said at its end. Without
        that in `_ended`."""

    def ends(self, run: FlowRun) -> None:
        """A run is about to leave its host. What it took with its last capture, and dropped while it was brought to its
        end, may not have been reported by its slots."""
        flow = run.flow.name
        self._ended += self._said(flow)
        self._ended += self._of(run) | Counter({(flow, *where): rows for where, rows in run.dropped.items()})
        self._last[flow] = [
            _Said(name, place.part, place.instance.delivery.unsent, place.instance.delivery.unacknowledged)
            for name, place in run.places.items()
        ]
        self._ended -= self._said(flow)

    def all(self, runs: Iterable[FlowRun]) -> Drops:
        """Of `runs`, and of those that have ended."""
        found = Counter(self._ended)
        for flow in self._last:
            found += self._said(flow)
        for run in runs:
            found += self._of(run)
        return found

    def _of(self, run: FlowRun) -> Drops:
        reports = {name: self._host.figures.report(run, name) for name in run.places}
        return Counter({
            (run.flow.name, name, reason): rows
            for name, report in reports.items()
            for reason, rows in report.drops.items()
        })  # fmt: skip

    def _said(self, flow: str) -> Drops:
        found: Drops = Counter()
        for operator, part, unsent, unacknowledged in self._last.get(flow, ()):
            found[flow, operator, "not sent"] += unsent[part]
            found[flow, operator, "not acknowledged"] += unacknowledged[part]
        return found
