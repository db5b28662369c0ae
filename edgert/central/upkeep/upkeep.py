"""Upkeep of all tables under a root: what is done in a round, and how far it may go.

A round compacts. A thorough one also drops days (retention), deletes files that nobody needs and cleans up logs, all
of it within what the slowest registered reader (`readers.py`) has read, and within the time that is kept for those who
read without telling. One upkeep at a time has the lease; should two run all the same, one of them conflicts and
leaves it.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from deltalake import DeltaTable

from edgert.central.tables import models
from edgert.central.tables.lease import LeaseLost, TableLease, own_name
from edgert.central.tables.readers import FLEET_JOB, Reach, Readers, Reading
from edgert.central.tables.table import CommitConflict, TableError, join, list_tables, told
from edgert.central.upkeep.table import KeptTable
from edgert.core.settings.central import Upkeep as Settings

log = logging.getLogger("edgert.central.upkeep")
LEASE_S: Final = 600.0
THOROUGH_S: Final = 3600.0
REST_S: Final = 600.0
"""A day that nobody wrote for so long is brought down to as few files as it needs: what is left over of it stays."""
_OF_RESULTS: Final = ("gaps", "drops", "quarantine")
_OF_OURS: Final = ("leases", "readers", models.TABLE)
_OF_ALERTS: Final = "alerts"
_DAY_S: Final = 86_400.0
_DAY: Final = dt.timedelta(1)


@dataclass(slots=True)
class Work:
    """Work that was done on a table."""

    table: str
    files: int = 0
    """The number of its files after the round."""
    compacted: int = 0
    """The number of small files that were merged into larger ones."""
    days: int = 0
    """The number of days that retention dropped."""
    deleted: int = 0
    deleted_bytes: int = 0
    log_deleted: int = 0
    held_by: str = ""
    """The reader that still needs the oldest files, so that they stay."""
    trouble: str = ""
    """The reason why the rest was left for the next round."""


@dataclass(slots=True)
class Totals:
    """Totals of a process's rounds since its start."""

    rounds: int = 0
    compacted: int = 0
    days: int = 0
    deleted: int = 0
    log_deleted: int = 0
    left_readers: int = 0
    failures: int = 0
    last_error: str = ""

    def plain(self) -> dict[str, Any]:
        """Returns the result in JSON types."""
        return asdict(self)


