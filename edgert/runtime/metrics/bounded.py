"""The bound on the series of a metric: the first ones by themselves, the others together as one.

A series costs memory in Prometheus for as long as it is kept, and a scrape of a Raspberry Pi has to end in time. Flows
and operators have names that anybody may choose, so their number is not ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from edgert.runtime.metrics.metric import Metric, Sample
from edgert.runtime.metrics.readers import Labelled

MOST_SERIES: Final = 500
"""Most series of one metric, beside the one that holds all others."""
OTHERS: Final = "(others)"
"""In place of each label."""
_ADDED: Final = ("rows", "messages", "bytes", "failures", "turns")
"""Units of gauges of which the others' is a sum; of all other gauges it is the greatest."""


class Bounded:
    """Bounds metric after metric; counts in `summed` the series that have none of their own."""

    def __init__(self) -> None:
        self.summed = 0

    def samples(self, metric: Metric, found: Iterable[Labelled]) -> Iterator[Sample]:
        """The samples of one metric. Of a value that is not known there is none."""
        adds = metric.kind == "counter" or metric.unit in _ADDED
        told, others, beyond = 0, 0.0, 0
        for labels, value in found:
            if not isinstance(value, (bool, int, float)):
                continue
            if told < MOST_SERIES:
                told += 1
                yield Sample(metric, labels, float(value))
            else:
                others = float(value) if not beyond else others + value if adds else max(others, value)
                beyond += 1
        if beyond:
            self.summed += beyond
            yield Sample(metric, (OTHERS,) * len(metric.labels), others)
