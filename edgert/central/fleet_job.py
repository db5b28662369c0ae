"""The fleet job: a Spark stream per landing table, started when the table appears, started again when it fails."""

from __future__ import annotations

import datetime as dt
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from edgert.central.fleet_table import FleetTable
from edgert.central.lease import Lease, LeaseLost
from edgert.central.stream_reader import StreamReader
from edgert.central.tables import Conflict, TableError, join, list_tables
from edgert.core.errors import EdgertError
from edgert.core.settings import FleetJob as Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("edgert.central.fleet")
LOOK_S: Final = 1.0
RETRY_S: Final = 5.0
LONGEST_WAIT_S: Final = 60.0
PATIENCE_S: Final = 60.0
TELL_S: Final = 30.0
"""How often the register learns how far the streams are: each time is a commit."""


@dataclass(slots=True)
class _Stream:
    table: FleetTable
    query: StreamingQuery | None = None
    failures: int = 0
    not_before: float = 0.0
    batches: int = 0


class FleetJob:
    """Supervises the streams. One job writes the fleet tables of a root: others wait for its lease."""

    def __init__(self, spark: SparkSession, root: str, settings: Settings, lease: Lease | None = None) -> None:
        self._spark = spark
        self._root = root
        self._settings = settings
        self._lease = lease or Lease(root, "fleet", f"{socket.gethostname()}:{os.getpid()}", settings.lease_s)
        self._streams: dict[str, _Stream] = {}
        self._reader = StreamReader(root)
        self._tell_at = 0.0
        self._stopping = threading.Event()
        self._trouble = ""
        """Why the storage could not be used at the last look."""
        # It tells each failure of a batch with its whole traceback; we tell it in a line.
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)

    def stop(self) -> None:
        """End after the batches under way."""
        self._stopping.set()

    def run_once(self) -> None:
        """Process everything that is there, then return. Raises what a stream raised, `LeaseLost`."""
        self._lease.acquire()
        try:
            with self._lease.kept():
                for flow in list_tables(self._root, "landing"):
                    version = self._reader.look(flow)
                    query = self._start(FleetTable(self._root, flow, self._lease), once=True)
                    query.awaitTermination()
                    self._reader.tell_end(flow, version)
        finally:
            self._lease.release()

    def rebuild(self, flow: str) -> Iterator[tuple[dt.date, int]]:
        """As `FleetTable.rebuild`, under the lease: no other job may run meanwhile (`LeaseLost`)."""
        self._lease.acquire()
        try:
            with self._lease.kept():
                yield from FleetTable(self._root, flow, self._lease).rebuild(self._spark)
        finally:
            self._lease.release()

    def run(self) -> None:
        """Until `stop`: waits for the lease, follows every landing table, restarts what fails with a back-off."""
        with self._lease.kept():  # to start a stream takes long on a busy machine
            self._run()

    def _run(self) -> None:
        while not self._stopping.is_set() and not self._acquired():
            self._stopping.wait(RETRY_S)
        while not self._stopping.is_set():
            try:
                self._lease.hold()
                self._look()
                self._tell()
            except LeaseLost as error:
                log.error("%s; its streams stop here", error)
                self._end()
                self._streams.clear()
                if not self._acquired():
                    self._stopping.wait(RETRY_S)
                continue
            except (TableError, Conflict) as error:
                self._failed(error)  # a storage comes back; if that takes too long, the lease is lost as always
            else:
                self._trouble = ""
            self._stopping.wait(LOOK_S)
        self._end()
        self._lease.release()

    def _acquired(self) -> bool:
        try:
            self._lease.acquire()
        except LeaseLost as error:
            log.warning("%s; waiting", error)
            return False
        except TableError as error:
            self._failed(error)
            return False
        return True

    def _failed(self, error: EdgertError) -> None:
        """Said once, not with every look."""
        if str(error) != self._trouble:
            log.error("%s; trying again", error)
        self._trouble = str(error)

    def _look(self) -> None:
        for flow in list_tables(self._root, "landing"):
            if flow not in self._streams:
                self._streams[flow] = _Stream(FleetTable(self._root, flow, self._lease))
                log.info("landing/%s: following", flow)
        for flow, stream in self._streams.items():
            if stream.query is not None and not stream.query.isActive:
                self._ended(flow, stream, stream.query.exception())
            if stream.query is None and time.monotonic() >= stream.not_before:
                try:
                    stream.query = self._start(stream.table, once=False)
                except (PySparkException, Py4JJavaError) as error:  # it looks at the table at once
                    self._ended(flow, stream, error)

    def _tell(self) -> None:
        if time.monotonic() < self._tell_at:
            return
        self._tell_at = time.monotonic() + TELL_S
        queries = {flow: s.query for flow, s in self._streams.items() if s.query is not None and s.query.isActive}
        for flow in self._reader.tell(queries):
            stream = self._streams[flow]
            stream.table.close(PATIENCE_S)
            queries[flow].stop()
            self._ended(flow, stream, None)

    def _ended(self, flow: str, stream: _Stream, error: Exception | None) -> None:
        text = " ".join(str(error).split())[:300] if error else "it ended"
        # A new column ends a stream once, by Delta's rule; the next start goes on with it.
        evolved = "DELTA_SCHEMA_CHANGED" in text
        stream.failures = 0 if evolved else stream.failures + 1
        wait_s = 0.0 if evolved else min(LONGEST_WAIT_S, 2.0**stream.failures)
        stream.not_before = time.monotonic() + wait_s
        stream.query = None
        stream.table = FleetTable(self._root, flow, self._lease)
        if evolved:
            log.info("landing/%s: has new columns, starting again", flow)
        else:
            log.error("landing/%s: stopped, starting again in %.0f s: %s", flow, wait_s, text)

    def _start(self, table: FleetTable, once: bool) -> StreamingQuery:
        if self._reader.ready(table.flow):
            log.warning("landing/%s: not registered any more, reading all of it again", table.flow)
        source = (
            self._spark.readStream.format("delta")
            .option("skipChangeCommits", "true")
            .option("maxFilesPerTrigger", self._settings.max_files_per_trigger)
            .load(join(self._root, "landing", table.flow))
        )
        writer = (
            source.writeStream.queryName(f"fleet-{table.flow}")
            .option("checkpointLocation", self._reader.checkpoint(table.flow))
            .foreachBatch(table.update)
        )
        if once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._settings.trigger_s} seconds").start()

    def _end(self) -> None:
        for stream in self._streams.values():
            if stream.query is not None:
                stream.table.close(PATIENCE_S)
                stream.query.stop()
                stream.query = None


def stop_on_signal(stop: Callable[[], None]) -> None:
    """SIGTERM and SIGINT end the job after the batches under way."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())
