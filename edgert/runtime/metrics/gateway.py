"""The gateway process."""

from __future__ import annotations

from edgert.runtime.metrics.metric import Metric
from edgert.runtime.metrics.readers import at, info, levels

METRICS = (
    Metric(
        "edgert_gateway_info",
        "gauge",
        "",
        "Always 1; says which gateway, fleet and version this is.",
        ("gateway", "fleet", "version"),
        info,
    ),
    Metric(
        "edgert_part_level",
        "gauge",
        "",
        "How a part is: 0 good or idle, 1 a warning, 2 bad. Page and `/healthz` give the reason.",
        ("part", "name"),
        levels,
    ),
    Metric("edgert_uptime_seconds", "gauge", "seconds", "Time since the gateway started.", (), at("uptime_s")),
    Metric("edgert_resident_bytes", "gauge", "bytes", "Resident memory of the gateway process.", (), at("rss_bytes")),
    Metric(
        "edgert_state_limit_bytes",
        "gauge",
        "bytes",
        "Most that operators of all flows may keep by key; beyond it they forget the oldest.",
        (),
        at("state_limit_bytes"),
    ),
    Metric(
        "edgert_cpu_ratio",
        "gauge",
        "ratio",
        "CPU used by the gateway process; 1 is one core fully used.",
        (),
        at("cpu_percent", scale=0.01),
    ),
    Metric(
        "edgert_written_bytes_total",
        "counter",
        "bytes",
        "What the gateway process has had written to disks, as the kernel counts it: the wear of a card.",
        (),
        at("written_bytes"),
    ),
    Metric(
        "edgert_certificate_left_seconds",
        "gauge",
        "seconds",
        "Time until the gateway's own certificate ends; missing where it has none, or one that cannot be read.",
        (),
        at("certificate", "left_s"),
    ),
)
