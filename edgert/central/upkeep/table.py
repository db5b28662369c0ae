"""Upkeep of one Delta table: small files become few, what nobody needs any more is deleted, old days go.

What is needed is told by versions of the table, not by clocks: files that were removed up to a version may go, and log
entries before the newest checkpoint up to a version. All of it goes through handles of its own.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from edgert.central.tables import fsync
from edgert.central.tables.table import join, told

FIRST_DAY: Final = "edgert.first_day"
"""Property of a landing table: retention drops the days before it, and no row of them may land any more."""
SMALL_BYTES: Final = 16 * 1024 * 1024
"""Compaction makes files of this size and leaves them alone: more would be written again and again."""
_CHECKPOINT_COMMITS: Final = 10
_TOMBSTONES_S: Final = (300.0, 172_800.0)
"""How long checkpoints name files that were removed: twice as long as these are kept, within these bounds. A file that
is held longer is found by its age."""
_STRAY: Final = dt.timedelta(days=1)
"""No writer takes longer from a file to the commit that adds it."""
_SUM: Final = ".crc"
_LOG_NAME: Final = re.compile(r"(\d{20})\.(?:(\d{20})\.)?(.+)")


@dataclass(frozen=True, slots=True)
class _Files:
    """The live files of a partition."""

    small: int
    small_bytes: int
    newest: float
    """When its newest file was written, seconds since the epoch."""

    @property
    def too_many(self) -> bool:
        """True if half as many would do: first fit leaves no two small files that fit into one."""
        return self.small >= 2 * max(1, -(-self.small_bytes // SMALL_BYTES))


@dataclass(frozen=True, slots=True)
class _LogFile:
    """A file of the log."""

    path: str
    version: int
    """Version of the commit; for a file over several commits, of the last one."""
    kind: str
    """`json`, `checkpoint.parquet`, ...; of a checksum that Spark wrote beside it, `sum of json`, ..."""
    written: dt.datetime


class KeptTable:
    """One table under a root, which exists. Raises `TableError` and `CommitConflict` as `Table` does."""

    def __init__(self, root: str, name: str) -> None:
        self.name = name
        self._uri = join(root, name)
        with told(self._uri, "expected a Delta table that can be read"):
            self._table = DeltaTable(self._uri)
            self._storage = DeltaStorageHandler(self._uri)
        self._folder = fsync.folder_of(self._uri)

    @property
    def version(self) -> int:
        """Returns the table's version as this handle knows it."""
        return self._table.version()

    def live(self) -> int:
        """Returns how many files the table has."""
        with told(self._uri, "its files could not be listed"):
            return len(_paths(self._table))

    def make_ours(self, keep_s: float) -> None:
        """Leave the clean-up of its log to us; removed files are kept for `keep_s`. A commit, if that was not done."""
        least, most = _TOMBSTONES_S
        properties = {
            # Spark and deltalake would clean up the log by age alone, whoever has still to read it.
            "delta.enableExpiredLogCleanup": "false",
            "delta.deletedFileRetentionDuration": f"interval {round(min(most, max(least, 2 * keep_s)))} seconds",
        }
        with told(self._uri, "its properties could not be set"):
            have = self._table.metadata().configuration
            if any(have.get(name) != value for name, value in properties.items()):
                self._table.alter.set_table_properties(properties, raise_if_not_exists=False)

    def compact(self, at_least: int | None, rests_since: float) -> Iterator[int]:
        """Rewrite each day that has `at_least` small files (None: none for that), and each that has more than it needs
        and got no file after `rests_since` (seconds since the epoch); yields how many files went, day by day."""
        for day, files in self._partitions().items():
            many = at_least is not None and files.small >= at_least
            if many or (files.newest <= rests_since and files.too_many):
                with told(self._uri, f"day {day} could not be compacted"):
                    done = self._table.optimize.compact(
                        partition_filters=[("day", "=", "" if day is None else str(day))],
                        target_size=SMALL_BYTES,
                        max_concurrent_tasks=1,
                    )
                    if self._folder:  # before what it replaces is deleted
                        fsync.sync_commits(self._folder, [self._table.version()])
                yield int(done["numFilesRemoved"])

    def days(self) -> set[dt.date]:
        """Days of which the table has rows."""
        return {day for day in self._partitions() if day is not None}

    def first_day(self) -> dt.date | None:
        """The first day that retention left; None: it took none."""
        with told(self._uri, "could not be read"):
            properties = self._table.metadata().configuration
        return first_day(self._uri, properties)

    def refuse_before(self, day: dt.date) -> None:
        """From this commit on no row of an earlier day lands: who appends meanwhile conflicts, and looks again."""
        with told(self._uri, "its first day could not be set"):
            self._table.alter.set_table_properties({FIRST_DAY: day.isoformat()}, raise_if_not_exists=False)

    def drop_before(self, day: dt.date) -> int:
        """Remove all days before one, in one commit that rewrites no file. Returns how many went."""
        with told(self._uri, f"days before {day} could not be dropped"):
            days = [d for d in self._partitions() if d is not None and d < day]
            if days:
                self._table.delete(f"day < DATE '{day}'")
            return len(days)

    def checkpoint(self) -> None:
        """Write the table's state into one file of the log, if there were some commits since the last."""
        with told(self._uri, "no checkpoint could be written"):
            done = max((e.version for e in self._log() if e.kind == "checkpoint.parquet"), default=-1)
            if self._table.version() - done >= _CHECKPOINT_COMMITS:
                self._table.create_checkpoint()

    def version_before(self, moment: dt.datetime) -> int:
        """The newest version that was committed before a moment (-1: none that the log still tells of)."""
        with told(self._uri, "its log could not be listed"):
            return max((e.version for e in self._log() if e.kind == "json" and e.written <= moment), default=-1)

    def delete_files(self, bound: int) -> tuple[int, int]:
        """Delete the files that were removed from the table up to version `bound`, and what was left lying about by
        writers that died; returns (files, bytes). Spark's checksums go with their files, and are not counted."""
        with told(self._uri, "files could not be deleted"):
            then = DeltaTable(self._uri, version=bound)
            gone = set(then.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False))
            live = _paths(self._table)
            there, sums = self._data_files()
            # A file may have come back: by RESTORE, for example.
            doomed = (gone - live) & there.keys()
            written = [e.written for e in self._log() if e.kind == "json" and e.version == bound]
            orphans: set[str] = set()
            if written and live <= there.keys():
                # What is older than all that can have been committed after `bound`, and was no part of it.
                strays, orphans = (
                    {path for path, info in found.items() if info.mtime < written[0] - _STRAY}
                    for found in (there, sums)
                )
                doomed |= strays - live - _paths(then)
                orphans -= there.keys()
            for path in sorted(doomed):
                self._storage.delete_file(path)
            for path in sorted(orphans | (doomed & sums.keys())):
                self._storage.delete_file(sums[path].path)
            return len(doomed), sum(there[path].size or 0 for path in doomed)

    def delete_log(self, bound: int) -> int:
        """Delete what the log has from before its newest checkpoint up to version `bound`; returns how many files."""
        with told(self._uri, "old log entries could not be deleted"):
            log = self._log()
            checkpoints = [e.version for e in log if e.kind == "checkpoint.parquet" and e.version <= bound]
            first = max(checkpoints, default=0)
            if self._folder:
                fsync.sync_checkpoint(self._folder, first)
            # Oldest first: whatever this is interrupted at, what is left has no hole.
            old = sorted((e for e in log if e.version < first), key=lambda e: e.version)
            for entry in old:
                self._storage.delete_file(entry.path)
            return len(old)

    def _data_files(self) -> tuple[dict[str, fs.FileInfo], dict[str, fs.FileInfo]]:
        """All files of the table's folder but those of its log and others of which it is not for us to judge, and the
        checksums that Spark writes beside its own; both by the path of the data file."""
        files: dict[str, fs.FileInfo] = {}
        sums: dict[str, fs.FileInfo] = {}
        for info in self._storage.get_file_info_selector(fs.FileSelector("", recursive=True)):
            folder, slash, name = info.path.rpartition("/")
            summed = _summed(name)
            path = f"{folder}{slash}{summed}"
            if info.type == fs.FileType.File and path.endswith(".parquet") and not path.startswith(("_", ".")):
                (files if summed == name else sums)[path] = info
        return files, sums

    def _partitions(self) -> dict[dt.date | None, _Files]:
        with told(self._uri, "its files could not be listed"):
            files = pa.table(self._table.get_add_actions(flatten=True))
            found: dict[dt.date | None, _Files] = {}
            columns = (files["partition.day"], files["size_bytes"], files["modification_time"].cast(pa.int64()))
            for day, size, written in zip(*(c.to_pylist() for c in columns), strict=True):
                known = found.get(day, _Files(0, 0, 0.0))
                small = size < SMALL_BYTES
                found[day] = _Files(
                    known.small + small, known.small_bytes + small * size, max(known.newest, written / 1e3)
                )
            return found

    def _log(self) -> list[_LogFile]:
        entries = []
        for info in self._storage.get_file_info_selector(fs.FileSelector("_delta_log")):
            summed = _summed(info.base_name)
            named = _LOG_NAME.fullmatch(summed)
            if named:
                first, last, kind = named.groups()
                kind = kind if summed == info.base_name else f"sum of {kind}"
                entries.append(_LogFile(info.path, int(last or first), kind, info.mtime))
        return entries


def first_day(uri: str, properties: Mapping[str, str | None]) -> dt.date | None:
    """The first day that retention left of a table, as its properties say; None: it took none. Raises `TableError`."""
    day = properties.get(FIRST_DAY)
    with told(uri, f"property {FIRST_DAY}: expected a day such as 2026-01-31, got {day!r}"):
        return dt.date.fromisoformat(day) if day else None


def _paths(table: DeltaTable) -> set[str]:
    """The files of a version of a table, as its folder has them."""
    return {unquote(path) for path in pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()}


def _summed(name: str) -> str:
    """The file whose checksum one is, as Hadoop names it; of any other its own name."""
    return name[1 : -len(_SUM)] if name.startswith(".") and name.endswith(_SUM) else name
