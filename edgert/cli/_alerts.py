"""The part of `edgert central run` that raises alerts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from edgert.central.alert_rules import Rule
    from edgert.core.settings import CollectorSettings


def rules(settings: CollectorSettings) -> Sequence[Rule]:
    """Those of the documents in the settings. Raises `EdgertError` for one that is wrong, before Spark starts."""
    if not settings.alerts.files:
        return ()
    from edgert.central.alert_job import check_packages
    from edgert.central.alert_rules import load

    check_packages()
    return load(settings.alerts.files)


@contextmanager
def raised(spark: SparkSession, root: str, found: Sequence[Rule], settings: CollectorSettings) -> Iterator[None]:
    """Meanwhile alerts are raised and cleared as `found` says; nothing if there are no rules."""
    if not found:
        yield
        return
    from edgert.central.alert_job import AlertJob
    from edgert.central.publication import Publication

    publication = Publication(settings.central, settings.collector.fleet) if settings.alerts.publish else None
    job = AlertJob(spark, root, found, settings.alerts, publication)
    job.start()
    try:
        yield
    finally:
        job.close()
