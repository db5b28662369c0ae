"""The database's file with its transactions, whatever its tables hold; and the table of single values."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from edgert.core.errors import StoreError
from edgert.store import file
from edgert.store.schema import upgrade

T = TypeVar("T")
PUT: Final = "INSERT OR REPLACE INTO meta VALUES (?, ?)"


class Transactions:
    """Holds the file for this process. Raises `StoreError` saying what to do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._notes: dict[str, Any] = {}
        try:
            self._lock = file.lock(path)
        except OSError as error:
            raise StoreError(f"cannot lock the database {path}: {error}; check the folder and its disk") from error
        try:
            self._db = file.connect(path)
            try:
                upgrade(self._db)
            except sqlite3.Error as error:
                raise StoreError(f"the database {path} could not be brought up to date: {error}") from error
        except BaseException:
            self._lock.close()
            raise

    def close(self) -> None:
        self._db.close()
        self._lock.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing."""
        self._rollback()  # one that could not be taken back when it failed
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.executemany(PUT, list(self._notes.items()))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            raise StoreError(f"the database {self.path} could not be written: {error}") from error
        except BaseException:
            self._rollback()
            raise
        self._notes.clear()

    def _rollback(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise StoreError(f"a transaction of the database {self.path} could not be taken back: {error}") from error

    def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Every read goes through here, so that a failing disk is a `StoreError` too."""
        try:
            return read(self._db)
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            raise StoreError(f"the database {self.path} could not be read: {error}") from error

    def _rows(self, query: str, *values: Any) -> list[Any]:
        return self._read(lambda db: db.execute(query, values).fetchall())

    def meta(self, key: str, default: Any = None) -> Any:
        found = self._rows("SELECT value FROM meta WHERE key = ?", key)
        return found[0][0] if found else default

    def set_meta(self, key: str, value: Any) -> None:
        with self._transaction() as db:
            db.execute(PUT, (key, value))

    def note(self, key: str, value: Any) -> None:
        """As `set_meta`, with the next transaction that succeeds: it costs none of its own."""
        self._notes[key] = value
