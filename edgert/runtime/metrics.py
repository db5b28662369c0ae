"""Every metric of a gateway, declared once: Prometheus, the page's tooltips and `docs/metrics.md` follow from here.

A metric is read out of the gateway's status (the mapping that `/api/status` sends), so whatever is measured is also
visible there. Names follow the Prometheus rules: base units, counters end in `_total`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from edgert.runtime.status_readers import (
    Labelled,
    Status,
    at,
    drops,
    each_flow,
    each_operator,
    each_slot,
    info,
    latency,
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: `read` finds its values in a status."""

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    doc: str
    labels: tuple[str, ...]
    read: Callable[[Status], Iterable[Labelled]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one metric. `labels` belongs to `metric.labels`, position by position."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


_OPERATOR = ("flow", "operator", "type")

METRICS: tuple[Metric, ...] = (
    Metric(
        "edgert_gateway_info",
        "gauge",
        "",
        "Always 1; says which gateway, fleet and version this is.",
        ("gateway", "fleet", "version"),
        info,
    ),
    Metric("edgert_uptime_seconds", "gauge", "seconds", "Time since the gateway started.", (), at("uptime_s")),
    Metric("edgert_resident_bytes", "gauge", "bytes", "Resident memory of the gateway process.", (), at("rss_bytes")),
    Metric(
        "edgert_cpu_ratio",
        "gauge",
        "ratio",
        "CPU used by the gateway process; 1 is one core fully used.",
        (),
        at("cpu_percent", scale=0.01),
    ),
    Metric(
        "edgert_ingest_connected",
        "gauge",
        "",
        "1 while the sensors' broker is connected, else 0.",
        (),
        at("ingest", "connected"),
    ),
    Metric(
        "edgert_ingest_messages_total",
        "counter",
        "messages",
        "Messages received from the sensors' broker.",
        (),
        at("ingest", "messages"),
    ),
    Metric(
        "edgert_ingest_bytes_total",
        "counter",
        "bytes",
        "Bytes received from the sensors' broker.",
        (),
        at("ingest", "bytes"),
    ),
    Metric(
        "edgert_ingest_unacknowledged_messages",
        "gauge",
        "messages",
        "Messages received and not yet acknowledged: no checkpoint covers them yet.",
        (),
        at("ingest", "unacknowledged"),
    ),
    Metric(
        "edgert_ingest_reconnects_total",
        "counter",
        "connections",
        "Connections to the sensors' broker made after the first one.",
        (),
        at("ingest", "reconnects"),
    ),
    Metric(
        "edgert_ingest_sessions_lost_total",
        "counter",
        "sessions",
        "Connections on which the broker had no session for us: what it held is lost to us.",
        (),
        at("ingest", "sessions_lost"),
    ),
    Metric(
        "edgert_ingest_redelivered_messages_total",
        "counter",
        "messages",
        "Messages that the broker delivered again and that were told from new ones.",
        (),
        at("ingest", "redelivered"),
    ),
    Metric(
        "edgert_ingest_ambiguous_messages_total",
        "counter",
        "messages",
        "Messages taken for redeliveries that may have been new, equal ones; they were dropped.",
        (),
        at("ingest", "ambiguous"),
    ),
    Metric(
        "edgert_operator_rows_in_total",
        "counter",
        "rows",
        "Rows that an operator took in (for a source: rows decoded).",
        _OPERATOR,
        each_operator("rows_in"),
    ),
    Metric(
        "edgert_operator_rows_out_total",
        "counter",
        "rows",
        "Rows that an operator gave on.",
        _OPERATOR,
        each_operator("rows_out"),
    ),
    Metric(
        "edgert_operator_queue_rows",
        "gauge",
        "rows",
        "Rows (for a source: messages) that wait in front of an operator.",
        _OPERATOR,
        each_operator("queue_rows"),
    ),
    Metric(
        "edgert_operator_queue_bytes",
        "gauge",
        "bytes",
        "Estimated memory of what waits in front of an operator.",
        _OPERATOR,
        each_operator("queue_bytes"),
    ),
    Metric(
        "edgert_operator_busy_seconds_total",
        "counter",
        "seconds",
        "Time that the pool spent in an operator.",
        _OPERATOR,
        each_operator("busy_s"),
    ),
    Metric(
        "edgert_operator_queued_seconds_total",
        "counter",
        "seconds",
        "Time that the oldest batch of each turn had stood in the queue while its operator ran (T_Q), over all turns.",
        _OPERATOR,
        each_operator("queued_s"),
    ),
    Metric(
        "edgert_operator_scheduling_seconds_total",
        "counter",
        "seconds",
        "Time that it had stood there while its operator waited for a worker (T_S), over all turns.",
        _OPERATOR,
        each_operator("scheduling_s"),
    ),
    Metric(
        "edgert_operator_queue_age_seconds",
        "gauge",
        "seconds",
        "Age of what has waited longest in front of an operator.",
        _OPERATOR,
        each_operator("queue_age_s"),
    ),
    Metric(
        "edgert_operator_utilisation_ratio",
        "gauge",
        "ratio",
        "Part of the last second in which something was queued or running; for a line of operators at its first.",
        _OPERATOR,
        each_operator("utilisation"),
    ),
    Metric(
        "edgert_operator_turns_total",
        "counter",
        "turns",
        "Turns that the pool gave to an operator.",
        _OPERATOR,
        each_operator("turns"),
    ),
    Metric(
        "edgert_slot_running",
        "gauge",
        "",
        "1 while the process of a slot runs, 0 while it waits to be started again.",
        ("slot",),
        each_slot("running"),
    ),
    Metric(
        "edgert_slot_restarts_total",
        "counter",
        "restarts",
        "Times that a slot died and was started again.",
        ("slot",),
        each_slot("restarts"),
    ),
    Metric(
        "edgert_slot_instances",
        "gauge",
        "instances",
        "Instances of flows that run in a slot.",
        ("slot",),
        each_slot("instances"),
    ),
    Metric(
        "edgert_slot_resident_bytes",
        "gauge",
        "bytes",
        "Resident memory of a slot.",
        ("slot",),
        each_slot("rss_bytes"),
    ),
    Metric(
        "edgert_slot_cpu_seconds_total",
        "counter",
        "seconds",
        "CPU used by a slot since it started.",
        ("slot",),
        each_slot("cpu_s"),
    ),
    Metric(
        "edgert_slot_backlog_bytes",
        "gauge",
        "bytes",
        "Input on its way to a slot that has not taken it yet.",
        ("slot",),
        each_slot("backlog_bytes"),
    ),
    Metric(
        "edgert_operator_failures_total",
        "counter",
        "failures",
        "Times that an operator raised on a row by itself, or on a batch that cannot be taken apart.",
        _OPERATOR,
        each_operator("failures"),
    ),
    Metric(
        "edgert_operator_retries_total",
        "counter",
        "rows",
        "Rows that an operator is given again, later, because it raised on them.",
        _OPERATOR,
        each_operator("retries"),
    ),
    Metric(
        "edgert_operator_dead_letters_total",
        "counter",
        "messages",
        "Rows at fault that were sent on to the topic of the flow's on_error; they also count as dropped.",
        _OPERATOR,
        each_operator("dead_letters"),
    ),
    Metric(
        "edgert_flow_balance_ratio",
        "gauge",
        "ratio",
        "Coefficient of variation of the utilisation over a flow's instances; 0 is all alike.",
        ("flow",),
        each_flow(lambda flow: flow.get("balance")),
    ),
    Metric(
        "edgert_flow_latency_seconds",
        "gauge",
        "seconds",
        "Time from arrival to a sink within which so many of a flow's rows of the last second came.",
        ("flow", "quantile"),
        latency,
    ),
    Metric(
        "edgert_flow_running",
        "gauge",
        "",
        "1 while a flow runs, 0 while it is stopped.",
        ("flow",),
        each_flow(lambda flow: flow.get("state") == "running"),
    ),
    Metric(
        "edgert_flow_version",
        "gauge",
        "",
        "Version of the document that a flow runs.",
        ("flow",),
        each_flow(lambda flow: flow.get("version")),
    ),
    Metric(
        "edgert_flow_shipped_rows_total",
        "counter",
        "rows",
        "Result rows of a flow that went into the outbox.",
        ("flow",),
        each_flow(lambda flow: flow.get("rows_shipped")),
    ),
    Metric(
        "edgert_dropped_rows_total",
        "counter",
        "rows",
        "Rows (or messages) dropped, by place and reason. Nothing is dropped without being counted here.",
        ("flow", "operator", "reason"),
        drops,
    ),
    Metric(
        "edgert_checkpoint_commits_total",
        "counter",
        "commits",
        "Checkpoints committed to the database.",
        (),
        at("checkpoint", "commits"),
    ),
    Metric(
        "edgert_checkpoint_failures_total",
        "counter",
        "commits",
        "Checkpoints whose commit failed; their content stays pending and goes into the next.",
        (),
        at("checkpoint", "failures"),
    ),
    Metric(
        "edgert_checkpoint_blocked_total",
        "counter",
        "checkpoints",
        "Checkpoints put off because a flow reached no boundary in time.",
        (),
        at("checkpoint", "blocked"),
    ),
    Metric(
        "edgert_checkpoint_last_seconds",
        "gauge",
        "seconds",
        "Duration of the last checkpoint.",
        (),
        at("checkpoint", "last_ms", scale=0.001),
    ),
    Metric(
        "edgert_central_connected",
        "gauge",
        "",
        "1 while the central broker is connected, else 0.",
        (),
        at("central", "connected"),
    ),
    Metric(
        "edgert_outbox_batches",
        "gauge",
        "batches",
        "Result batches that the collector has not acknowledged yet.",
        (),
        at("central", "outbox_batches"),
    ),
    Metric("edgert_outbox_rows", "gauge", "rows", "Result rows in the outbox.", (), at("central", "outbox_rows")),
    Metric(
        "edgert_outbox_bytes",
        "gauge",
        "bytes",
        "Size of the outbox in the database.",
        (),
        at("central", "outbox_bytes"),
    ),
    Metric(
        "edgert_outbox_acknowledged_total",
        "counter",
        "batches",
        "Result batches that the collector acknowledged.",
        (),
        at("central", "acknowledged"),
    ),
    Metric(
        "edgert_central_last_ack_age_seconds",
        "gauge",
        "seconds",
        "Time since the collector's last acknowledgement; absent before the first.",
        (),
        at("central", "last_ack_age_s"),
    ),
)


def samples(status: Status) -> Iterator[Sample]:
    """Every value that `status` holds, metric by metric in the order of `METRICS`. What is missing is left out."""
    for metric in METRICS:
        for labels, value in metric.read(status):
            if isinstance(value, (bool, int, float)):
                yield Sample(metric, labels, float(value))


def markdown() -> str:
    """The metrics as a Markdown page (`docs/metrics.md`)."""
    head = (
        "# Metrics\n\n"
        "A gateway serves these at `/metrics` of its web port (Prometheus text format). This page is generated by\n"
        "`python -m edgert.runtime.metrics` from the declarations in `edgert/runtime/metrics.py`.\n\n"
        "| name | kind | unit | labels | meaning |\n|---|---|---|---|---|\n"
    )
    return head + "".join(
        f"| `{m.name}` | {m.kind} | {m.unit or '–'} | {', '.join(m.labels) or '–'} | {m.doc} |\n" for m in METRICS
    )


if __name__ == "__main__":
    print(markdown(), end="")
