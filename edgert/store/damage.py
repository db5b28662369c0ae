"""A database whose own structure is damaged, as a card that rots leaves it: it is set aside, and another one begun.

A part that is found damaged while the gateway runs may be one that a start does not look at (see
`file.CHECKED_BYTES`): a note beside the file has the next start look at all of it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from edgert.core.position import Position
from edgert.store.records import StoredFlow

BESIDE = ("", "-wal", "-shm")
"""The files of a database."""
FlowRow = tuple[str, str, int, str, int, int]
"""Name, document (JSON), version, origin, removed, epoch."""


def is_damage(error: sqlite3.Error | UnicodeDecodeError) -> bool:
    """Whether the file is to blame, rather than its disk, its rights or what was asked. (What SQLite says of a damaged
    definition may have bytes in it that Python cannot decode.)"""
    codes = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return isinstance(error, UnicodeDecodeError) or getattr(error, "sqlite_errorcode", 0) & 0xFF in codes


def suspect(path: Path) -> None:
    """Has the next start look at all of the file."""
    with suppress(OSError):  # a disk that takes nothing: then the start finds what it finds
        _note(path).touch(mode=0o600)


def is_suspect(path: Path) -> bool:
    return _note(path).exists()


def trust(path: Path) -> None:
    """All of it was looked at and is whole, or it is another."""
    _note(path).unlink(missing_ok=True)


def _note(path: Path) -> Path:
    return Path(f"{path}.suspect")


def set_aside(path: Path) -> Path:
    """Makes room for a new database. Only the last one is kept, or they would fill the card. Nobody may have it open.
    Raises `OSError`."""
    aside = Path(f"{path}.damaged")
    for beside in BESIDE:
        Path(f"{aside}{beside}").unlink(missing_ok=True)
    for beside in reversed(BESIDE):  # a kill in between leaves the database itself, to be set aside once more
        with suppress(FileNotFoundError):
            Path(f"{path}{beside}").rename(f"{aside}{beside}")
    trust(path)
    return aside


def flows(aside: Path) -> list[FlowRow]:
    """What can still be read of the flows in a database that was set aside."""
    found: list[FlowRow] = []
    query = "SELECT name, document, version, origin, removed, epoch FROM flow"
    with suppress(sqlite3.Error), closing(sqlite3.connect(aside)) as db:
        db.execute("PRAGMA writable_schema = ON")  # one table's damaged definition does not hide the others
        for row in db.execute(query):
            with suppress(msgspec.MsgspecError):
                checked = msgspec.convert(row, FlowRow)
                _stored(*checked)
                found.append(checked)
    return found


def subscriptions(aside: Path) -> str:
    """What the sensors' broker had been asked for under which identifiers; empty where that cannot be read."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(aside)) as db:
        db.execute("PRAGMA writable_schema = ON")
        (found,) = db.execute("SELECT value FROM meta WHERE key = 'subscriptions'").fetchone() or ("",)
        return str(found)
    return ""


def pack(rows: list[FlowRow]) -> bytes:
    return msgspec.msgpack.encode(rows)


def unpack(rows: bytes) -> list[StoredFlow]:
    """Of `pack`."""
    return [_stored(*row) for row in msgspec.msgpack.decode(rows, type=list[FlowRow])]


def _stored(name: str, document: str, version: int, origin: str, removed: int, epoch: int) -> StoredFlow:
    plain = msgspec.json.decode(document, type=dict[str, Any])
    return StoredFlow(name, plain, version, origin, bool(removed), epoch, Position())
