"""All metrics, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Iterator

from edgert.runtime.metrics import central, checkpoints, flows, gateway, ingest, operators, slots
from edgert.runtime.metrics.metric import Metric, Sample
from edgert.runtime.metrics.readers import Status

METRICS: tuple[Metric, ...] = tuple(
    metric for part in (gateway, ingest, operators, slots, flows, checkpoints, central) for metric in part.METRICS
)


def samples(status: Status) -> Iterator[Sample]:
    """Every value that `status` holds, metric by metric in the order of `METRICS`. What is missing is left out."""
    for metric in METRICS:
        for labels, value in metric.read(status):
            if isinstance(value, (bool, int, float)):
                yield Sample(metric, labels, float(value))
