"""The fleet job: a Spark stream per landing table, started when the table appears, started again when it fails."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from edgert.central.fleet.on_reading import progress
from edgert.central.fleet.table import FleetTable
from edgert.central.fleet.touched_windows import COLUMNS
from edgert.central.fleet.written_marker import APPLICATION, Written
from edgert.central.spark.errors import OF_SPARK, hint, reason, told_by_spark
from edgert.central.spark.leased_job import Job
from edgert.central.spark.session import forget_tables
from edgert.central.spark.stream_reader import StreamReader, source
from edgert.central.spark.streams import RunningQuery, Streams
from edgert.central.tables.lease import TableLease, own_name
from edgert.central.tables.table import CommitConflict, Table, TableError, join, list_tables
from edgert.core.errors import EdgertError
from edgert.core.settings.central import FleetJob as Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("edgert.central.fleet")


class FleetJob(Job):
    """One job writes the fleet tables of a root: others wait for its lease."""

    def __init__(self, spark: SparkSession, root: str, settings: Settings, lease: TableLease | None = None) -> None:
        own = lease or TableLease(root, "fleet", own_name(), settings.lease_s)
        super().__init__(own, log, Streams(on_failure=partial(forget_tables, spark)))
        self._spark = spark
        self._root = root
        self._settings = settings
        self._reader = StreamReader(root)

    def run_once(self) -> None:
        """Process everything that is there, then return. A flow that fails keeps no other waiting: at the end
        `EdgertError` names those that did. Raises `LeaseLost`."""
        failed = []
        self._lease.acquire()
        try:
            with self._lease.kept():
                for flow in list_tables(self._root, "landing"):
                    self._lease.hold()
                    try:
                        version = self._reader.look(flow)
                        self._start(flow, once=True).query.awaitTermination()
                        self._reader.tell_end(flow, version)
                    except (*OF_SPARK, TableError, CommitConflict) as error:
                        why = reason(error) if isinstance(error, OF_SPARK) else str(error)
                        failed.append(f"{source(flow)}: could not be processed: {why}{hint(why)}")
        finally:
            self._lease.release()
        if failed:
            raise EdgertError("\n".join(failed))

    def rebuild(self, flow: str) -> Iterator[tuple[dt.date, int]]:
        """Works as `FleetTable.rebuild`, under the lease: no other job may run meanwhile (`LeaseLost`)."""
        self._lease.acquire()
        try:
            with self._lease.kept(), told_by_spark(f"fleet/{flow}: could not be made anew"):
                written = Written(self._reader.checkpoint(flow))
                yield from FleetTable(self._root, flow, self._lease, written).rebuild(self._spark)
        finally:
            self._lease.release()

    def follow(self) -> None:
        for flow in list_tables(self._root, "landing"):
            self.streams.add(source(flow), partial(self._start, flow, once=False))

    def _register(self, queries: Mapping[str, StreamingQuery]) -> Collection[str]:
        left = self._reader.tell({name.removeprefix(source("")): query for name, query in queries.items()})
        return [source(flow) for flow in left]

    def _start(self, flow: str, once: bool) -> RunningQuery:
        fleet = Table(join(self._root, "fleet", flow))
        written = Written(self._reader.checkpoint(flow))
        lacks = written.why_incomplete(fleet, APPLICATION) if fleet.refresh() else f"there is no fleet/{flow}"
        if why := self._reader.ready(flow, lacks):
            log.warning("landing/%s: %s, reading all of it again", flow, why)
        log.info("%s", progress(self._root, flow).sentence(flow, time.time()))
        table = FleetTable(self._root, flow, self._lease, written)
        landing = (
            self._spark.readStream.format("delta")
            .option("skipChangeCommits", "true")
            .option("maxFilesPerTrigger", self._settings.max_files_per_trigger)
            .load(join(self._root, "landing", flow))
            .select(*COLUMNS)
        )
        writer = (
            landing.writeStream.queryName(f"fleet-{flow}")
            .option("checkpointLocation", self._reader.checkpoint(flow))
            .foreachBatch(table.update)
        )
        if once:
            return RunningQuery(writer.trigger(availableNow=True).start(), table.door)
        return RunningQuery(writer.trigger(processingTime=f"{self._settings.trigger_s} seconds").start(), table.door)
