"""The database's file with its transactions, whatever its tables hold; and the table of single values."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from edgert.core.errors import DamagedError, PayloadError, StoreError
from edgert.store import damage, file
from edgert.store.records import StoredFlow
from edgert.store.schema import upgrade

T = TypeVar("T")
UNREADABLE: Final = (msgspec.MsgspecError, PayloadError)
"""How it shows that something stored is not what was written."""
PUT: Final = "INSERT OR REPLACE INTO meta VALUES (?, ?)"


class Transactions:
    """Holds the file for this process. One that is damaged is set aside, and a new one begun. Raises `StoreError`
    saying what to do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = ""
        """What was found while this database was in use: the next start looks at all of it."""
        self._notes: dict[str, Any] = {}
        try:
            self._lock = file.lock(path)
        except OSError as error:
            raise StoreError(f"cannot lock the database {path}: {error}; check the folder and its disk") from error
        try:
            try:
                damage.take_place(path)
                self._db = _opened(path)
            except OSError as error:
                raise StoreError(f"cannot open the database {path}: {error}; check the folder and its disk") from error
            except DamagedError as error:
                self._begin_anew(str(error))
        except BaseException:
            self._lock.close()
            raise

    def _begin_anew(self, fault: str) -> None:
        """The new database is whole, with all that is to be known of the old one, before it takes that one's place: a
        kill or a full disk at any point leaves the one or the other, and never one that knows of no flow."""
        missing = "results that waited in it, and what its flows held, are missing"
        why = f"{fault}; it is kept as {damage.aside(self.path)}, and a new one is begun: {missing}"
        flows = damage.flows(self.path)
        notes = {
            "begun_anew": why,
            "rescued": damage.pack(flows),
            "subscriptions": damage.subscriptions(self.path),
        }
        if not damage.are_all(self.path, flows):
            notes["flows_unread"] = why  # for good: whoever deploys one of them again is told what is missing
        try:
            damage.remove(damage.aside(self.path))  # one from before: the new one may need its room
            with closing(_opened(damage.beginning(self.path))) as new:
                new.executemany(PUT, list(notes.items()))
            damage.set_aside(self.path)
            damage.take_place(self.path)
        except (OSError, sqlite3.Error, StoreError) as error:
            raise StoreError(f"{fault}, and another one cannot be begun: {error}; make room on its disk") from error
        self._db = _opened(self.path)

    def rescued(self) -> list[StoredFlow] | None:
        """The flows of a damaged database that this one took the place of, as far as they could be read; until
        `Database.restored`, then and else None."""
        found = self.meta("rescued")
        return None if found is None else damage.unpack(found)

    def close(self) -> None:
        self._db.close()
        self._lock.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing. Nothing is written any more to a database that is found damaged: the next start may
        set it aside, and what had been acknowledged for it would be gone with it."""
        if self.damaged:
            raise StoreError(f"the database {self.path} is damaged, nothing is written any more: {self.damaged}")
        self._rollback()  # one that could not be taken back when it failed
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.executemany(PUT, list(self._notes.items()))
            self._db.execute("COMMIT")
        except (sqlite3.Error, *UNREADABLE) as error:
            self._rollback()
            raise self._failed("written", error) from error
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
        except (sqlite3.Error, *UNREADABLE) as error:
            raise self._failed("read", error) from error

    def _failed(self, done: str, error: Exception) -> StoreError:
        text = f"the database {self.path} could not be {done}: {error}"
        if not isinstance(error, sqlite3.Error):
            return DamagedError(text)
        if damage.is_damage(error):
            damage.suspect(self.path)
            self.damaged = text
        return StoreError(text)

    def _rows(self, query: str, *values: Any) -> list[Any]:
        return self._read(lambda db: db.execute(query, values).fetchall())

    def meta(self, key: str, default: Any = None) -> Any:
        """A value of another type than its default was damaged, and does not count."""
        found = self._rows("SELECT value FROM meta WHERE key = ?", key)
        return found[0][0] if found and (default is None or type(found[0][0]) is type(default)) else default

    def set_meta(self, key: str, value: Any) -> None:
        """Or if that fails, with the next transaction that succeeds."""
        self.note(key, value)
        with self._transaction():
            pass

    def note(self, key: str, value: Any) -> None:
        """As `set_meta`, with the next transaction that succeeds: it costs none of its own."""
        self._notes[key] = value


def _opened(path: Path) -> sqlite3.Connection:
    db = file.connect(path)
    try:
        upgrade(db)
    except (sqlite3.Error, DamagedError, UnicodeDecodeError) as error:
        db.close()
        damaged = isinstance(error, DamagedError) or damage.is_damage(error)
        kind = DamagedError if damaged else StoreError
        raise kind(f"the database {path} could not be brought up to date: {error}") from error
    except BaseException:
        db.close()
        raise
    return db
