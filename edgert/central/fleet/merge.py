"""How recomputed windows come into a fleet table: merged, or appended where it has none of them.

Few windows are written by `deltalake` in some hundredths of a second, many by Spark, which finds room for any number.

One process writes at a time. It is fenced by Delta's transaction identifiers: each write carries the lease's token, so
what somebody who lost the lease has still under way conflicts, and what he begins later is refused. Spark would leave
that out without a word, so after each write of Spark the table is asked whether it has it.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812

from edgert.central.fleet.columns import fleet_columns, window_columns
from edgert.central.fleet.touched_windows import Span, Touched, deltalake_literal
from edgert.central.fleet.written_marker import APPLICATION, Written
from edgert.central.spark.session import set_for
from edgert.central.tables.lease import LeaseLost, TableLease
from edgert.central.tables.table import Table
from edgert.core.results.result_schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("edgert.central.fleet")
_COMPACT_AFTER: Final = 50
"""Writes to a day, each of which makes small files. Days that rest are `edgert.central.upkeep.upkeep`'s."""
PROPERTIES: Final = {
    # Delta's own 10 would make every tenth trigger at low rate write one; to read 50 commits costs little.
    "delta.checkpointInterval": "50",
    # By these files are left out; each further column would cost every write, and every file has all keys.
    "delta.dataSkippingStatsColumns": "window_start,window_end",
}
_DELETED: Final = "s.gateways = 0"
_SPARKS, _DELTALAKES = "`", '"'
"""Quotes of names in SQL."""


