"""Delta tables in memory that keep to Delta's rules for conflicts and transaction identifiers. A commit to a real one
takes ten milliseconds, and a walk makes a hundred of them.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Final
from unittest import mock

import pyarrow as pa

from edgert.central.fleet import merge as windows_table
from edgert.central.landing import flow_table, landing
from edgert.central.tables import lease
from edgert.central.tables.table import TIME, CommitConflict

Row = dict[str, Any]
Holds = Callable[[Row], bool]
TYPES: Final[Mapping[str, pa.DataType]] = {
    "timestamp": TIME, "date": pa.date32(), "string": pa.string(), "long": pa.int64(), "integer": pa.int32(),
}  # fmt: skip
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TIME: Final = r"(?:TIMESTAMP'[^']+'|to_timestamp_micros\(-?\d+\))"
_SPAN: Final = rf"(?:t\.)?window_start BETWEEN {_TIME} AND {_TIME}"
_DAY: Final = r"DATE'[^']+'"
_WITHIN: Final = re.compile(
    rf"(?:t\.)?day IN \(({_DAY}(?:, {_DAY})*)\) AND \(({_SPAN}(?: OR {_SPAN})*)\)(?: AND NOT ({_SPAN}))?"
)
_SAME: Final = re.compile(r"\(t\.[`\"](\w+)[`\"] IS NOT DISTINCT FROM s\.[`\"](\w+)[`\"]\)")
_IS: Final = re.compile(r"(\w+) = ('[^']*'|-?\d+)")


_IDS = itertools.count()


@dataclass(slots=True)
class Stored:
    """What a table's log says."""

    rows: list[Row] = field(default_factory=list)
    """A new list where some of them give way."""
    commits: list[Mapping[str, int]] = field(default_factory=list)
    """The transaction identifiers of each."""
    ends: list[int] = field(default_factory=list)
    """How many rows there are after each, where they are only appended."""
    versions: dict[str, int] = field(default_factory=dict)
    columns: dict[str, pa.DataType] = field(default_factory=dict)
    """Of a table that was made before it had rows."""
    id: str = field(default_factory=lambda: str(next(_IDS)))

    def commit(self, rows: list[Row], versions: Mapping[str, int]) -> None:
        self.rows = rows
        self.commits.append(dict(versions))
        self.ends.append(len(rows))
        self.versions |= versions

    def conflicts(self, since: int, versions: Mapping[str, int]) -> bool:
        """Whether a commit after that many had one of these identifiers."""
        return any(commit.keys() & versions.keys() for commit in self.commits[since:])


class MemoryTable:
    """As `edgert.central.tables.table.Table`: what it reads is as of the last refresh; a commit conflicts with one that
    came after that under the same transaction identifier, and accepts any version otherwise."""

    store: ClassVar[dict[str, Stored]]
    others: ClassVar[Callable[[], None] | None] = None
    """What another collector does between this one's look and its commit; once."""
    looks: ClassVar[int] = 0
    """After so many looks; 0: before the commit."""

    def __init__(self, uri: str, partition_by: str = "day") -> None:
        self.uri = uri
        self._partition_by = partition_by
        self._seen: int | None = None
        self._versions: dict[str, int] = {}
        self._rows: list[Row] = []
        self._count = 0
        self.loads = 0

    def refresh(self) -> bool:
        stored = self.store.get(self.uri)
        if stored is not None:
            self._seen, self._versions = len(stored.commits), dict(stored.versions)
            self._rows, self._count = stored.rows, len(stored.rows)
        if MemoryTable.others and MemoryTable.looks:
            MemoryTable.looks -= 1
            if not MemoryTable.looks:
                self.let_others()
        return stored is not None

    def at(self) -> int:
        return -1 if self._seen is None else self._seen

    def settle(self) -> None:
        """It has no disk."""

    def version(self, application: str) -> int:
        return self._versions.get(application, 0)

    def properties(self) -> Mapping[str, str]:
        return {}

    def read(self, columns: list[str], where: str) -> list[Row]:
        holds: Mapping[str, Holds] = {"day IS NULL": lambda row: row["day"] is None, "name = 'fleet'": lambda row: True}
        holds_of = holds.get(where) or same_as(where)
        return [{c: row[c] for c in columns} for row in self._rows[: self._count] if holds_of(row)]

    @classmethod
    def let_others(cls) -> None:
        others, cls.others = cls.others, None
        if others:
            others()

    def append(self, data: pa.Table, versions: Mapping[str, int]) -> None:
        self.let_others()
        stored = self._writable(versions)
        stored.rows += rows_of(data)  # who has refreshed before knows how many there were
        stored.commit(stored.rows, versions)
        self.refresh()

    def replace(self, data: pa.Table, versions: Mapping[str, int], where: str) -> None:
        """All rows give way."""
        assert where == "name = 'fleet'"
        self._writable(versions).commit(rows_of(data), versions)
        self.refresh()

    def _writable(self, versions: Mapping[str, int]) -> Stored:
        if self._seen is None and self.uri in self.store:
            raise CommitConflict(f"{self.uri} was created by another writer")
        stored = self.store.setdefault(self.uri, Stored())
        if stored.conflicts(self._seen or 0, versions):
            raise CommitConflict(f"{self.uri}: {sorted(versions)}")
        return stored


