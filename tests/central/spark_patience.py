"""Waiting for what a Spark stream does beside the test: as long as Spark gets on, however busy the machine is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STILL_S = 120.0
"""Spark stands still when it has begun no job for so long."""
_POLL_S = 0.25
"""A look at a table costs more than a look at a variable, and the stream's own batches run in this process."""


def wait_for_spark(spark: SparkSession, condition: Callable[[], object], what: str) -> None:
    """AssertionError naming `what` when Spark stands still before `condition` holds."""
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    wait_until(condition, what, _STILL_S, scheduler.numTotalJobs, _POLL_S)
