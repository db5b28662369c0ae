"""The register of readers: how far each has read each table, in the Delta table `readers` under the root.

Upkeep deletes nothing that a reader in it has still to read. A reader says again and again where it is; one that has
said nothing for the patience that is set is left behind: upkeep waits for it no longer, and it finds that written here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from edgert.central.tables.query import literal
from edgert.central.tables.table import TIME, Table, join, told
from edgert.core.errors import EdgertError

FLEET_JOB: Final = "fleet-job"
"""The reader that reads all landing tables, also those that came since it said something."""
_SILENT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Reach:
    """Two versions of a table, both inclusive."""

    log: int
    """Commits after it are still looked at, and the table as of it: the log has to reach back so far."""
    rows: int
    """All rows that were committed up to it have been read: files removed up to it are not needed."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One row of the register: a reader and a table."""

    reader: str
    table: str
    """Its name under the root, such as `landing/city-air`."""
    reach: Reach
    seen: float
    """When the reader last said so, seconds since the epoch."""
    left: bool = False
    """Upkeep went on without it: what it has not read yet may be gone."""

    def state(self, now: float, patience_s: float) -> str:
        """For people: `reading`, or what becomes of one that is silent."""
        silent_s = now - self.seen
        if self.left:
            return "left behind"
        if silent_s > patience_s:
            return "left behind by the next upkeep"
        if silent_s > _SILENT_S:
            return f"silent, waited for {(patience_s - silent_s) / 86_400:.1f} more days"
        return "reading"


class Readers:
    """Not for more than one thread; several processes may write, each reader's rows are replaced as a whole.

    Everything raises `TableError` when the register cannot be read or written.
    """

    def __init__(self, root: str, wall: Callable[[], float] = time.time) -> None:
        self._root = root
        self._table = Table(join(root, "readers"), partition_by="reader")
        self._wall = wall

    def all(self) -> list[Reading]:
        """Every reader of every table, sorted."""
        self._table.refresh()
        return self._read("true")

    def begin(self, reader: str, table: str) -> None:
        """A reader that is new, or starts anew: nothing of the table is deleted until it says how far it is."""
        self._change(reader, lambda rows: {**rows, table: Reading(reader, table, Reach(0, 0), self._wall())})

    def tell(self, reader: str, reaches: Mapping[str, Reach]) -> set[str]:
        """Notes how far a reader is, by table. Returns the tables for which it was left behind, and changes nothing
        for these: it has to `begin` again, and to read them from what is there now."""
        left: set[str] = set()

        def change(rows: dict[str, Reading]) -> dict[str, Reading]:
            left.clear()
            left.update(table for table in reaches if table in rows and rows[table].left)
            told = {t: Reading(reader, t, reach, self._wall()) for t, reach in reaches.items() if t not in left}
            return rows | told

        self._change(reader, change)
        return left

    def tell_from_outside(self, reader: str, table: str, version: int | None) -> None:
        """Works as `tell`, for a reader of somebody else's: it has read all of a version (None: of the newest).

        Raises `EdgertError` if the table has no such version any more, or the reader was left behind.
        """
        uri = join(self._root, table)
        with told(uri, f"expected a table that has version {version}" if version is not None else "could not be read"):
            at = DeltaTable(uri, version=version).version()
        if self.tell(reader, {table: Reach(at, at)}):
            raise EdgertError(
                f"reader {reader!r} was left behind: what {table} had after its last version may be gone; --remove it, "
                "then register it with the version that it begins with"
            )

    def leave(self, readings: Iterable[Reading]) -> list[Reading]:
        """Wait for these no longer. Returns those of them that have said nothing meanwhile."""
        left: list[Reading] = []
        for reading in readings:

            def change(rows: dict[str, Reading], reading: Reading = reading) -> dict[str, Reading]:
                return rows | {reading.table: replace(reading, left=True)} if reading in rows.values() else rows

            if replace(reading, left=True) in self._change(reading.reader, change).values():
                left.append(reading)
        return left

    def remove(self, reader: str) -> int:
        """Strike a reader off. Returns from how many tables; raises `EdgertError` if it is not registered."""
        self._table.refresh()
        known = self._read(f"reader = {literal(reader)}")
        if not known:
            names = ", ".join(sorted({r.reader for r in self._read("true")})) or "none"
            raise EdgertError(f"reader {reader!r}: expected one of those registered: {names}")
        self._change(reader, lambda _: {})
        return len(known)

    def _read(self, where: str) -> list[Reading]:
        names = ["reader", "table", "log", "rows", "seen", "left"]
        found = [
            Reading(r["reader"], r["table"], Reach(r["log"], r["rows"]), r["seen"].timestamp(), r["left"])
            for r in self._table.read(names, where)
        ]
        return sorted(found, key=lambda r: (r.reader, r.table))

    def _change(self, reader: str, change: Callable[[dict[str, Reading]], dict[str, Reading]]) -> dict[str, Reading]:
        """Replace the rows of a reader (by table), deciding again when another came first; returns the new ones."""
        mine = f"reader = {literal(reader)}"

        def decided() -> dict[str, Reading]:
            old = {r.table: r for r in self._read(mine)}
            new = change(old)
            if new != old:
                self._table.replace(_rows(new.values()), {reader: self._table.version(reader) + 1}, mine)
            return new

        return self._table.decide(decided)


def _rows(readings: Iterable[Reading]) -> pa.Table:
    rows = [
        {
            "reader": r.reader,
            "table": r.table,
            "log": r.reach.log,
            "rows": r.reach.rows,
            "seen": round(r.seen * 1e6),
            "left": r.left,
        }
        for r in readings
    ]
    kinds = [("reader", pa.string()), ("table", pa.string()), ("log", pa.int64()), ("rows", pa.int64())]
    return pa.Table.from_pylist(rows, schema=pa.schema([*kinds, ("seen", TIME), ("left", pa.bool_())]))
