"""Spark's part of the fleet job in memory, since Spark takes seconds for a batch: what it selects, groups and commits.

All that the job decides is the product's own code: what a batch touches, which openings unsettle what, what is merged
and what appended, lease and fence. Written again here, and tried on Spark itself by `tests/central`, are the
expressions of `recompute` (which contribution counts, which touches its window), the aggregation before `touched_of`,
and how Spark commits. As with Spark, a frame is looked at when something is done with it, which is later than made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import pyarrow as pa
from pyspark.errors import PySparkException

from edgert.central.fleet import merge as windows_table
from edgert.central.fleet import recompute, table, touched_windows
from edgert.central.fleet.columns import fleet_columns, window_columns
from edgert.central.fleet.touched_windows import Low, Span, Touched
from edgert.central.landing.lineage import LAST, Cut, Epoch
from edgert.core.results.result_schema import Schema
from tests.protocol.memory_table import (
    TYPES,
    FleetMemoryTable,
    MemoryTable,
    Row,
    Stored,
    in_memory,
    key_of,
    merged,
    within,
)

_OPTION: Final = "spark.databricks.delta.write."
_HOUR_S: Final = 3600


class Session:
    """What the job asks of a `SparkSession`."""

    def __init__(self) -> None:
        self._settings: dict[str, str] = {}
        self.conf = SimpleNamespace(
            get=lambda name, default=None: self._settings.get(name, default),
            set=self._settings.__setitem__,
            unset=self._settings.pop,
        )

    @property
    def read(self) -> Session:
        return self

    def format(self, name: str) -> Session:
        assert name == "delta"
        return self

    def load(self, uri: str) -> Frame:
        """A table as it is when it is looked at."""
        return Frame(self, lambda: list(MemoryTable.store[uri].rows))


class Frame:
    """Rows, and of windows the columns that they are to have."""

    def __init__(
        self, spark: Session, rows: Callable[[], list[Row]], columns: Mapping[str, pa.DataType] | None = None
    ) -> None:
        self.sparkSession = spark
        self.rows = rows
        self._columns = columns

    def _made(self, change: Callable[[list[Row]], Iterable[Row]]) -> Frame:
        return Frame(self.sparkSession, lambda: list(change(self.rows())), self._columns)

    def where(self, condition: str) -> Frame:
        return self._made(lambda rows: filter(within(condition), rows))

    def coalesce(self, _partitions: int) -> Frame:
        return self

    def alias(self, _name: str) -> Frame:
        return self

    def select(self, *names: str) -> Frame:
        return self._made(lambda rows: ({name: row[name] for name in names} for row in rows))

    def limit(self, most: int) -> Frame:
        return self._made(lambda rows: rows[:most])

    def join(self, other: Frame, on: str, how: str) -> Frame:
        assert how == "left_semi"
        key = key_of(on)

        def both(rows: list[Row]) -> Iterable[Row]:
            others = {key(row) for row in other.rows()}
            return (row for row in rows if key(row) in others)

        return self._made(both)

    def count(self) -> int:
        FleetMemoryTable.moment()
        return len(self.rows())

    def isEmpty(self) -> bool:  # noqa: N802
        return not self.count()

    def toArrow(self) -> pa.Table:  # noqa: N802
        assert self._columns
        FleetMemoryTable.moment()
        found = pa.Table.from_pylist(self.rows(), pa.schema(self._columns.items()))
        FleetMemoryTable.moment()
        return found

    @property
    def write(self) -> _Append:
        return _Append(self)


class _Append:
    """`DataFrame.write`: an append."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._options: dict[str, str] = {}

    def format(self, name: str) -> _Append:
        assert name == "delta"
        return self

    def mode(self, name: str) -> _Append:
        assert name == "append"
        return self

    def options(self, **options: str) -> _Append:
        self._options |= options
        return self

    def save(self, uri: str) -> None:
        _commit(uri, self._options, lambda known: known + self._frame.rows())


class _Merge:
    """`DeltaTable` and what its `merge` gives."""

    def __init__(self, spark: Session, uri: str) -> None:
        self._spark, self._uri = spark, uri

    def alias(self, _name: str) -> _Merge:
        return self

    def merge(self, windows: Frame, condition: str) -> _Merge:
        self._windows, self._condition = windows, condition
        return self

    def whenMatchedDelete(self, condition: str) -> _Merge:  # noqa: N802
        assert condition == "s.gateways = 0"
        return self

    def whenMatchedUpdateAll(self) -> _Merge:  # noqa: N802
        return self

    def whenNotMatchedInsertAll(self, condition: str) -> _Merge:  # noqa: N802
        assert condition == "NOT (s.gateways = 0)"
        return self

    def execute(self) -> None:
        options = {name: self._spark.conf.get(_OPTION + name) for name in ("txnAppId", "txnVersion")}
        _commit(self._uri, options, lambda known: merged(known, self._windows.rows(), self._condition))

    def optimize(self) -> _Merge:
        return self

    def where(self, _condition: str) -> _Merge:
        return self

    def executeCompaction(self) -> None:  # noqa: N802
        """It changes nothing that can be seen here."""


