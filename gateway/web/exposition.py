"""The metrics of a status in Prometheus' text format.

`prometheus_client` is imported at the first scrape only: a board that nobody scrapes does not pay for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from edgert.runtime.metrics import Metric, Sample, samples

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family


class Exposition:
    """Turns a status into Prometheus families."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterable[Family]:
        families: dict[str, Family] = {}
        for sample in samples(self._status):
            family = families.get(sample.metric.name)
            if family is None:
                family = families[sample.metric.name] = _family(sample.metric)
            _add(family, sample)
        return families.values()


def _family(metric: Metric) -> Family:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.name, metric.doc, labels=metric.labels)


def _add(family: Family, sample: Sample) -> None:
    labels = dict(zip(sample.metric.labels, sample.labels, strict=True))
    family.add_sample(sample.metric.name, labels, sample.value)


def render(status: Mapping[str, Any]) -> tuple[bytes, str]:
    """The text of a status's metrics, and its content type."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Exposition(status))
    return generate_latest(registry), CONTENT_TYPE_LATEST
