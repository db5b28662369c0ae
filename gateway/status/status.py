"""The gateway's state as one JSON object: the page, the terminal, Prometheus and `cmd/status` all show this."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

import edgert
from edgert.core.batch import Row
from edgert.core.ids import epoch_ordinal
from edgert.flow.plan import PhysicalInstance
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.build import Place
from edgert.runtime.instance.latency import quantile_s
from edgert.runtime.instance.report import Report
from gateway.flows.flows import Flows
from gateway.hosts.host import Host
from gateway.status.late_flows import LateFlows

Where = tuple[str, str, str]
"""(flow, operator, reason); empty where it is of none."""
RATE_S = 0.9
"""Rates are taken over at least this time."""
WATCH_S = 10.0
"""Late rows are looked at so often, also where nobody asks for the status."""


class Status:
    """Composes the object; remembers counters of a moment ago, to tell rates."""

    def __init__(
        self,
        gateway: str,
        fleet: str,
        sections: Mapping[str, Callable[[], Any]],
        drops: Sequence[Callable[[], Mapping[Where, int]]],
        flows: Flows,
        host: Host,
    ) -> None:
        """`sections`: by name, each asked of the part whose it is; `drops`: rows that
        parts other than flows have dropped."""
        self._gateway, self._fleet, self._flows, self._host = gateway, fleet, flows, host
        self._sections, self._of_parts = sections, drops
        self._process = psutil.Process()
        self._process.cpu_percent()
        self._cpu = 0.0
        self._started = time.monotonic()
        self._recent: dict[str, _Recent] = {}
        self._looks: dict[str, _Looks] = {}
        self._seen_at = time.monotonic()
        self._late = LateFlows()

    def object(self) -> dict[str, Any]:
        """See the module. Every number is since the start of the process, unless its name says otherwise: but those of
        a flow and its operators, which begin anew with each version of it."""
        self._take_rates()
        return {
            "gateway": self._gateway,
            "fleet": self._fleet,
            "version": edgert.__version__,
            "uptime_s": round(time.monotonic() - self._started, 1),
            "rss_bytes": self._process.memory_info().rss,
            "cpu_percent": self._cpu,
            "written_bytes": self._written_bytes(),
            **{name: section() for name, section in self._sections.items()},
            "drops": self._drops(),
            "flows": [
                *(self._flow(run) for run in list(self._flows.runs.values())),
                *(_failed(name, why) for name, why in self._flows.failed.items()),
            ],
        }

    def watch(self) -> None:
        """Says in the log what nobody may ask for. Called each tick."""
        if time.monotonic() - self._seen_at >= WATCH_S:
            self._take_rates()

    def _written_bytes(self) -> int | None:
        """None where the kernel does not count it."""
        try:
            return int(self._process.io_counters().write_bytes)
        except (psutil.Error, OSError, NotImplementedError):
            return None

    def _take_rates(self) -> None:
        now = time.monotonic()
        if now - self._seen_at < RATE_S:
            return
        looks, recent = {}, {}
        self._late.keep(self._flows.runs)
        for run in list(self._flows.runs.values()):
            reports = {name: self._host.figures.report(run, name) for name in run.places}
            self._late.look(run.flow.name, reports, now)
            known = self._looks.get(run.flow.name)
            looks[run.flow.name] = known if known and known.run is run else _Looks(run)
            recent[run.flow.name] = looks[run.flow.name].look(reports)
        self._recent, self._looks, self._seen_at = recent, looks, now
        self._cpu = self._process.cpu_percent()

    def _drops(self) -> list[dict[str, Any]]:
        places = self._flows.dropped.all(list(self._flows.runs.values()))
        for of_part in self._of_parts:
            for where, rows in of_part().items():
                places[where] += rows
        return [
            {"flow": flow, "operator": operator, "reason": reason, "rows": rows}
            for (flow, operator, reason), rows in sorted(places.items())
            if rows
        ]

    def _flow(self, run: FlowRun) -> dict[str, Any]:
        name = run.flow.name
        recent = self._recent.get(name, _Recent())
        return {
            "name": name,
            "version": run.version,
            "state": self._flows.checkpointer.state(run),
            "epoch": epoch_ordinal(run.epoch),
            "description": run.flow.description,
            "operators": [self._operator(run, operator, place, recent) for operator, place in run.places.items()],
            "edges": list(run.plan.edges()),
            "delivery": run.flow.delivery,
            "rows_shipped": run.rows_shipped,
            "spilled_messages": self._flows.checkpointer.blocked.messages(run),
            "late": self._late.said.get(name, ""),
            "gap": self._flows.gaps.get(name, ""),
            "rows_repeated": self._flows.flow_registry.database.repeated[name],
            "latency_ms": recent.latency_ms,
            "balance": recent.balance,
            "latest": [_shown(row) for row in list(run.latest)[-5:]],
        }

    def _operator(self, run: FlowRun, name: str, place: Place, recent: _Recent) -> dict[str, Any]:
        """Queue, turns and most times of a region are those of its first part: see `Report`."""
        kind: str = place.planned.kind
        if place.planned.copies > 1:
            kind += f", {place.planned.copy} of {place.planned.copies}"
        fused = len(place.instance.operators) > len(place.planned.operators)
        told = self._host.figures.report(run, name)
        rows_in, rows_out = told.rows_in, told.rows_out
        return {
            "name": name,
            "type": " + ".join(node.type for node in place.planned.nodes),
            "gateway": None if run.on_board(place.planned) else gateway_of(place.planned),
            "rows_in": rows_in,
            "rows_out": rows_out,
            "rate_in": round(recent.rates.get(name, 0.0), 1),
            "selectivity": round(rows_out / rows_in, 4) if rows_in else None,
            "queue_rows": told.queue_rows,
            "queue_bytes": told.queue_bytes,
            "queue_age_s": round(told.queue_age_s, 4),
            "turns": told.turns,
            "failures": told.failures,
            "retries": told.retries,
            "dead_letters": told.dead_letters,
            "busy_s": round(told.busy_s, 4),
            "queued_s": round(told.queued_s, 4),
            "scheduling_s": round(told.scheduling_s, 4),
            "idle_s": round(told.idle_s, 4),
            "cost_us": round(told.busy_s / rows_in * 1e6, 2) if rows_in and told.busy_s else None,
            "utilisation": recent.utilisation.get(name),
            "detail": f"{kind}, fused: {place.instance.name}" if fused else kind,
        }


@dataclass(frozen=True, slots=True)
class _Recent:
    """What a flow did between the last two reports of each place."""

    rates: Mapping[str, float] = field(default_factory=dict)
    """Rows in per second, by operator."""
    utilisation: Mapping[str, float] = field(default_factory=dict)
    """ρ_w of EdgeWise (section 7.2), by instance (its first operator)."""
    balance: float | None = None
    """Coefficient of variation of the utilisation over the instances; 0 is all alike."""
    latency_ms: Mapping[str, float | None] = field(default_factory=dict)
    """p50 and p99 from arrival to a sink."""


@dataclass(frozen=True, slots=True)
class _Pace:
    """What a place did between its last two reports."""

    rate: float
    utilisation: float
    latency: list[int]

    @classmethod
    def between(cls, before: Report, now: Report) -> _Pace:
        passed = now.at - before.at
        return cls(
            max(0, now.rows_in - before.rows_in) / passed,
            round(min(1.0, max(0.0, 1 - (now.idle_s - before.idle_s) / passed)), 4),
            [n - then for n, then in zip(now.latency, before.latency, strict=True)],
        )


class _Looks:
    """What is remembered of a flow from look to look."""

    def __init__(self, run: FlowRun) -> None:
        self.run = run
        self._said: dict[str, Report] = {}
        self._paces: dict[str, _Pace] = {}

    def look(self, reports: Mapping[str, Report]) -> _Recent:
        """A place that has not reported since the last look keeps its figures: slots do so at their own times."""
        for name, told in reports.items():
            before = self._said.get(name)
            if not told.at or (before and told.at <= before.at):
                continue
            if before:
                self._paces[name] = _Pace.between(before, told)
            self._said[name] = told
        return self._recent() if self._paces else _Recent()

    def _recent(self) -> _Recent:
        first = {name: pace for name, pace in self._paces.items() if not self.run.places[name].part}
        used = {name: pace.utilisation for name, pace in first.items()}
        mean = statistics.fmean(used.values())
        balance = round(statistics.pstdev(used.values()) / mean, 3) if mean else None
        counts = [sum(rows) for rows in zip(*(pace.latency for pace in first.values()), strict=True)]
        latency = {key: quantile_s(counts, part) for key, part in (("p50", 0.5), ("p99", 0.99))}
        in_ms = {key: None if value is None else round(value * 1e3, 3) for key, value in latency.items()}
        return _Recent({name: pace.rate for name, pace in self._paces.items()}, used, balance, in_ms)


def gateway_of(planned: PhysicalInstance) -> str:
    """The gateway that runs an instance, as the assignment says."""
    return planned.location.gateway if planned.location else ""


def _failed(name: str, why: str) -> dict[str, Any]:
    """A stored flow that could not be started."""
    nothing: dict[str, Any] = {"operators": [], "edges": [], "latest": []}
    return {"name": name, "version": 0, "state": "failed", "epoch": 0, "description": why, "rows_shipped": 0, **nothing}


def _shown(row: Row) -> Row:
    """A shipped row for people: of a sketch its size."""
    return {name: f"{len(value)} bytes" if isinstance(value, bytes) else value for name, value in row.items()}
