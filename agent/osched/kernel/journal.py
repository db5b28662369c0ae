"""The journal of what the agent changed: on disk, and safe there, before each change.

A line of JSON per record; the first line names the boot. A killed agent's next start undoes what is in it. Only the
value *before* the agent's first change of a thread is noted, so nothing is written while the same threads get other
values. Another boot's journal means nothing: its threads are gone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from agent.drivers.entities import Thread
from edgert.boards.files import open_own, sync

log = logging.getLogger(__name__)
ChangeKind = Literal["group", "slice", "cores", "nice"]
KINDS: Final[tuple[ChangeKind, ...]] = get_args(ChangeKind)


class Before(NamedTuple):
    """The value of a thread before the agent's first change."""

    kind: ChangeKind
    thread: Thread
    process_start_ticks: int
    at_ticks: int
    """Time of the change, clock ticks after the boot: a later thread of the process inherited the changed value."""
    value: int | str


class MadeGroup(NamedTuple):
    """A group that the agent made: the path of its folder."""

    path: str


JournalEntry = Before | MadeGroup


class Journal:
    """The records in a file; `records` holds those since the last `clear`, as on disk."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self._path, self._boot_id = path, boot_id
        self._file: int | None = None
        self.records: list[JournalEntry] = []

    def load(self) -> list[JournalEntry]:
        """Records that a former agent of this boot left, in order. A line that cannot be read is skipped: its change
        was not made, since a record is whole on disk before the change. Raises `OSError`, also for a file that another
        user may have written."""
        try:
            with os.fdopen(open_own(self._path, os.O_RDONLY), encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return []
        if not lines or _plain(lines[0]).get("boot") != self._boot_id:
            return []
        self.records = [record for line in lines[1:] if (record := _record(_plain(line))) is not None]
        return self.records

    def note(self, records: Iterable[JournalEntry]) -> None:
        """Append the records; they are on disk when this returns. Raises `OSError`: then change nothing."""
        new = list(records)
        if not new:
            return
        if self._file is not None and os.fstat(self._file).st_nlink == 0:
            self._close()  # somebody removed it: what we know goes into a new one
            new, self.records = [*self.records, *new], []
        if self._file is None:
            self._file = self._open()
        length = os.fstat(self._file).st_size
        text = "".join(json.dumps(_document(r), separators=(",", ":")) + "\n" for r in new)
        data = memoryview(text.encode())
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError:
            with contextlib.suppress(OSError):  # the next record must not be appended to half a line
                os.ftruncate(self._file, length)
            self._close()
            raise
        self.records += new

    def _open(self) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = open_own(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        with os.fdopen(file, "rb", closefd=False) as reader:
            text = reader.read()
        ours = bool(text) and _plain(text.split(b"\n", 1)[0].decode(errors="replace")).get("boot") == self._boot_id
        if not ours:
            os.ftruncate(file, 0)
            os.write(file, (json.dumps({"boot": self._boot_id}) + "\n").encode())
        elif not text.endswith(b"\n"):
            os.write(file, b"\n")  # ends the line in which a former agent was killed
        sync(self._path.parent)  # the name of a new file, too, is safe
        return file

    def rewrite(self, records: Sequence[JournalEntry]) -> None:
        """Keep only these records. Raises `OSError`; the file is then as it was."""
        new = self._path.with_suffix(".new")
        other = Journal(new, self._boot_id)
        other.clear()
        other.note(records)
        if other._file is None:
            return
        os.replace(new, self._path)
        self._close()
        self._file, self.records = other._file, other.records
        sync(self._path.parent)

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def clear(self) -> None:
        """All is undone: forget the records."""
        self._close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self.records = []


def _plain(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _document(record: JournalEntry) -> dict[str, Any]:
    if isinstance(record, MadeGroup):
        return {"made": record.path}
    fields = record._asdict()
    return {**fields, "thread": list(record.thread)}


def _record(document: dict[str, Any]) -> JournalEntry | None:
    if isinstance(path := document.get("made"), str):
        return MadeGroup(path)
    kind, thread, value = document.get("kind"), document.get("thread"), document.get("value")
    start, at = document.get("process_start_ticks"), document.get("at_ticks")
    numbers = [*thread, start, at] if isinstance(thread, list) and len(thread) == 3 else []
    typed = bool(numbers) and all(type(n) is int for n in numbers)
    if typed and kind in KINDS and isinstance(value, str | int) and isinstance(value, str) == (kind == "group"):
        pid, tid, thread_start, process_start, at_ticks = numbers
        return Before(kind, Thread(pid, tid, thread_start), process_start, at_ticks, value)
    if document:
        log.warning("osched: a line of the journal was skipped: expected a record, got %s", document)
    return None


def changes(records: Iterable[JournalEntry], kind: ChangeKind) -> Iterator[Before]:
    """The records of one kind."""
    return (r for r in records if isinstance(r, Before) and r.kind == kind)
