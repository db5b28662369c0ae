"""A mark beside the database: how far it had got. By it "is gone" is told from "never was".

A database of which the log is deleted, or damaged in its midst, opens without a fault as what it was some commits ago;
one that is deleted or emptied opens as a new one. The mark is written after each commit, in place and without waiting
for the disk: a power cut may leave it behind the database, never ahead of it.

    gateway.db        commits 120      what it says when it is opened
    gateway.db.mark   commits 155      35 commits are gone
"""

from __future__ import annotations

import logging
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

log = logging.getLogger(__name__)

FORMAT: Final = "edgert-1"
BYTES: Final = 128
"""Size of the file: less than any disk writes at once."""


class CommitMark(NamedTuple):
    """How far a database has got."""

    database: str
    """The identity that it was given when it was made."""
    commits: int
    messages: int
    """Messages of the sensors that its commits had taken, those included that an earlier loss took away."""


def path_of(database: Path) -> Path:
    """Where the mark of a database stands."""
    return Path(f"{database}.mark")


def packed(mark: CommitMark) -> bytes:
    """The file's content: one line with a checksum, filled up with spaces."""
    line = f"{FORMAT} {mark.database} {mark.commits} {mark.messages}"
    return f"{line} {zlib.crc32(line.encode()):08x}".encode().ljust(BYTES - 1) + b"\n"


def unpacked_untrusted(raw: bytes) -> CommitMark | None:
    """None for what is no mark, or a damaged one."""
    try:
        line, _, checksum = raw.decode("ascii").rstrip().rpartition(" ")
        name, database, commits, messages = line.split(" ")
        if name != FORMAT or len(raw) != BYTES or int(checksum, 16) != zlib.crc32(line.encode()):
            return None
        return CommitMark(database, int(commits), int(messages))
    except ValueError:
        return None


def missing(mark: CommitMark | None, found: CommitMark, path: Path) -> str:
    """The loss, in words, of the database at `path` since its mark was written; empty: none. `found`: its mark now. A
    database without an identity is new, or of a version without marks."""
    if mark is None:
        return unmarked(path) if found.database else ""
    if mark.database != found.database:
        if not mark.commits:  # a kill between the first mark and the first commit
            return ""
        what = "another one stands in its place" if found.database else "it is deleted or emptied"
        return f"the database {path} is gone: {what}, and it had {mark.commits:,} commits; {all_of_it(mark)}"
    if mark.commits <= found.commits:
        return ""
    commits, messages = mark.commits - found.commits, max(0, mark.messages - found.messages)
    return (
        f"the database {path} has lost its last {commits:,} commits (its log -wal is gone or damaged, or an older copy "
        f"stands in its place): up to {messages:,} messages that were acknowledged are missing in what its flows hold"
    )


def unmarked(path: Path) -> str:
    """The sentence of a start whose database had a mark and has none that can be read."""
    return f"the mark {path_of(path)} is gone or damaged: whether the database beside it has lost commits is not known"


def all_of_it(mark: CommitMark | None) -> str:
    """The loss, in words, of a database of which nothing can be used any more but its `mark`. How many of the messages
    had landed before is known to the tables only, so the number is the most that can be missing."""
    gone = "results that waited in it, and what its flows held (open windows), are missing"
    return f"{gone}: up to {mark.messages:,} messages that were acknowledged" if mark else gone


class MarkFile:
    """The mark of one open database. A disk that does not take it costs the mark and nothing else."""

    def __init__(self, database: Path) -> None:
        self.path = path_of(database)
        self._file: int | None = None
        self._failed = False

    def read(self) -> CommitMark | None:
        """None where there is none, or a damaged one."""
        try:
            raw = self.path.read_bytes()
        except OSError:
            return None
        return unpacked_untrusted(raw)

    def write(self, mark: CommitMark, wait: bool = False) -> None:
        """`wait` for the disk: at the first and the last of a process."""
        try:
            if self._file is None:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                os.ftruncate(self._file, BYTES)
            os.pwrite(self._file, packed(mark), 0)
            if wait:
                os.fsync(self._file)
        except OSError as error:
            if not self._failed:
                log.warning("the mark %s could not be written: %s", self.path, error)
            self._failed = True

    def close(self) -> None:
        """Closes the file; the mark can be written no more."""
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None