def _commit(uri: str, options: Mapping[str, Any], change: Callable[[list[Row]], list[Row]]) -> None:
    """As Delta for Spark: a number that the table has is left out without a word; who comes in between conflicts."""
    FleetMemoryTable.moment()
    versions = {str(options["txnAppId"]): int(options["txnVersion"])}
    stored = MemoryTable.store[uri]
    if any(stored.versions.get(name, 0) >= number for name, number in versions.items()):
        return
    began, known = len(stored.commits), list(stored.rows)
    FleetMemoryTable.moment()
    rows = change(known)
    FleetMemoryTable.moment()
    if stored.conflicts(began, versions):
        raise PySparkException("[DELTA_CONCURRENT_TRANSACTION] another came first")
    stored.commit(rows, versions)
    FleetMemoryTable.moment()


# -- what `recompute` says in expressions


class Lineage:
    """As `recompute.Lineage`."""

    def __init__(self, _spark: Session, limits: Mapping[Epoch, Cut], lows: Mapping[Epoch, Low] | None = None) -> None:
        self._limits, self._lows = limits, lows or {}

    def counts(self, row: Row) -> bool:
        epoch = (row["gateway"], row["epoch"])
        if epoch not in self._limits:
            return False
        cut = self._limits[epoch]
        return cut is None or bool(row["sequence"] <= cut.get(row["stream"], 0))

    def touches(self, row: Row) -> bool:
        low = self._lows.get((row["gateway"], row["epoch"]), Low({}))
        after, up_to = low.streams.get(row["stream"], (low.others, LAST))
        return after is not None and bool(after < row["sequence"] <= up_to)


def _touching(landing: Frame, lineage: Lineage) -> Frame:
    return landing._made(lambda rows: filter(lineage.touches, rows))


def _recompute(contributions: Frame, lineage: Lineage, schema: Schema, void: bool) -> Frame:
    columns = fleet_columns(schema)
    keys = window_columns(schema)

    def windows(rows: list[Row]) -> Iterator[Row]:
        groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in rows:
            if void or lineage.counts(row):
                groups[tuple(row[name] for name in keys)].append(row)
        for key, group in groups.items():
            if any(map(lineage.touches, group)):
                counted = [row for row in group if lineage.counts(row)]
                gateways = len({row["gateway"] for row in counted})
                yield dict(zip(keys, key, strict=True)) | {"n": sum(r["n"] for r in counted), "gateways": gateways}

    found = contributions._made(windows)
    return Frame(found.sparkSession, found.rows, {name: TYPES[kind] for name, kind in columns})


def _touched_by(batch: Frame) -> Touched:
    FleetMemoryTable.moment()
    parts = []
    for (gateway, epoch, stream, day, _), rows in _by_hour(batch, "gateway", "epoch", "stream", "day").items():
        part = SimpleNamespace(gateway=gateway, epoch=epoch, stream=stream, day=day, rows=len(rows))
        part.least, part.most = min(r["sequence"] for r in rows), max(r["sequence"] for r in rows)
        part.first, part.last = _span(rows)
        part.opens = any(row["lineage"] is not None for row in rows)
        parts.append(part)
    return touched_windows.touched_of(parts)


def _spans_of(contributions: Frame) -> list[tuple[Any, Span]]:
    FleetMemoryTable.moment()
    return [(day, _span(rows)) for (day, _), rows in _by_hour(contributions, "day").items() if day is not None]


def _by_hour(frame: Frame, *names: str) -> Mapping[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in frame.rows():
        hour = row["day"] and row["window_start"].timestamp() // _HOUR_S
        groups[(*(row[name] for name in names), hour)].append(row)
    return groups


def _span(rows: list[Row]) -> Span:
    starts = [round(row["window_start"].timestamp() * 1e6) for row in rows if row["day"]] or [0]
    return min(starts), max(starts)


def stored(flow: str) -> Stored:
    """A fleet table."""
    return MemoryTable.store.get(f"root/fleet/{flow}", Stored())


@contextmanager
def without_spark() -> Iterator[None]:
    """All tables are in memory, none at first, and the fleet job works with what stands here."""
    with ExitStack() as patches:
        patches.enter_context(in_memory())
        for module, name, ours in (
            (recompute, "Lineage", Lineage),
            (recompute, "touching", _touching),
            (recompute, "recompute", _recompute),
            (table, "touched_by", _touched_by),
            (table, "spans_of", _spans_of),
            (windows_table, "DeltaTable", SimpleNamespace(forPath=_Merge)),
            (windows_table, "F", SimpleNamespace(expr=str)),
        ):
            patches.enter_context(mock.patch.object(module, name, ours))
        yield