class FleetMemoryTable(MemoryTable):
    """A fleet table, as the fleet job writes it without Spark."""

    moment: ClassVar[Callable[[], None]] = staticmethod(lambda: None)
    """Called before and after each commit: what may happen between."""

    def make(self, columns: Sequence[tuple[str, str]], _properties: Mapping[str, str]) -> None:
        stored = self.store.setdefault(self.uri, Stored())
        stored.columns |= {name: TYPES[kind] for name, kind in columns}
        self.refresh()

    def id(self) -> str:
        return self.store[self.uri].id if self.uri in self.store else ""

    def fields(self) -> list[pa.Field]:
        return [pa.field(name, kind) for name, kind in self.store[self.uri].columns.items()]

    def batches(self, columns: Sequence[str], where: str) -> Iterator[pa.RecordBatch]:
        holds, schema = within(where), pa.schema([f for f in self.fields() if f.name in columns])
        found = [row for row in self._rows[: self._count] if holds(row)]
        yield pa.RecordBatch.from_pylist([{c: row[c] for c in columns} for row in found], schema)

    def append(self, data: pa.Table, versions: Mapping[str, int]) -> None:
        FleetMemoryTable.moment()
        super().append(data, versions)
        FleetMemoryTable.moment()

    def merge(self, data: pa.Table, same: str, delete: str, versions: Mapping[str, int]) -> None:
        assert delete == "s.gateways = 0"
        FleetMemoryTable.moment()
        stored = self._writable(versions)
        stored.commit(merged(stored.rows, rows_of(data), same), versions)
        self.refresh()
        FleetMemoryTable.moment()


def merged(known: list[Row], new: list[Row], condition: str) -> list[Row]:
    """What a MERGE makes of a table: those of `new` without gateways are deleted, or not inserted."""
    holds, key = within(condition), key_of(condition)
    by_key = {key(row): row for row in new}
    assert len(by_key) == len(new), f"a window comes twice into a MERGE: {new}"
    kept = [row if not holds(row) else by_key.pop(key(row), row) for row in known]
    return [row for row in (*kept, *by_key.values()) if row["gateways"] > 0]


def rows_of(data: pa.Table) -> list[Row]:
    columns = [data.column(name).to_pylist() for name in data.column_names]
    return [dict(zip(data.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


@lru_cache(maxsize=256)
def within(condition: str) -> Holds:
    """What `Touched.within` says (of a MERGE: the first part of its condition), read back. Any other text fails, so
    that nothing is taken for what it is not."""
    found = _WITHIN.match(condition)
    assert found, condition
    assert found.end() == len(condition) or condition[found.end() :].startswith(" AND (t."), condition
    days = {dt.date.fromisoformat(day) for day in re.findall(r"DATE'([^']+)'", found[1])}
    spans, but = _spans(found[2]), _spans(found[3] or "")

    def holds(row: Row) -> bool:
        start = row["window_start"]
        among = row["day"] in days and any(first <= start <= last for first, last in spans)
        return among and not any(first <= start <= last for first, last in but)

    return holds


def same_as(condition: str) -> Holds:
    """name = value AND name = value ..."""
    values = [_IS.fullmatch(part) for part in condition.split(" AND ")]
    assert all(values), condition
    return lambda row: all(v and str(row[v[1]]) == v[2].strip("'") for v in values)


def key_of(condition: str) -> Callable[[Row], tuple[Any, ...]]:
    """By which columns rows are compared."""
    names = [name for name, other in _SAME.findall(condition) if name == other]
    assert names, condition
    return lambda row: tuple(row[name] for name in names)


def _spans(text: str) -> list[tuple[dt.datetime, dt.datetime]]:
    return [(_time(first), _time(last)) for first, last in re.findall(f"BETWEEN ({_TIME}) AND ({_TIME})", text)]


def _time(literal: str) -> dt.datetime:
    if literal.startswith("TIMESTAMP"):
        return dt.datetime.fromisoformat(literal[len("TIMESTAMP'") : -1])
    return _EPOCH + dt.timedelta(microseconds=int(literal[len("to_timestamp_micros(") : -1]))


def _list_tables(root: str, kind: str) -> list[str]:
    prefix = f"{root}/{kind}/"
    return sorted(uri.removeprefix(prefix) for uri in MemoryTable.store if uri.startswith(prefix))


@contextmanager
def in_memory() -> Iterator[None]:
    """All tables are, and there are none at first."""
    MemoryTable.store, MemoryTable.others = {}, None
    with (
        mock.patch.object(landing, "Table", MemoryTable),
        mock.patch.object(flow_table, "Table", MemoryTable),
        mock.patch.object(landing, "list_tables", _list_tables),
        mock.patch.object(lease, "Table", MemoryTable),
        mock.patch.object(windows_table, "Table", FleetMemoryTable),
    ):
        yield
