"""The database's file with its transactions, whatever its tables hold; and the table of single values."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import msgspec

from edgert.core.errors import DamagedError, PayloadError, StoreError
from edgert.store.file import file, salvage
from edgert.store.file.commit_mark import CommitMark, MarkFile, all_of_it, missing, unmarked
from edgert.store.file.schema import upgrade
from edgert.store.state.records import StoredFlow

P = ParamSpec("P")
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
        """Damage that was found while this database was in use: the next start looks at all of it."""
        self.lost = ""
        """The loss that this start found, or an earlier one that did not come so far as to report it."""
        self.went_back = False
        """True if `lost` says so, not only that nothing is known."""
        self._notes: dict[str, Any] = {}
        self._mark_file = MarkFile(path)
        self.mark = CommitMark("", 0, 0)
        """The mark of the last commit."""
        self._messages = self._lost_messages = 0
        """`CommitMark.messages` as of the transaction under way; and those of them that the numbers of messages do not
        count, since the database went back."""
        try:
            self._lock = file.lock(path)
        except OSError as error:
            why = error.strerror or error
            raise StoreError(f"cannot lock the database {path}: {why}; check the folder and its disk") from error
        try:
            try:
                salvage.take_place(path)
                self.db = _opened(path)
            except OSError as error:
                raise StoreError(f"cannot open the database {path}: {error}; check the folder and its disk") from error
            except DamagedError as error:
                self._begin_anew(str(error))
            self._compare()
        except BaseException:
            self._lock.close()
            raise

    def _begin_anew(self, fault: str) -> None:
        """The new database is whole, with all that is to be known of the old one, before it takes that one's place: a
        kill or a full disk at any point leaves the one or the other, and never one that knows of no flow."""
        known = self._mark_file.read()
        why = f"{fault}; it is kept as {salvage.damaged_path(self.path)}, and a new one is begun: {all_of_it(known)}"
        flows = salvage.flows(self.path)
        mark = known or CommitMark(_identity(), 0, 0)
        notes = {
            "identity": mark.database,
            "commits": mark.commits,
            "messages": mark.messages,
            "begun_anew": why,
            "rescued": salvage.pack(flows),
            "subscriptions": salvage.subscriptions(self.path),
        }
        if not salvage.are_all(self.path, flows):
            notes["flows_unread"] = why  # for good: whoever deploys one of them again is told what is missing
        try:
            salvage.remove(salvage.damaged_path(self.path))  # one from before: the new one may need its room
            with closing(_opened(salvage.new_path(self.path))) as new:
                new.executemany(PUT, list(notes.items()))
            salvage.set_aside(self.path)
            salvage.take_place(self.path)
            self._mark_file.write(mark, wait=True)  # or its absence would be said once more
        except (OSError, sqlite3.Error, StoreError) as error:
            raise StoreError(f"{fault}, and another one cannot be begun: {error}; make room on its disk") from error
        self.db = _opened(self.path)

    def _compare(self) -> None:
        """Finds what is gone since the last commit of the process before. It is noted with the next transaction."""
        mark, known = self._mark_file.read(), str(self.meta("identity", ""))
        numbered = int(self.meta("next_index", 1)) - 1
        found = CommitMark(known, int(self.meta("commits", 0)), int(self.meta("messages", numbered)))
        gone = missing(mark, found, self.path)
        # what an earlier start found, and had not said for good when the log with it was lost
        self.lost = "; and before that, ".join(filter(None, (gone, str(self.meta("lost", "")))))
        self.went_back = self.lost not in ("", unmarked(self.path))
        if gone:
            self.note("lost", self.lost)
            if not self._rows("SELECT 1 FROM flow LIMIT 1"):  # the next flow tells it: `gateway.uplink.reconcile`
                self.note("flows_unread", gone)
        commits, messages = max(found.commits, mark.commits if mark else 0), found.messages
        if mark is not None:  # the numbers went back, and the count must not: a loss may be lost in its turn
            messages = max(messages, mark.messages)
        self.mark = CommitMark(known or _identity(), commits, messages)
        self._lost_messages = messages - numbered
        if not known:
            self._begin_mark(begun=mark is not None)

    def _begin_mark(self, begun: bool) -> None:
        """The mark stands before the database says that it has one, and the database says it without its log."""
        if not begun:  # else it tells what is gone, until the database does
            self._mark_file.write(self.mark, wait=True)
        self.note("identity", self.mark.database)
        with suppress(StoreError), Transactions._transaction(self):  # on a full disk with the next transaction
            pass
        self.write_back()

    def lost_is_said(self) -> None:
        """All flows that are known say what is missing."""
        with self._transaction() as db:
            db.execute("DELETE FROM meta WHERE key = 'lost'")

    def write_back(self) -> None:
        """Has the log written back into the database, as far as nobody reads: what a lost log would cost grows until
        then. One that fails is tried again by SQLite itself."""
        with suppress(sqlite3.Error):
            self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def rescued(self) -> list[StoredFlow] | None:
        """The flows of a damaged database that this one took the place of, as far as they could be read; until
        `Database.restored`, then and else None."""
        found = self.meta("rescued")
        return None if found is None else salvage.unpack(found)

    def close(self) -> None:
        if self.mark.database:
            self._mark_file.write(self.mark, wait=True)
        self._mark_file.close()
        self.db.close()
        self._lock.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing. Nothing is written any more to a database that is found damaged: the next start may
        set it aside, and what had been acknowledged for it would be gone with it."""
        if self.damaged:
            raise StoreError(f"the database {self.path} is damaged, nothing is written any more: {self.damaged}")
        self._rollback()  # one that could not be taken back when it failed
        self._messages, commits = self.mark.messages, self.mark.commits + 1
        try:
            self.db.execute("BEGIN IMMEDIATE")
            yield self.db
            self.db.executemany(PUT, [*self._notes.items(), ("commits", commits), ("messages", self._messages)])
            self.db.execute("COMMIT")
        except (sqlite3.Error, *UNREADABLE) as error:
            self._rollback()
            raise self._failed("written", error) from error
        except BaseException:
            self._rollback()
            raise
        self._notes.clear()
        self.mark = CommitMark(self.mark.database, commits, self._messages)
        self._mark_file.write(self.mark)

    def write(self, change: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **named: P.kwargs) -> T:
        """A change in a transaction of its own."""
        with self._transaction() as db:
            return change(db, *args, **named)

    def _rollback(self) -> None:
        try:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise StoreError(f"a transaction of the database {self.path} could not be taken back: {error}") from error

    def read(self, read: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **named: P.kwargs) -> T:
        """Every read goes through here, so that a failing disk is a `StoreError` too."""
        try:
            return read(self.db, *args, **named)
        except (sqlite3.Error, *UNREADABLE) as error:
            raise self._failed("read", error) from error

    def _failed(self, done: str, error: Exception) -> StoreError:
        text = f"the database {self.path} could not be {done}: {error}"
        if not isinstance(error, sqlite3.Error):
            return DamagedError(text)
        if salvage.is_damage(error):
            salvage.suspect(self.path)
            self.damaged = text
        return StoreError(text)

    def _rows(self, query: str, *values: Any) -> list[Any]:
        return self.read(lambda db: db.execute(query, values).fetchall())

    def meta(self, key: str, default: Any = None) -> Any:
        """A value of another type than its default was damaged, and does not count."""
        found = self._rows("SELECT value FROM meta WHERE key = ?", key)
        return found[0][0] if found and (default is None or type(found[0][0]) is type(default)) else default

    def set_meta(self, key: str, value: Any) -> None:
        """Writes a value now; if that fails, with the next transaction that succeeds."""
        self.note(key, value)
        with self._transaction():
            pass

    def note(self, key: str, value: Any) -> None:
        """Works as `set_meta`, with the next transaction that succeeds: it costs none of its own."""
        self._notes[key] = value


def _identity() -> str:
    return secrets.token_hex(16)


def _opened(path: Path) -> sqlite3.Connection:
    db = file.connect(path)
    try:
        upgrade(db)
    except (sqlite3.Error, DamagedError, UnicodeDecodeError) as error:
        db.close()
        damaged = isinstance(error, DamagedError) or salvage.is_damage(error)
        kind = DamagedError if damaged else StoreError
        raise kind(f"the database {path} could not be brought up to date: {error}") from error
    except BaseException:
        db.close()
        raise
    return db
