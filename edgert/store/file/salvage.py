"""A database whose own structure is damaged, as a card that rots leaves it: it is set aside, and another one begun.

A part that is found damaged while the gateway runs may be one that a start does not look at (see
`file.CHECKED_BYTES`): a note beside the file has the next start look at all of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from edgert.core.checkpoint.position import Position
from edgert.store.state.records import StoredFlow

BESIDE = ("", "-wal", "-shm")
"""The files of a database."""
FlowRow = tuple[str, str, int, str, int, int]
"""Name, document (JSON), version, origin, removed, epoch."""


def is_damage(error: sqlite3.Error | UnicodeDecodeError) -> bool:
    """True if the file is to blame, rather than its disk, its rights or what was asked. (What SQLite says of a damaged
    definition may have bytes in it that Python cannot decode.)"""
    codes = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return isinstance(error, UnicodeDecodeError) or getattr(error, "sqlite_errorcode", 0) & 0xFF in codes


def suspect(path: Path) -> None:
    """Leaves the note: the next start checks the whole file."""
    with suppress(OSError):  # a disk that takes nothing: then the start finds what it finds
        _note(path).touch(mode=0o600)


def is_suspect(path: Path) -> bool:
    return _note(path).exists()


def trust(path: Path) -> None:
    """Removes the note: the file was checked whole, or was replaced."""
    _note(path).unlink(missing_ok=True)


def _note(path: Path) -> Path:
    return Path(f"{path}.suspect")


def damaged_path(path: Path) -> Path:
    """The path at which a damaged database is kept."""
    return Path(f"{path}.damaged")


def new_path(path: Path) -> Path:
    """The path at which a new database is made, until it is whole."""
    return Path(f"{path}.new")


def set_aside(path: Path) -> None:
    """Makes way for a new database. Only the last one is kept, or they would fill the card. Nobody may have it open.
    Raises `OSError`."""
    remove(damaged_path(path))
    _move(path, damaged_path(path))
    trust(path)


def take_place(path: Path) -> None:
    """The new database takes the place of the one that was set aside; at a start too, since a kill may have come in
    between. While the old one stands there, nothing that was begun counts. Raises `OSError`."""
    if path.exists():
        remove(new_path(path))
    elif new_path(path).exists():
        _move(new_path(path), path)


def _move(path: Path, to: Path) -> None:
    """A kill in between leaves the database itself, to be moved once more."""
    for beside in reversed(BESIDE):
        with suppress(FileNotFoundError):
            Path(f"{path}{beside}").rename(f"{to}{beside}")


def remove(path: Path) -> None:
    """Deletes the database with its -wal and -shm. Raises `OSError`."""
    for beside in BESIDE:
        Path(f"{path}{beside}").unlink(missing_ok=True)


def flows(path: Path) -> list[FlowRow]:
    """The flows that can still be read in a damaged database."""
    found: list[FlowRow] = []
    query = "SELECT name, document, version, origin, removed, epoch FROM flow"
    with suppress(sqlite3.Error), _damaged(path) as db:
        for row in db.execute(query):
            with suppress(msgspec.MsgspecError):
                checked = msgspec.convert(row, FlowRow)
                _stored(*checked)
                found.append(checked)
    return found


def are_all(path: Path, found: list[FlowRow]) -> bool:
    """True if there was no other flow than `found` in a damaged database, as far as that can be told."""
    with suppress(sqlite3.Error), _damaged(path) as db:
        return bool(db.execute("SELECT count(*) FROM flow").fetchone()[0] == len(found))
    return False


def subscriptions(path: Path) -> str:
    """Subscriptions at the sensors' broker with their identifiers; empty where that cannot be read."""
    with suppress(sqlite3.Error), _damaged(path) as db:
        (found,) = db.execute("SELECT value FROM meta WHERE key = 'subscriptions'").fetchone() or ("",)
        return str(found or "")
    return ""


@contextmanager
def _damaged(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as db:
        db.text_factory = _text
        db.execute("PRAGMA writable_schema = ON")  # one table's damaged definition does not hide the others
        yield db


def _text(raw: bytes) -> str | None:
    """Returns None for text that is not UTF-8, so that only its row is left out."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def pack(rows: list[FlowRow]) -> bytes:
    return msgspec.msgpack.encode(rows)


def unpack(rows: bytes) -> list[StoredFlow]:
    """Unpacks what `pack` made."""
    return [_stored(*row) for row in msgspec.msgpack.decode(rows, type=list[FlowRow])]


def _stored(name: str, document: str, version: int, origin: str, removed: int, epoch: int) -> StoredFlow:
    plain = msgspec.json.decode(document, type=dict[str, Any])
    return StoredFlow(name, plain, version, origin, bool(removed), epoch, Position())
