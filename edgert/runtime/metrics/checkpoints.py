"""The checkpoints."""

from __future__ import annotations

from edgert.runtime.metrics.metric import Metric
from edgert.runtime.metrics.readers import at

METRICS = (
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
        "edgert_checkpoint_missed_total",
        "counter",
        "checkpoints",
        "Checkpoints put off because a flow reached no batch boundary in time.",
        (),
        at("checkpoint", "missed"),
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
        "edgert_checkpoint_pause_seconds",
        "gauge",
        "seconds",
        "For how much of that a flow stood still (with slots: until all had answered).",
        (),
        at("checkpoint", "pause_ms", scale=0.001),
    ),
)
