"""The slots: processes that run operators, where there are any (`pool.slots`)."""

from __future__ import annotations

from edgert.runtime.metrics.metric import Metric
from edgert.runtime.metrics.readers import each_slot

METRICS = (
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
        "What the gateway holds for a slot that has not taken it yet, mostly input.",
        ("slot",),
        each_slot("backlog_bytes"),
    ),
    Metric(
        "edgert_slot_unsent_bytes",
        "gauge",
        "bytes",
        "What a slot holds for other slots and the gateway that they have not taken yet.",
        ("slot",),
        each_slot("unsent_bytes"),
    ),
)
