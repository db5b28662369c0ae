"""The description of a metric. Names follow the Prometheus rules: base units, counters end in `_total`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from edgert.runtime.metrics.readers import Labelled, Status


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
