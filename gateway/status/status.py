"""The gateway's state as one JSON object: the page, the terminal, Prometheus and `cmd/status` all show this."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import edgert
from edgert.core.clock import Clock
from edgert.core.ids import epoch_ordinal
from edgert.flow.part_states import PartState
from edgert.flow.plan import PhysicalInstance, uncopied
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.build import Stage
from edgert.runtime.instance.report import Report
from gateway.flows.flows import Flows
from gateway.hosts.host import Host
from gateway.status.activity import AcknowledgementWait, ActivityMeter, MessageRate, RecentActivity
from gateway.status.all_dropped import loses_rows
from gateway.status.conditions import UNACKNOWLEDGED_WARNING_S, conditions, worst
from gateway.status.devices import DeviceCounts, of_all, together
from gateway.status.history import History
from gateway.status.merged_copies import edges_of, is_large, never_seen, reports_of, shown_name
from gateway.status.process import ProcessFigures
from gateway.status.results import SHOWN_RESULTS, newest_window, units_of
from gateway.status.rows_ahead import RowsAhead

Where = tuple[str, str, str]
"""(flow, operator, reason); empty where it is of none."""
LOOK_S = 0.9
"""Reports are asked for at most this often when somebody looks,"""
UNASKED_LOOK_S = 2.0
"""and so often when nobody does."""


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
        clock: Clock,
    ) -> None:
        """`sections`: by name, each asked of the part whose it is; `drops`: rows that
        parts other than flows have dropped."""
        self._gateway, self._fleet, self._flows, self._host, self._clock = gateway, fleet, flows, host, clock
        self._sections, self._of_parts = sections, drops
        self._process = ProcessFigures()
        self._started = self._clock.monotonic()
        self._recent: dict[str, RecentActivity] = {}
        self._reports: dict[str, dict[str, Report]] = {}
        """Reports of large flows at the last look."""
        self._meters: dict[str, ActivityMeter] = {}
        self.history = History(flows, clock)
        self._messages, self._waiting = MessageRate(), AcknowledgementWait()
        self._waiting_of: dict[str, AcknowledgementWait] = {}
        """Waits for acknowledgements by flow."""
        self._loops: tuple[object, dict[str, list[str]]] = (None, {})
        """The flows that were looked at, and the possible loops by flow."""
        self._seen_at = self._clock.monotonic() - LOOK_S

    def object(self) -> dict[str, Any]:
        """See the module. Every number is since the start of the process, unless its name says otherwise: but those of
        a flow and its operators, which begin anew with each version of it."""
        self._look(LOOK_S)
        now = self._clock.monotonic()
        drops = self._drops()
        sections = {name: section() for name, section in self._sections.items()}
        sections["ingest"] |= self._messages.plain(now)
        central = sections["central"]
        waited = self._look_at_outbox(central, now)
        status = {
            "gateway": self._gateway,
            "fleet": self._fleet,
            "version": edgert.__version__,
            "uptime_s": round(self._clock.monotonic() - self._started, 1),
            **self._process.plain(),
            "state_limit_bytes": None if math.isinf(limit := self._host.memory.limit_bytes) else int(limit),
            **sections,
            "drops": drops,
            "flows": [
                *(
                    self._flow(run, drops, now) | waited.get(run.flow.name, {})
                    for run in list(self._flows.runs.values())
                ),
                *(_failed(name, why) for name, why in self._flows.failed.items()),
            ],
        }
        status["devices"] = of_all(
            (filter_, counts) for flow in status["flows"] for filter_, counts in flow.pop("devices_by_filter", ())
        )
        found = conditions(status)
        by_flow = {condition.name: condition.plain() for condition in found if condition.part == "flow"}
        for flow in status["flows"]:
            flow["condition"] = by_flow[flow["name"]]
        return status | {"health": {"level": worst(found), "parts": [condition.plain() for condition in found]}}

    def look(self) -> None:
        """Call this now and then, so that what happened lately is known when somebody asks."""
        self._look(UNASKED_LOOK_S)

    def results(self, flow: str, offset: int, limit: int) -> dict[str, Any] | None:
        """Rows of the newest window of a flow; None where no flow of that name runs."""
        run = self._flows.runs.get(flow)
        if run is None:
            return None
        return {"flow": flow, "offset": offset, **newest_window(run, offset, limit)}

    def _look(self, after_s: float) -> None:
        now = self._clock.monotonic()
        if now - self._seen_at < after_s:
            return
        meters: dict[str, ActivityMeter] = {}
        recent: dict[str, RecentActivity] = {}
        of_large: dict[str, dict[str, Report]] = {}
        for run in list(self._flows.runs.values()):
            name = run.flow.name
            known = self._meters.get(name)
            meter = meters[name] = known if known and known.run is run else ActivityMeter(run)
            if meter.rests(self._host.figures.changes(run), now):
                recent[name] = self._recent[name]
                of_large |= {name: self._reports[name]} if name in self._reports else {}
                continue
            reports = self._reports_of(run)
            if is_large(run):
                of_large[name] = reports
            recent[name] = meter.look(reports)
            meter.progress.look(run, reports, now)
        self._recent, self._meters, self._seen_at, self._reports = recent, meters, now, of_large
        self.history.sample()
        self._messages.look(self._sections["ingest"]()["messages"], now)
        self._look_at_outbox(self._sections["central"](), now)
        self._process.look()

    def _look_at_outbox(self, central: dict[str, Any], now: float) -> dict[str, dict[str, Any]]:
        """Returns for each flow the rows that wait for an acknowledgement, and for how long no acknowledgement of that
        flow has come."""
        before = self._waiting.seconds
        waited = central["unacknowledged_s"] = self._waiting.look(central["outbox_rows"], central["acknowledged"], now)
        if waited < before and before >= UNACKNOWLEDGED_WARNING_S:
            for of_flow in self._waiting_of.values():
                of_flow.begin_anew()
        rows, acknowledged = central.pop("rows_by_flow"), central.pop("acknowledged_by_flow")
        self._waiting_of = {flow: self._waiting_of.get(flow) or AcknowledgementWait() for flow in rows}
        return {
            flow: {
                "outbox_rows": rows[flow],
                "unacknowledged_s": waiting.look(rows[flow], acknowledged.get(flow, 0), now),
            }
            for flow, waiting in self._waiting_of.items()
        }

    def _drops(self) -> list[dict[str, Any]]:
        stages = self._flows.dropped.all(list(self._flows.runs.values()))
        large = {run.flow.name: run for run in list(self._flows.runs.values()) if is_large(run)}
        for where in [where for where in stages if where[0] in large]:
            rows = stages.pop(where)
            stages[where[0], shown_name(large[where[0]], where[1]), where[2]] += rows
        for of_part in self._of_parts:
            for where, rows in of_part().items():
                stages[where] += rows
        return [
            {"flow": flow, "operator": operator, "reason": reason, "rows": rows, "lost": loses_rows(reason)}
            for (flow, operator, reason), rows in sorted(stages.items())
            if rows
        ]

    def _flow(self, run: FlowRun, drops: Sequence[Mapping[str, Any]], now: float) -> dict[str, Any]:
        name = run.flow.name
        recent, meter = self._recent.get(name, RecentActivity()), self._meters.get(name)
        reports = self._reports.get(name) or self._reports_of(run)
        return {
            "name": name,
            "version": run.version,
            "state": self._state(run),
            "epoch": epoch_ordinal(run.epoch),
            "description": run.flow.description,
            "operators": [_operator(run, run.stages[at], told, recent) for at, told in reports.items()],
            "edges": edges_of(run),
            "delivery": run.flow.delivery,
            "rows_shipped": run.rows_shipped,
            "spilled_messages": self._flows.checkpointer.input_spill.messages(run),
            "state_bytes": sum(told.held_bytes for told in reports.values()),
            "gap": self._flows.gaps.get(name, ""),
            "rows_repeated": self._flows.flow_registry.database.repeated[name],
            "latency_ms": recent.latency_ms,
            "balance": recent.balance,
            "dropped": sum(drop["rows"] for drop in drops if drop["flow"] == name and drop["lost"]),
            "dropping": [list(dropping) for dropping in recent.dropping],
            "ahead": _ahead(recent.ahead, reports),
            "unusable": [str(unusable) for unusable in recent.unusable],
            "recent": meter.progress.plain(now) if meter else {},
            "possible_loops": self._possible_loops(name),
            "filters": sorted({source.filter for source in self._flows.flow_registry.sources.get(name, ())}),
            **_input(run, reports),
            "units": units_of(reports),
            **newest_window(run, 0, SHOWN_RESULTS),
        }

    def _state(self, run: FlowRun) -> str:
        part = self._flows.flow_registry.plan_changes.state(run.flow.name)
        return part.value if part is PartState.SUSPENDED else self._flows.checkpointer.state(run)

    def _reports_of(self, run: FlowRun) -> dict[str, Report]:
        return reports_of(run, lambda name: self._host.figures.report(run, name))

    def _possible_loops(self, name: str) -> list[str]:
        flows = {flow: run.version for flow, run in list(self._flows.runs.items())}
        if self._loops[0] != flows:
            self._loops = flows, self._flows.loops.possible()
        return self._loops[1].get(name, [])


def _operator(run: FlowRun, stage: Stage, told: Report, recent: RecentActivity) -> dict[str, Any]:
    """Queue, turns and most times of a region are those of its first stage: see `Report`."""
    kind: str = stage.planned.kind
    if stage.planned.copies > 1:
        number = "all" if is_large(run) else str(stage.planned.copy)
        kind += f", {number} of {stage.planned.copies}"
    fused = len(stage.instance.operators) > len(stage.planned.operators)
    rows_in, rows_out = told.rows_in, told.rows_out
    return {
        "name": shown_name(run, stage.planned.name),
        "type": " + ".join(node.type for node in stage.planned.nodes),
        "gateway": None if run.on_board(stage.planned) else gateway_of(stage.planned),
        "rows_in": rows_in,
        "rows_out": rows_out,
        "rate_in": round(recent.rates.get(stage.planned.name, 0.0), 1),
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
        "utilisation": recent.utilisation.get(stage.planned.name),
        "detail": f"{kind}, fused: {stage.instance.name}" if fused else kind,
    }


def _input(run: FlowRun, reports: Mapping[str, Report]) -> dict[str, Any]:
    """Input of the flow's sources: the newest malformed payload, fields that never came, time that stands still."""
    malformed: dict[str, Any] | None = None
    still = []
    sources: dict[str, list[Report]] = {}
    devices: dict[str, list[DeviceCounts]] = {}
    for name, told in reports.items():
        if run.stages[name].planned.kind != "source" or not run.on_board(run.stages[name].planned):
            continue
        if (topic := run.stages[name].planned.parameters.get("topic")) and "devices" in told.input:
            devices.setdefault(topic.filter, []).append(told.input["devices"])
        bad = told.input.get("malformed")
        if bad and (malformed is None or bad["age_s"] < malformed["age_s"]):
            malformed = {"operator": shown_name(run, name), **bad}
        sources.setdefault(uncopied(name)[0], []).append(told)
        if told.input.get("still"):
            still.append(told.input["still"])
    by_filter = [(filter_, counts) for filter_, copies in devices.items() if (counts := together(copies))]
    return {
        "devices": together(counts for _, counts in by_filter),
        "devices_by_filter": by_filter,
        "malformed": malformed,
        "never_seen": [
            {"operator": name, "fields": found["never_seen"], "came": found["came"], "seen": found["seen"]}
            for name, copies in sources.items()
            if (found := never_seen(copies))
        ],
        "still": min(still, key=itemgetter(1), default=None),  # the copy that holds the others back
        "window_s": max((float(node.parameters.get("size_s", 0.0)) for node in run.flow.nodes.values()), default=0.0),
    }


def _ahead(ahead: RowsAhead | None, reports: Mapping[str, Report]) -> dict[str, Any] | None:
    """Rows ahead of time, where nearly all are, with the newest sample."""
    sample = next((told.input["ahead"] for told in reports.values() if "ahead" in told.input), None)
    return {"rows": ahead.rows, "for_s": ahead.seconds, **sample} if ahead and sample else None


def gateway_of(planned: PhysicalInstance) -> str:
    """The gateway that runs an instance, as the assignment says."""
    return planned.location.gateway if planned.location else ""


def _failed(name: str, why: str) -> dict[str, Any]:
    """A stored flow that could not be started."""
    nothing: dict[str, Any] = {
        "operators": [],
        "edges": [],
        "latest": [],
        "latest_kept": 0,
        "latest_total": 0,
        "keys": [],
        "times": [],
    }
    zero = {"version": 0, "epoch": 0, "rows_shipped": 0, "dropped": 0}
    return {"name": name, "state": "failed", "description": why, **zero, **nothing}
