"""All metrics, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edgert.runtime.metrics import central, checkpoints, flows, gateway, ingest, operators, slots
from edgert.runtime.metrics.bounded import MOST_SERIES, Bounded
from edgert.runtime.metrics.metric import Metric, Sample
from edgert.runtime.metrics.readers import StatusObject

SUMMED: Final = Metric(
    "edgert_summed_series",
    "gauge",
    "",
    f"Series that are told together: of a metric the first {MOST_SERIES} have one each, all others one with the label "
    "(others), the sum of counters, rows, messages and bytes, and the greatest of all else.",
    (),
    lambda status: (),
)
METRICS: tuple[Metric, ...] = (
    *(metric for part in (gateway, ingest, operators, slots, flows, checkpoints, central) for metric in part.METRICS),
    SUMMED,
)


def samples(status: StatusObject) -> Iterator[Sample]:
    """Every value that `status` holds, metric by metric in the order of `METRICS`. What is missing is left out; where a
    metric has too many series, the last are told as one."""
    bounded = Bounded()
    for metric in METRICS:
        yield from bounded.samples(metric, metric.read(status))
    yield Sample(SUMMED, (), float(bounded.summed))
