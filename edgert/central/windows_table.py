"""How recomputed windows come into a fleet table: merged, or appended where it has none of them.

One process writes at a time. It is fenced by Delta's transaction identifiers: each write carries the lease's token, so
what somebody who lost the lease has still under way conflicts, and what he begins later is left out. Delta leaves it
out without a word, so after each write the table is asked whether it has it.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812

from edgert.central import recompute as sums
from edgert.central.lease import Lease, LeaseLost
from edgert.central.session import set_for
from edgert.central.tables import Table
from edgert.core.result_schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

APPLICATION: Final = "edgert.fleet"
_COMPACT_AFTER: Final = 50
"""Writes to a day, each of which makes small files. `edgert.central.upkeep` compacts a day only when it rests."""
_PROPERTIES: Final = {
    # Delta's own 10 would make every tenth trigger at low rate write one; to read 50 commits costs little.
    "delta.checkpointInterval": "50",
    # By these files are left out; each further column would cost every write, and every file has all keys.
    "delta.dataSkippingStatsColumns": "window_start,window_end",
}


class WindowsTable:
    """`fleet/<flow>` as this process writes it. All that writes raises `LeaseLost` if it was left out."""

    def __init__(self, uri: str, lease: Lease) -> None:
        self._uri = uri
        self._lease = lease
        self._columns: list[str] | None = None
        self._log = Table(uri)
        self._number = 0
        """Of the last write: the lease's token before, a count behind."""
        self._since: Counter[dt.date] = Counter()
        """Writes to each day since it was compacted."""

    def widen(self, spark: SparkSession, schema: Schema) -> None:
        """Makes the table, or gives it the columns that it lacks. Comes before each write."""
        columns = sums.fleet_columns(schema)
        if self._columns is None:
            builder = DeltaTable.createIfNotExists(spark).location(self._uri).partitionedBy("day")
            for name, kind in columns:
                builder = builder.addColumn(name, kind)
            table = builder.execute()
            has = table.detail().select("properties").collect()[0][0]
            if any(has.get(name) != value for name, value in _PROPERTIES.items()):
                told = ", ".join(f"'{name}' = '{value}'" for name, value in _PROPERTIES.items())
                spark.sql(f"ALTER TABLE delta.`{self._uri}` SET TBLPROPERTIES ({told})")
            self._number = self._recorded()  # this process may have written before, under the same token
            self._append(table.toDF().where("false"))  # from here on nobody with an older token writes
            self._columns = table.toDF().columns
        new = [f"`{name}` {kind}" for name, kind in columns if name not in self._columns]
        if new:
            spark.sql(f"ALTER TABLE delta.`{self._uri}` ADD COLUMNS ({', '.join(new)})")
            self._columns += [name for name, _ in columns if name not in self._columns]

    def has_any(self, keys: DataFrame, within: str, schema: Schema) -> bool:
        """Whether one of the windows of `keys` (window columns) is in the table. `within`: a condition that holds for
        all of them."""
        known = self._read(keys.sparkSession).where(within)
        start = F.unix_micros("window_start")
        first, last = known.agg(F.min(start), F.max(start)).collect()[0]
        if first is None:
            return False
        near = F.col("window_start").between(*(F.timestamp_micros(F.lit(at)) for at in (first, last)))
        same = known.select(*sums.window_columns(schema)).alias("t")
        return not keys.where(near).alias("s").join(same, F.expr(_same(schema)), "left_semi").isEmpty()

    def append(self, windows: DataFrame, days: Collection[dt.date]) -> None:
        """Windows of which the table has none."""
        self._lease.hold()
        self._append(windows)
        self._rest(windows.sparkSession, days)

    def merge(self, windows: DataFrame, within: str, schema: Schema, days: Collection[dt.date]) -> None:
        """Windows in the place of what the table says of them; those without gateways are deleted. `within` has its
        columns under the name t."""
        self._lease.hold()
        spark = windows.sparkSession
        merge = (
            DeltaTable.forPath(spark, self._uri)
            .alias("t")
            .merge(windows.alias("s"), f"{within} AND {_same(schema)}")
            .whenMatchedDelete("s.gateways = 0")
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll("s.gateways > 0")
        )
        with set_for(spark, {f"spark.databricks.delta.write.{name}": value for name, value in self._next().items()}):
            merge.execute()
        self._written()
        self._rest(spark, days)

    def put_day(self, windows: DataFrame, day: dt.date) -> int:
        """All windows of a day in the place of what the table says of it. Returns how many it has then."""
        self._lease.hold()
        only = f"day = DATE'{day}'"
        writer = windows.write.format("delta").mode("overwrite").option("replaceWhere", only)
        writer.options(**self._next()).save(self._uri)
        self._written()
        return self._read(windows.sparkSession).where(only).count()

    def _read(self, spark: SparkSession) -> DataFrame:
        return spark.read.format("delta").load(self._uri)

    def _append(self, windows: DataFrame) -> None:
        windows.write.format("delta").mode("append").options(**self._next()).save(self._uri)
        self._written()

    def _next(self) -> dict[str, str]:
        """Delta takes a write only if its number is above all that came before."""
        token = self._lease.token
        self._number = max(self._number + 1, token << 32)
        if self._number >> 32 != token:
            raise LeaseLost(f"{self._uri}: written under token {self._number >> 32} of the lease, and ours is {token}")
        return {"txnAppId": APPLICATION, "txnVersion": str(self._number)}

    def _recorded(self) -> int:
        self._log.refresh()
        return self._log.version(APPLICATION)

    def _written(self) -> None:
        recorded = self._recorded()
        if recorded != self._number:
            raise LeaseLost(f"{self._uri}: write {self._number} was left out, since the table has {recorded}")

    def _rest(self, spark: SparkSession, days: Collection[dt.date]) -> None:
        """What is due after a write to these days."""
        self._lease.hold()  # who lost it meanwhile leaves the batch to whoever has it
        self._since.update(days)
        for day in [day for day in days if self._since[day] >= _COMPACT_AFTER]:
            del self._since[day]
            DeltaTable.forPath(spark, self._uri).optimize().where(f"day = DATE'{day}'").executeCompaction()


def _same(schema: Schema) -> str:
    return " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in sums.window_columns(schema))