class Upkeep:
    """Rounds over the tables of a root. Not for more than one thread; it shares no handle with anybody.

    `keep_s`: how long what was removed stays for those who read without telling; the settings allow no less than an
    hour, since a writer that slept for longer would no longer notice what happened meanwhile. `rest_s`: after so long
    without a file a day is done with. `today`: the day from which retention counts; UTC's unless told.
    """

    def __init__(
        self,
        root: str,
        settings: Settings,
        *,
        keep_s: float | None = None,
        rest_s: float = REST_S,
        wall: Callable[[], float] = time.time,
        today: Callable[[], dt.date] | None = None,
        stopping: threading.Event | None = None,
    ) -> None:
        self._root = root
        self._settings = settings
        self._keep_s = settings.keep_hours * 3600.0 if keep_s is None else keep_s
        self._rest_s = rest_s
        self._wall = wall
        self._today = today or (lambda: dt.datetime.fromtimestamp(wall(), dt.UTC).date())
        self._stopping = stopping or threading.Event()
        self._readers = Readers(root, wall)
        self._lease = TableLease(root, "upkeep", own_name(), LEASE_S, wall)
        self._refused_from: dict[str, int] = {}
        """Table -> a version from which on no row before its first day has landed."""
        self._newest: dt.date | None = None
        """Newest day of which landing tables had rows when the round began (None: they had none)."""
        self.totals = Totals()

    def round(self, thorough: bool) -> Iterator[Work]:
        """One round, table by table. Raises `LeaseLost` if another has it, `TableError` for lease and register; what is
        wrong with a table is in its `Work`."""
        self._lease.acquire()
        try:
            readings = self._waited_for() if thorough else []
            self._newest = self._newest_day() if thorough else None
            for name in self._names():
                if self._stopping.is_set():
                    return
                self._lease.hold()
                work = Work(name)
                try:
                    with told(name, "could not be kept"):
                        self._keep(work, readings, thorough)
                except (TableError, CommitConflict) as error:
                    work.trouble = " ".join(str(error).split())[:300]
                    self.totals.failures += 1
                    self.totals.last_error = f"{name}: {work.trouble}"
                self._count(work)
                yield work
            self.totals.rounds += 1
        finally:
            self._lease.release()

    def _names(self) -> list[str]:
        found = [f"{folder}/{name}" for folder in ("landing", "fleet") for name in list_tables(self._root, folder)]
        single = (*_OF_RESULTS, *_OF_OURS, _OF_ALERTS)
        with told(self._root, "expected tables that can be read"):
            return found + [name for name in single if DeltaTable.is_deltatable(join(self._root, name))]

    def _keep(self, work: Work, every: list[Reading], thorough: bool) -> None:
        """`every`: all readings, of whatever tables."""
        table = KeptTable(self._root, work.table)
        readings = [r for r in every if r.table == work.table]
        if thorough:
            self._retain(table, work, readings + _unread(work.table, every))
        if work.table not in _OF_OURS:  # what a change takes out and puts in is a file
            # A day of a fleet table that does not rest is the fleet job's, which compacts it, too.
            at_least = None if work.table.startswith("fleet/") else self._settings.compact_files
            for gone in table.compact(at_least, self._wall() - self._rest_s):
                work.compacted += gone
                if self._stopping.is_set():
                    break
                self._lease.hold()
        if thorough:
            table.make_ours(self._keep_s)
            table.checkpoint()
            self._delete(table, work, readings)
        work.files = table.live()

    def _retain(self, table: KeptTable, work: Work, readings: list[Reading]) -> None:
        """Landing rows go in two steps: first none of these days lands any more, then, when all readers have read what
        had landed before, the days are dropped. So no window is made anew from a part of its contributions."""
        self._open_again(table)
        if not self._settings.retention_days or self._newest is None:
            return
        # A clock that is years ahead would take all there is, and let nothing land any more.
        first = min(self._today(), self._newest + _DAY) - dt.timedelta(self._settings.retention_days)
        if table.name in _OF_RESULTS:
            work.days = table.drop_before(first)
        elif table.name.startswith("landing/"):
            refused = table.first_day()
            if refused is None or refused < first:
                table.refuse_before(first)
                self._refused_from[table.name] = table.version
            behind = [r for r in readings if r.reach.rows < self._refused_from.setdefault(table.name, table.version)]
            if behind:
                work.held_by = min(behind, key=lambda r: r.reach.rows).reader
            else:
                work.days = table.drop_before(max(first, refused or first))

    def _open_again(self, table: KeptTable) -> None:
        """A landing table whose first day is in the future, by the clock and by what has landed, as a wrong clock left
        it: nothing would ever land there."""
        if not table.name.startswith("landing/"):
            return
        today, refused = self._today(), table.first_day()
        if refused is None or refused <= max(today, self._newest or today) + _DAY:
            return
        # What is there still was not dropped; what is not, may have been.
        first = min(table.days() | {today})
        log.warning(
            "%s: its first day %s is in the future, so a clock was wrong; rows land again from %s on",
            table.name, refused, first,
        )  # fmt: skip
        table.refuse_before(first)
        self._refused_from[table.name] = table.version

    def _newest_day(self) -> dt.date | None:
        days: set[dt.date] = set()
        for flow in list_tables(self._root, "landing"):
            with suppress(TableError):  # which is told when its turn comes
                days |= KeptTable(self._root, f"landing/{flow}").days()
        return max(days, default=None)

    def _delete(self, table: KeptTable, work: Work, readings: list[Reading]) -> None:
        kept = table.version_before(dt.datetime.fromtimestamp(self._wall() - self._keep_s, dt.UTC))
        slowest = min(readings, key=lambda r: r.reach.rows, default=None)
        if slowest is not None and slowest.reach.rows < kept:
            work.held_by = slowest.reader
        files = min([kept, *(r.reach.rows for r in readings)])
        if files > 0:
            work.deleted, work.deleted_bytes = table.delete_files(files)
            work.log_deleted = table.delete_log(min([files, *(r.reach.log for r in readings)]))

    def _waited_for(self) -> list[Reading]:
        """The register, without those that said nothing for too long: they are left behind, loudly."""
        known = [r for r in self._readers.all() if not r.left]
        patience_s = self._settings.reader_patience_days * _DAY_S
        gone = [r for r in known if self._wall() - r.seen > patience_s]
        for reading in self._readers.leave(gone):
            self.totals.left_readers += 1
            log.error(
                "reader %s of %s said nothing for %.1f days (upkeep.reader_patience_days is %g): upkeep waits for it "
                "no longer, and deletes what it has not read after version %d",
                reading.reader,
                reading.table,
                (self._wall() - reading.seen) / _DAY_S,
                self._settings.reader_patience_days,
                reading.reach.rows,
            )
        return [r for r in self._readers.all() if not r.left] if gone else known

    def _count(self, work: Work) -> None:
        self.totals.compacted += work.compacted
        self.totals.days += work.days
        self.totals.deleted += work.deleted
        self.totals.log_deleted += work.log_deleted


