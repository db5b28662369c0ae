"""A job of Spark streams that only one process runs: it waits for the lease, follows its tables, tells the register."""

from __future__ import annotations

import logging
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from edgert.central.spark.streams import Streams
from edgert.central.tables.lease import LeaseLost, TableLease
from edgert.central.tables.table import CommitConflict, TableError
from edgert.core.errors import EdgertError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S: Final = 1.0
RETRY_S: Final = 5.0
TELL_S: Final = 30.0
"""How often the register learns how far the streams are: each time is a commit."""


class Job(ABC):
    """`run` is for one thread, `stop` for any."""

    _waits_out: ClassVar[tuple[type[EdgertError], ...]] = (TableError, CommitConflict)
    """Errors that do not end the job: a storage comes back, and if that takes too long, the lease is lost as always."""

    def __init__(self, lease: TableLease, log: logging.Logger, streams: Streams) -> None:
        self._lease = lease
        self._log = log
        self.streams = streams
        self.look_s, self.retry_s, self.tell_s = LOOK_S, RETRY_S, TELL_S
        self._tell_at = 0.0
        self._stopping = threading.Event()
        self._trouble = ""
        """Why the last look came to nothing."""
        self._waits_for = ""
        """The holder of the lease, as far as it was logged."""

    @abstractmethod
    def follow(self) -> None:
        """Add the streams that there ought to be. Raises `TableError`, `CommitConflict`, `LeaseLost`."""

    @abstractmethod
    def _register(self, queries: Mapping[str, StreamingQuery]) -> Collection[str]:
        """Tell the register how far streams are; returns those that were left behind. Raises as `follow`."""

    def stop(self) -> None:
        """End after the batches under way."""
        self._stopping.set()

    def run(self) -> None:
        """Runs until `stop`: waits for the lease, follows the tables, restarts what fails. Raises `AllGivenUp`."""
        with self._lease.kept():  # to start a stream takes long on a busy machine
            self._run()

    def _run(self) -> None:
        self._wait_for_lease()
        try:
            while not self._stopping.is_set():
                self._round()
        finally:
            try:
                self.streams.end()
            finally:  # whatever became of Spark, the next job need not wait
                self._lease.release()

    def _round(self) -> None:
        try:
            self._lease.hold()
            self.follow()
            self.streams.look()
            self._tell()
        except LeaseLost as error:
            self._log.error("%s; its streams stop here", error)
            self.streams.end()
            self._wait_for_lease()
            return
        except self._waits_out as error:
            self._failed(error)
        else:
            self._trouble = ""
        self._stopping.wait(self.look_s)

    def _wait_for_lease(self) -> None:
        while not self._stopping.is_set() and not self._acquired():
            self._stopping.wait(self.retry_s)

    def _acquired(self) -> bool:
        try:
            self._lease.acquire()
        except LeaseLost as error:
            holder = error.holder or str(error)
            if holder != self._waits_for:  # a standby waits for weeks
                self._log.warning("%s; waiting", error)
            self._waits_for = holder
            return False
        except TableError as error:
            self._failed(error)
            return False
        self._waits_for = ""
        return True

    def _failed(self, error: EdgertError) -> None:
        """Said once, not with every look."""
        if str(error) != self._trouble:
            self._log.error("%s; trying again", error)
        self._trouble = str(error)

    def _tell(self) -> None:
        if time.monotonic() < self._tell_at:
            return
        self._tell_at = time.monotonic() + self.tell_s
        for name in self._register(self.streams.running()):
            self.streams.begin_anew(name)


def stop_on_signal(stop: Callable[[], None]) -> None:
    """SIGTERM, SIGINT and SIGHUP (its terminal is closed; not under nohup) end the job after the batches under way."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: stop())
