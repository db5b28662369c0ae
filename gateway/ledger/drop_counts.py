"""Rows and messages that flows have dropped since the start of the process: of running flows, and of ended ones.

A run holds its counters and takes them with it. So the drops of a run up to its end are kept here, by flow, operator
and reason: no figure goes back when a flow is replaced or removed, or fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.counters import NOT_SENT
from gateway.hosts.host import Host

Drops = Counter[tuple[str, str, str]]
"""Rows (or messages) by flow, operator and reason."""


class _Undelivered(NamedTuple):
    """Undelivered messages of one stage of an ended run; the stage still counts them."""

    operator: str
    stage: int
    unsent: Counter[int]
    unacknowledged: Counter[int]


class DropCounts:
    """Lives on the daemon's loop."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._ended: Drops = Counter()
        self._last: dict[str, list[_Undelivered]] = {}
        """Messages of the newest ended run of each flow: the broker may still refuse messages of its end. Not included
        in `_ended`."""

    def ends(self, run: FlowRun) -> None:
        """Keeps the drops of a run that is about to leave its host. Its slots may not have reported the drops of its
        last capture and of its end."""
        flow = run.flow.name
        self._ended += self._said(flow)
        self._ended += self._of(run) | Counter({(flow, *where): rows for where, rows in run.dropped.items()})
        self._last[flow] = [
            _Undelivered(name, stage.number, stage.instance.delivery.unsent, stage.instance.delivery.unacknowledged)
            for name, stage in run.stages.items()
        ]
        self._ended -= self._said(flow)

    def all(self, runs: Iterable[FlowRun]) -> Drops:
        """Drops of `runs` and of all ended runs."""
        found = Counter(self._ended)
        for flow in self._last:
            found += self._said(flow)
        for run in runs:
            found += self._of(run)
        return found

    def _of(self, run: FlowRun) -> Drops:
        reports = {name: self._host.figures.report(run, name) for name in run.stages}
        return Counter({
            (run.flow.name, name, reason): rows
            for name, report in reports.items()
            for reason, rows in report.drops.items()
        })  # fmt: skip

    def _said(self, flow: str) -> Drops:
        found: Drops = Counter()
        for operator, stage, unsent, unacknowledged in self._last.get(flow, ()):
            found[flow, operator, NOT_SENT] += unsent[stage]
            found[flow, operator, "not acknowledged"] += unacknowledged[stage]
        return found
