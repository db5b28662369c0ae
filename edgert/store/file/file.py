"""The database's file: nobody else may read it, one process alone may use it, and others of ours may look into it."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from edgert.core.errors import DamagedError, StoreError
from edgert.store.file import salvage

CHECKED_BYTES = 64 << 20
"""A larger file is checked at a start without its outbox, or a long outage would be followed by a long start."""
PAGE_BYTES = 1024
"""A checkpoint changes a few bytes in a dozen pages, and writes them whole: of SQLite's own 4,096 bytes it would write
twice as much at 10 messages per second, and a third more at 100. A large blob takes as long either way."""
WAL_BYTES = 4_096_000
"""The log is written back into the database when it is as long: pages that change with every checkpoint, once."""
CACHE_KIB = 512
"""SQLite's page cache (its default: 2 MB). A larger transaction spills to the log before its end."""


def private(path: Path) -> None:
    """Makes the file if need be, readable to its owner only; SQLite gives its -wal and -shm files the same mode."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(number).st_mode & 0o077:
            os.fchmod(number, 0o600)
    finally:
        os.close(number)
    for beside in ("-wal", "-shm"):
        left_over = Path(f"{path}{beside}")
        if left_over.exists():
            left_over.chmod(0o600)


def lock(path: Path) -> IO[str]:
    """Takes the database for this process until the file is closed; the kernel takes it back from a process that dies.

    Two daemons on one database would give the same numbers to different results. Raises `StoreError` naming the other.
    """
    name = Path(f"{path}.lock")
    name.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = os.fdopen(os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = file.read(20).strip() or "unknown"
        file.close()
        raise StoreError(
            f"the database {path} is in use by another gateway (process {holder}): stop that one first, "
            "or give this one a gateway.data_dir of its own"
        ) from None
    except OSError:
        file.close()
        raise
    file.truncate()
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def connect(path: Path) -> sqlite3.Connection:
    """Opens the database, which is made if need be, and looks whether it is whole. Raises `StoreError`, `DamagedError`
    if it is not."""
    db: sqlite3.Connection | None = None
    try:
        private(path)
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        db.text_factory = _text
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # of a file that is new
        db.execute("PRAGMA journal_mode = WAL")
        pages = WAL_BYTES // int(db.execute("PRAGMA page_size").fetchone()[0])
        db.execute(f"PRAGMA wal_autocheckpoint = {pages}")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        fault = _fault(db, path)
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        if db:
            db.close()
        if not isinstance(error, OSError) and salvage.is_damage(error):
            raise DamagedError(f"the database {path} is damaged ({error})") from error
        raise StoreError(f"cannot open the database {path}: {error}; check the folder and its disk") from error
    if fault != "ok":
        db.close()
        raise DamagedError(f"the database {path} is damaged ({fault})")
    return db


def _text(raw: bytes) -> str:
    """Damaged text is still text, which whoever reads it refuses."""
    return raw.decode(errors="replace")


def _fault(db: sqlite3.Connection, path: Path) -> str:
    """ "ok", or what is wrong with the file, in one line."""
    return " ".join(_check(db, path).split())


def _check(db: sqlite3.Connection, path: Path) -> str:
    if salvage.is_suspect(path):
        fault = str(db.execute("PRAGMA integrity_check(1)").fetchone()[0])
        if fault == "ok":
            salvage.trust(path)
        return fault
    if path.stat().st_size <= CHECKED_BYTES:
        return str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'outbox'").fetchall()
    found = (db.execute(f"PRAGMA quick_check('{name}')").fetchone()[0] for (name,) in names)
    return next((str(fault) for fault in found if fault != "ok"), "ok")


def read_state(path: Path, flow: str, last: int) -> tuple[dict[str, Any], list[bytes]]:
    """A flow's document, and its snapshot and deltas up to number `last`, while a gateway runs with the database.

    Raises `StoreError`.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as db:
            db.execute("BEGIN")
            document = db.execute("SELECT document FROM flow WHERE name = ?", (flow,)).fetchone()
            blobs = db.execute("SELECT blob FROM state WHERE flow = ? AND number <= ? ORDER BY number", (flow, last))
            found = [blob for (blob,) in blobs]
    except sqlite3.Error as error:
        raise StoreError(f"cannot read the database {path}: {error}") from error
    if document is None or not found:
        raise StoreError(f"expected state of flow {flow} in {path}, got none")
    return json.loads(document[0]), found
