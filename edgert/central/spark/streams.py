"""Keeps Spark's streams running: starts them, looks at why one ended, starts it again.

A new column of a landing table ends its streams once, by Delta's rule: such a stream goes on at once. One that failed
is tried again after a wait that doubles, for so many times in a row; then it is given up, and the others go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from edgert.central.spark.errors import OF_SPARK, hint, reason
from edgert.central.tables.table import CommitConflict, TableError
from edgert.core.errors import EdgertError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("edgert.central.streams")
LONGEST_WAIT_S: Final = 60.0
TRIES: Final = 20
"""Failures in a row until a stream is given up: some 16 minutes."""
GIVEN_UP_S: Final = 3_600.0
"""Seconds until a stream that was given up is tried once more: its fault may be mended without a word to this job."""
HEALTHY_S: Final = 120.0
"""Seconds after which a running stream counts as healthy; earlier failures are forgotten."""
CHANGES: Final = 5
"""Changes of the schema in a row after which a stream goes on at once: more of them are a failure."""
PATIENCE_S: Final = 60.0
BEGINNING_S: Final = 30.0
"""How long others wait for a stream that begins, where one begins after the other."""
NEW_COLUMNS: Final = "new columns"
FAILURE: Final = "failure"
LEFT_BEHIND: Final = "left behind"


class BatchFailed(EdgertError):
    """A batch was not done; Spark keeps its position in the landing table, and the next start tries again."""


class CannotStart(EdgertError):
    """A stream cannot be started now: it counts as one that failed."""


class AllGivenUp(EdgertError):
    """No stream is left that is tried."""


class BatchGate:
    """A gate for batches of a stream, so that the batch under way can end before its stream is stopped."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._closed = False
        self.since: float | None = None
        """Monotonic time at which the batch under way came; None between batches."""

    def run(self, work: Callable[[], None]) -> None:
        """Raises `BatchFailed`."""
        with self._busy:
            if self._closed:
                raise BatchFailed("the job stops")
            self.since = time.monotonic()
            try:
                work()
            # Whatever Java or Python raised: its text runs to hundreds of lines, over which a regular expression in
            # Spark's stream thread overflows its stack, and the thread would be gone without a word.
            except Exception as error:  # noqa: BLE001
                raise BatchFailed(reason(error)) from None
            finally:
                self.since = None

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Let the batch under way end, and refuse the next one."""
        self._closed = True
        if self._busy.acquire(timeout=patience_s):
            self._busy.release()


class RunningQuery(NamedTuple):
    """A query that runs, and the door of its batches."""

    query: StreamingQuery
    door: BatchGate


@dataclass(slots=True)
class _Watched:
    start: Callable[[], RunningQuery]
    stream: RunningQuery | None = None
    began: float = 0.0
    failures: int = 0
    changes: int = 0
    """Changes of the schema, one directly after another."""
    not_before: float = 0.0
    given_up: bool = False


class Streams:
    """Not for more than one thread; the counts may be read from any.

    `in_turn`: a stream begins when the one before has done a batch. Of streams with state in Python each starts a
    process for its first batch, to which Spark gives 10 s: many at once would all be too late on a small machine.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, *, in_turn: bool = False,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`on_failure` is called before a stream that failed starts again."""
        self.monotonic = monotonic
        self._in_turn = in_turn
        self.on_failure = on_failure
        self._watched: dict[str, _Watched] = {}
        self.restarts: Counter[tuple[str, str]] = Counter()
        """(stream, why) -> how often it was started again."""
        # It tells each failure of a batch with its whole traceback; we tell it in a line.
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)

    def add(self, name: str, start: Callable[[], RunningQuery]) -> bool:
        """Keep a stream running from the next look on. False if it is known already."""
        if name in self._watched:
            return False
        self._watched[name] = _Watched(start)
        log.info("%s: following", name)
        return True

    def look(self) -> None:
        """Notice what ended, start what is due. Raises `AllGivenUp`, and what `start` raises but failures of Spark or
        of a table and `CannotStart`: what one stream reads may be broken, and the others go on."""
        for name, watched in self._watched.items():
            if watched.stream is not None:
                if watched.stream.query.isActive:
                    if self.monotonic() - watched.began >= HEALTHY_S:
                        watched.failures = watched.changes = 0
                else:
                    self._ended(name, watched, watched.stream.query.exception())
            due = watched.stream is None and self.monotonic() >= watched.not_before
            if due and not (self._in_turn and any(map(self._begins, self._watched.values()))):
                try:
                    watched.given_up = False
                    if watched.failures:
                        self.on_failure()
                    watched.stream = watched.start()
                    watched.began = self.monotonic()
                except (*OF_SPARK, TableError, CommitConflict, CannotStart) as error:  # it looks at the table at once
                    self._ended(name, watched, error)
        if self._watched and all(w.given_up for w in self._watched.values()):
            raise AllGivenUp(f"none of {', '.join(self._watched)} can be followed; the log says why")

    def running(self) -> dict[str, StreamingQuery]:
        """The queries that run, by name."""
        found = {name: w.stream for name, w in list(self._watched.items())}  # read once: another thread ends them
        return {name: stream.query for name, stream in found.items() if stream is not None and stream.query.isActive}

    def states(self) -> Mapping[str, bool | None]:
        """States by name: True if the stream runs; None if it was given up."""
        running = self.running()
        return {name: None if w.given_up else name in running for name, w in list(self._watched.items())}

    def batch_s(self) -> dict[str, float]:
        """Seconds by name for which a stream has worked on the batch under way; 0 between batches."""
        streams = {name: w.stream for name, w in list(self._watched.items())}
        since = {name: stream and stream.door.since for name, stream in streams.items()}
        now = time.monotonic()
        return {name: 0.0 if began is None else now - began for name, began in since.items()}

    def begin_anew(self, name: str) -> None:
        """End a stream and start it with the next look: its reader was left behind."""
        self._stop(self._watched[name])
        self.restarts[name, LEFT_BEHIND] += 1

    def end(self) -> None:
        """Stop all after the batches under way, and forget them."""
        for watched in self._watched.values():
            self._stop(watched)
        self._watched.clear()

    def _begins(self, watched: _Watched) -> bool:
        if watched.stream is None or self.monotonic() - watched.began >= BEGINNING_S:
            return False
        return watched.stream.query.isActive and watched.stream.query.lastProgress is None

    def _stop(self, watched: _Watched) -> None:
        if watched.stream is not None:
            watched.stream.door.close()
            watched.stream.query.stop()
            watched.stream = None

    def _ended(self, name: str, watched: _Watched, error: Exception | None) -> None:
        text = reason(error) if error else "it ended"
        text += hint(text)
        watched.stream = None
        if "DELTA_SCHEMA_CHANGED" in str(error) and watched.changes < CHANGES:
            watched.changes += 1
            watched.failures = 0
            watched.not_before = 0.0
            self.restarts[name, NEW_COLUMNS] += 1
            log.info("%s: has new columns, starting again", name)
            return
        watched.failures += 1
        if watched.failures >= TRIES:
            watched.given_up = True
            watched.not_before = self.monotonic() + GIVEN_UP_S
            log.error("%s: given up for an hour after %d failures in a row: %s", name, watched.failures, text)
            return
        wait_s = min(LONGEST_WAIT_S, 2.0**watched.failures)
        watched.not_before = self.monotonic() + wait_s
        self.restarts[name, FAILURE] += 1
        log.error("%s: stopped, starting again in %.0f s: %s", name, wait_s, text)
