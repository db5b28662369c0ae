"""Every metric of a gateway, declared once: Prometheus, the page's tooltips and `docs/metrics.md` follow from here.

A metric is read out of the gateway's status (the mapping that `/api/status` sends), so whatever is measured is also
visible there. Each file beside this one declares those of one part of the gateway.
"""

from edgert.runtime.metrics.catalogue import METRICS, samples
from edgert.runtime.metrics.metric import Metric, Sample

__all__ = ["METRICS", "Metric", "Sample", "samples"]
