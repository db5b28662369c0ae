"""The operators of the flows."""

from __future__ import annotations

from edgert.runtime.metrics.metric import Metric
from edgert.runtime.metrics.readers import each_operator

_LABELS = ("flow", "operator", "type")

METRICS = (
    Metric(
        "edgert_operator_rows_in_total",
        "counter",
        "rows",
        "Rows that an operator took in (for a source: messages, also those that cannot be decoded).",
        _LABELS,
        each_operator("rows_in"),
    ),
    Metric(
        "edgert_operator_rows_out_total",
        "counter",
        "rows",
        "Rows that an operator gave on, however many receive them. A window that feeds `ship` and others gives "
        "contributions and results, and both count.",
        _LABELS,
        each_operator("rows_out"),
    ),
    Metric(
        "edgert_operator_queue_rows",
        "gauge",
        "rows",
        "Rows (for a source: messages) that wait in front of an operator; a batch without any counts as one.",
        _LABELS,
        each_operator("queue_rows"),
    ),
    Metric(
        "edgert_operator_queue_bytes",
        "gauge",
        "bytes",
        "Estimated memory of what waits in front of an operator.",
        _LABELS,
        each_operator("queue_bytes"),
    ),
    Metric(
        "edgert_operator_busy_seconds_total",
        "counter",
        "seconds",
        "Time that the pool spent in an operator; in a region of operators shared out by samples.",
        _LABELS,
        each_operator("busy_s"),
    ),
    Metric(
        "edgert_operator_queued_seconds_total",
        "counter",
        "seconds",
        "Time that the oldest batch of each turn had stood behind others in the queue (T_Q), over all turns.",
        _LABELS,
        each_operator("queued_s"),
    ),
    Metric(
        "edgert_operator_scheduling_seconds_total",
        "counter",
        "seconds",
        "Time that it had stood at the head while its operator waited for a worker (T_S), over all turns.",
        _LABELS,
        each_operator("scheduling_s"),
    ),
    Metric(
        "edgert_operator_queue_age_seconds",
        "gauge",
        "seconds",
        "Age of what has waited longest in front of an operator.",
        _LABELS,
        each_operator("queue_age_s"),
    ),
    Metric(
        "edgert_operator_utilisation_ratio",
        "gauge",
        "ratio",
        "Part of the time since the request before in which something was queued or running; of a region at its first.",
        _LABELS,
        each_operator("utilisation"),
    ),
    Metric(
        "edgert_operator_turns_total",
        "counter",
        "turns",
        "Turns that the pool gave to an operator.",
        _LABELS,
        each_operator("turns"),
    ),
    Metric(
        "edgert_operator_failures_total",
        "counter",
        "failures",
        "Times that an operator raised on a row by itself, or on a batch that cannot be taken apart; and rows that an "
        "operator of a package gave with a value that rows cannot hold.",
        _LABELS,
        each_operator("failures"),
    ),
    Metric(
        "edgert_operator_retries_total",
        "counter",
        "rows",
        "Rows that an operator is given again, later, because it raised on them.",
        _LABELS,
        each_operator("retries"),
    ),
    Metric(
        "edgert_operator_dead_letters_total",
        "counter",
        "messages",
        "Rows at fault that were sent on to the topic of the flow's on_error; they also count as dropped.",
        _LABELS,
        each_operator("dead_letters"),
    ),
)