class WindowMerge:
    """`fleet/<flow>` as this process writes it. All that writes raises `LeaseLost` if another was allowed to since, and
    `TableError` and `CommitConflict` as `Table` does."""

    def __init__(self, uri: str, lease: TableLease) -> None:
        self._uri = uri
        self.lease = lease
        self._table = Table(uri)
        self._columns: frozenset[str] = frozenset()
        self._number = 0
        """Number of the newest write, which is ours (0: none yet)."""
        self._since: Counter[dt.date] = Counter()
        """Writes to each day since it was compacted."""

    def lacks(self, written: Written) -> str:
        """Works as `Written.why_incomplete`."""
        self._table.refresh()
        return written.why_incomplete(self._table, APPLICATION)

    def written(self) -> tuple[str, int]:
        """Delta's id of the table, and the number of our newest write (0: none yet)."""
        return self._table.id(), self._number

    def widen(self, schema: Schema) -> None:
        """Makes the table, or gives it the columns that it lacks. Comes before each write."""
        columns = fleet_columns(schema)
        names = frozenset(name for name, _ in columns)
        if names <= self._columns:
            return
        self._table.refresh()
        self._table.make(columns, PROPERTIES)
        if not self._columns:
            self._append(pa.schema(self._table.fields()).empty_table())  # from here on no older token writes
        self._columns |= names

    def known(self, touched: Touched) -> Span | None:
        """Returns when the table's windows begin that are within what is touched, first and last (None: it has
        none)."""
        self._table.refresh()
        starts = [
            pc.min_max(batch["window_start"].cast(pa.int64()))
            for batch in self._table.batches(["window_start"], touched.within("t.", deltalake_literal))
            if batch.num_rows
        ]
        return (min(s["min"].as_py() for s in starts), max(s["max"].as_py() for s in starts)) if starts else None

    def has_any(self, keys: DataFrame, touched: Touched, schema: Schema) -> bool:
        """True if one of the windows of `keys` (window columns), all within what is touched, is in the table."""
        known = self._read(keys.sparkSession).where(touched.within())
        same = known.select(*window_columns(schema)).alias("t")
        return not keys.alias("s").join(same, F.expr(_same(schema, _SPARKS)), "left_semi").isEmpty()

    def append(self, windows: DataFrame, touched: Touched) -> None:
        """Windows of which the table has none."""
        self.lease.hold()
        number = self._next()
        windows.write.format("delta").mode("append").options(**_of_spark(number)).save(self._uri)
        self._written(number)
        self._rest(windows.sparkSession, touched.days)

    def merge(self, windows: DataFrame, touched: Touched, schema: Schema) -> None:
        """Windows, all within what is touched, in the place of what the table says of them; those without gateways are
        deleted."""
        self.lease.hold()
        spark, number = windows.sparkSession, self._next()
        merge = (
            DeltaTable.forPath(spark, self._uri)
            .alias("t")
            .merge(windows.alias("s"), f"{touched.within('t.')} AND {_same(schema, _SPARKS)}")
            .whenMatchedDelete(_DELETED)
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll(f"NOT ({_DELETED})")
        )
        options = {f"spark.databricks.delta.write.{name}": value for name, value in _of_spark(number).items()}
        with set_for(spark, options):
            merge.execute()
        self._written(number)
        self._rest(spark, touched.days)

    def merge_few(self, windows: DataFrame, touched: Touched, schema: Schema) -> None:
        """Works as `merge`, for so few windows that this process has room for all of them. New ones get a file of their
        own: in that of the windows that change it would be written again with these, and grow."""
        found = windows.toArrow()
        self.lease.hold()
        self._table.refresh()
        names, within = window_columns(schema), touched.within("t.", deltalake_literal)
        keys = _keys(found, names)
        there = (_keys(batch, names) for batch in self._table.batches(names, within))  # all at once have no room
        among = [some.filter(pc.is_in(some, keys)) for some in there]
        known = pc.is_in(keys, pa.chunked_array(among, pa.string()))
        changed, new = found.filter(known), found.filter(pc.invert(known))
        if changed.num_rows:
            same = f"{within} AND {_same(schema, _DELTALAKES)}"
            number = self._next()
            self._table.merge(changed, same, _DELETED, {APPLICATION: number})
            self._number = number
        if new.num_rows:
            self._append(new.filter(pc.field("gateways") > 0))
        self._rest(windows.sparkSession, touched.days)

    def put_day(self, windows: DataFrame, day: dt.date) -> int:
        """All windows of a day in the place of what the table says of it. Returns how many it has then."""
        self.lease.hold()
        only = f"day = DATE'{day}'"
        writer = windows.write.format("delta").mode("overwrite").option("replaceWhere", only)
        number = self._next()
        writer.options(**_of_spark(number)).save(self._uri)
        self._written(number)
        return self._read(windows.sparkSession).where(only).count()

    def _read(self, spark: SparkSession) -> DataFrame:
        return spark.read.format("delta").load(self._uri)

    def _append(self, windows: pa.Table) -> None:
        number = self._next()
        self._table.append(windows, {APPLICATION: number})
        self._number = number

    def _next(self) -> int:
        """The number of a write, behind the table's newest: Delta refuses it if there is one above it by then. The
        first takes over; from then on the newest must be ours, or another may write by now, if only a stream of this
        process that was started in our place."""
        last = self._recorded()
        if not self._number and last >> 32 > self.lease.token:
            # Who holds the lease and finds a greater token holds one that counts anew; nobody else gets past this.
            self.lease.rise_above(last >> 32)
            log.warning("%s: written under a later lease than ours, so `leases` was removed or put back; ours goes on "
                        "with number %d", self._uri, self.lease.token)  # fmt: skip
        elif self._number and last != self._number:
            raise LeaseLost(f"{self._uri}: written by another since; its number is {last}, ours {self._number}")
        return max(last + 1, self.lease.token << 32)

    def _recorded(self) -> int:
        self._table.refresh()
        return self._table.version(APPLICATION)

    def _written(self, number: int) -> None:
        recorded = self._recorded()
        if recorded != number:
            raise LeaseLost(f"{self._uri}: write {number} was left out, since the table has {recorded}")
        self._number = number

    def _rest(self, spark: SparkSession, days: Collection[dt.date]) -> None:
        """Does the upkeep that is due after a write to these days."""
        self.lease.hold()  # raises where another job has the lease by now: the batch is left to that one
        self._since.update(days)
        for day in [day for day in days if self._since[day] >= _COMPACT_AFTER]:
            del self._since[day]
            DeltaTable.forPath(spark, self._uri).optimize().where(f"day = DATE'{day}'").executeCompaction()


def _of_spark(number: int) -> dict[str, str]:
    return {"txnAppId": APPLICATION, "txnVersion": str(number)}


def _same(schema: Schema, quote: str) -> str:
    names = [f"{quote}{name}{quote}" for name in window_columns(schema)]
    return " AND ".join(f"(t.{name} IS NOT DISTINCT FROM s.{name})" for name in names)


def _keys(windows: pa.Table | pa.RecordBatch, names: list[str]) -> pa.Array | pa.ChunkedArray:
    """A text per window that tells windows apart. Different windows may have the same text: they are taken for known
    and merged, which inserts them."""
    texts = []
    for name in names:
        column = windows[name]
        if pa.types.is_timestamp(column.type):  # as text it would need the machine's time zones
            column = column.cast(pa.int64())
        texts.append(pc.fill_null(column.cast(pa.string()), ""))
    return pc.binary_join_element_wise(*texts, "/")
