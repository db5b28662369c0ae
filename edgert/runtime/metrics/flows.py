"""The flows, and what was dropped anywhere in them."""

from __future__ import annotations

from edgert.runtime.metrics.metric import Metric
from edgert.runtime.metrics.readers import drops, each_flow, latency

METRICS = (
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
        "Time from arrival to a sink within which so many of a flow's rows came, of those since the request before.",
        ("flow", "quantile"),
        latency,
    ),
    Metric(
        "edgert_flow_running",
        "gauge",
        "",
        "1 while a flow runs, 0 while it is stopped.",
        ("flow",),
        each_flow(lambda flow: flow.get("state") != "failed"),
    ),
    Metric(
        "edgert_flow_blocked",
        "gauge",
        "",
        "1 while a flow that keeps all its results waits for room in the outbox: nothing of it is acknowledged.",
        ("flow",),
        each_flow(lambda flow: flow.get("state") == "blocked"),
    ),
    Metric(
        "edgert_flow_stuck",
        "gauge",
        "",
        "1 while a flow reaches no batch boundary, so that its input goes to the database.",
        ("flow",),
        each_flow(lambda flow: flow.get("state") == "stuck"),
    ),
    Metric(
        "edgert_flow_spilled_messages",
        "gauge",
        "messages",
        "Input of a flow that is in the database because no checkpoint covers it.",
        ("flow",),
        each_flow(lambda flow: flow.get("spilled_messages")),
    ),
    Metric(
        "edgert_flow_state_bytes",
        "gauge",
        "bytes",
        "Memory of what the operators of a flow keep by key, about.",
        ("flow",),
        each_flow(lambda flow: flow.get("state_bytes")),
    ),
    Metric(
        "edgert_flow_fell_back",
        "gauge",
        "",
        "1 while a flow runs that went back to an older checkpoint at this start, because what was stored was damaged.",
        ("flow",),
        each_flow(lambda flow: bool(flow.get("gap"))),
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
        "edgert_flow_repeated_rows_total",
        "counter",
        "rows",
        "Result rows of an at-least-once flow that had left when a crash took it back to its last checkpoint: they are "
        "made again, and count twice, but for those that the outbox shed before they were sent: so many at most. Over "
        "all starts.",
        ("flow",),
        each_flow(lambda flow: flow.get("rows_repeated")),
    ),
    Metric(
        "edgert_dropped_rows_total",
        "counter",
        "rows",
        "Rows (or messages) dropped, by operator and reason. Nothing is dropped without being counted here.",
        ("flow", "operator", "reason"),
        drops,
    ),
)