def _unread(table: str, every: Sequence[Reading]) -> list[Reading]:
    """The reading of a landing table that came while the fleet job was away: nothing is read yet, and a day that is
    dropped now would be in no fleet table. (Files that compaction replaced it does not need: it begins with what is
    there.)"""
    known = [r for r in every if r.reader == FLEET_JOB and r.table.startswith("landing/")]
    if not table.startswith("landing/") or any(r.table == table for r in known):
        return []
    return [replace(r, table=table, reach=Reach(0, 0)) for r in known[:1]]


class UpkeepSchedule:
    """Rounds on a thread of their own, every `settings.every_s`; a thorough one now and then."""

    def __init__(self, root: str, settings: Settings) -> None:
        self._every_s = settings.every_s
        self._stopping = threading.Event()
        self._upkeep = Upkeep(root, settings, stopping=self._stopping)
        self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)
        self._said = ""

    @property
    def totals(self) -> dict[str, Any]:
        """The totals as JSON types."""
        return self._upkeep.totals.plain()

    def start(self) -> None:
        if self._every_s:
            self._thread.start()

    def stop(self) -> None:
        """Ends after what is under way: a day's compaction at most."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        thorough_at = time.monotonic()
        while not self._stopping.wait(self._every_s):
            thorough = time.monotonic() >= thorough_at
            try:
                for work in self._upkeep.round(thorough):
                    self._say(work)
            except LeaseLost as error:
                log.debug("upkeep is another's: %s", error)
            except (TableError, CommitConflict) as error:
                self._upkeep.totals.failures += 1
                self._upkeep.totals.last_error = str(error)
                self._warn(str(error))
            except Exception as error:  # whatever a stranger wrote into a table: upkeep must not end with it
                self._upkeep.totals.failures += 1
                self._upkeep.totals.last_error = f"{type(error).__name__}: {error}"
                log.exception("upkeep: the next round tries again")
            else:
                if thorough:
                    thorough_at = time.monotonic() + THOROUGH_S

    def _say(self, work: Work) -> None:
        if work.trouble:
            self._warn(f"{work.table}: {work.trouble}")
        if work.compacted or work.deleted or work.days or work.log_deleted:
            log.info(
                "%s: %d small files compacted, %d days dropped, %d files deleted, %d of the log; has %d files",
                work.table,
                work.compacted,
                work.days,
                work.deleted,
                work.log_deleted,
                work.files,
            )

    def _warn(self, text: str) -> None:
        if text != self._said:
            log.warning("upkeep: %s; the next round tries again", text)
        self._said = text
