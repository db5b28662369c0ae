"""The part of `edgert central run` that raises alerts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from edgert.central.alerts.job import AlertJob
    from edgert.central.alerts.rules import AlertRule
    from edgert.central.fleet.job import FleetJob
    from edgert.core.settings.central import CollectorSettings


def rules(settings: CollectorSettings) -> Sequence[AlertRule]:
    """Rules of the documents in the settings. Raises `EdgertError` for one that is wrong, before Spark starts."""
    if not settings.alerts.files:
        return ()
    from edgert.central.alerts.job import check_packages
    from edgert.central.alerts.rules import load

    check_packages()
    return load(settings.alerts.files)


@contextmanager
def raised(
    spark: SparkSession, root: str, found: Sequence[AlertRule], settings: CollectorSettings
) -> Iterator[AlertJob | None]:
    """Meanwhile alerts are raised and cleared as `found` says; without rules, those that are open are cleared."""
    if not found and not _raised_before(root):
        yield None
        return
    from edgert.central.alerts.job import AlertJob
    from edgert.central.training.publication import Publication

    publication = Publication(settings.central, settings.collector.fleet) if settings.alerts.publish else None
    job = AlertJob(spark, root, found, settings.alerts, publication)
    job.start()
    try:
        yield job
    finally:
        job.close()


def _raised_before(root: str) -> bool:
    from edgert.central.alerts.table import TABLE
    from edgert.central.tables.table import Table, TableError, join

    try:
        return Table(join(root, TABLE)).refresh()
    except TableError:  # whoever needs the storage says so, and waits
        return False


def status(job: FleetJob, alerts: AlertJob | None) -> dict[str, Any]:
    """The status object for `edgert.central.spark.metrics`."""
    streams, restarts, batch_s = dict(job.streams.states()), dict(job.streams.restarts), job.streams.batch_s()
    if alerts is not None:
        streams.update(alerts.streams.states())
        restarts.update(alerts.streams.restarts)
        batch_s |= alerts.streams.batch_s()
    counts = dict(alerts.counts) if alerts else {}
    ahead = dict(alerts.ahead) if alerts else {}
    return {"streams": streams, "batch_s": batch_s, "restarts": restarts, "alerts": counts, "ahead": ahead}
