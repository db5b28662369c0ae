"""The description of a metric. Names follow the Prometheus rules: base units, counters end in `_total`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from edgert.runtime.metrics.readers import Labelled, StatusObject


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: `read` finds its values in a status."""

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    doc: str
    labels: tuple[str, ...]
    read: Callable[[StatusObject], Iterable[Labelled]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one metric. `labels` belongs to `metric.labels`, position by position."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


def markdown(head: str, metrics: Iterable[Metric]) -> str:
    """A page of the docs: `head`, and a table of the metrics."""
    return f"{head}\n| name | kind | unit | labels | meaning |\n|---|---|---|---|---|\n" + "".join(
        f"| `{m.name}` | {m.kind} | {m.unit or '–'} | {', '.join(m.labels) or '–'} | {m.doc} |\n" for m in metrics
    )
