"""One fleet table: what happens to each batch that Spark's stream of its landing table brings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from edgert.central import recompute as sums
from edgert.central.landing import FlowTable
from edgert.central.lease import Lease
from edgert.central.lineage import Epoch, Opening, counted, unsettled
from edgert.central.supervisor import Door
from edgert.central.tables import join
from edgert.core.errors import EdgertError
from edgert.core.results import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ATTEMPTS: Final = 3


class FleetTable:
    """Keeps `fleet/<flow>` as `landing/<flow>` says. `update` is the function of Spark's `foreachBatch`."""

    def __init__(self, root: str, flow: str, lease: Lease) -> None:
        self.flow = flow
        self._landing_uri = join(root, "landing", flow)
        self._uri = join(root, "fleet", flow)
        self._landing = FlowTable(root, flow)
        self._lease = lease
        self._columns: list[str] | None = None
        self.door = Door()

    def update(self, batch: DataFrame, _batch_id: int) -> None:
        """Recompute the windows that a batch of landing rows touches. Raises `BatchFailed`."""
        self.door.run(lambda: self._update_beside_others(batch))

    def rebuild(self, spark: SparkSession) -> Iterator[tuple[dt.date, int]]:
        """Puts every day of which there are contributions in the place of what the fleet table says of it, one by one;
        yields the day and its number of windows. Other days stay as they are: their contributions may be gone by
        retention. Raises `EdgertError` if nothing has landed, `LeaseLost`, and what Spark raises."""
        self._landing.refresh()
        self._landing.read_opens()
        schema = self._landing.schema
        if schema is None:
            raise EdgertError(f"landing/{self.flow}: expected a table with results of this flow, found none")
        landing = spark.read.format("delta").load(self._landing_uri)
        lineage = sums.lineage_frame(spark, counted(self._landing.openings))
        rows = landing.where("day IS NOT NULL").select("day").distinct().collect()
        for day in sorted(row.day for row in rows):
            windows = sums.merged(landing.where(F.col("day") == F.lit(day)), lineage, schema).where("gateways > 0")
            target = self._prepare(spark, schema)
            self._lease.hold()
            only = f"day = DATE'{day}'"
            windows.write.format("delta").mode("overwrite").option("replaceWhere", only).save(self._uri)
            yield day, target.toDF().where(only).count()

    def _update_beside_others(self, batch: DataFrame) -> None:
        """Again, when a compaction came first: to recompute is the same as often as it is done."""
        for _ in range(_ATTEMPTS):
            try:
                return self._update(batch)
            except PySparkException as error:
                if "DELTA_CONCURRENT" not in str(error) and "DELTA_METADATA_CHANGED" not in str(error):
                    raise
        return self._update(batch)

    def _update(self, batch: DataFrame) -> None:
        self._lease.hold()
        self._landing.refresh()
        self._landing.read_opens()
        schema = self._landing.schema
        if schema is None:
            return  # no epoch was opened, so there are no rows either
        spark = batch.sparkSession
        days, opened = _summary(batch)
        landing = spark.read.format("delta").load(self._landing_uri)
        names = sums.window_columns(schema)
        touched = batch.where("day IS NOT NULL").select(*names)
        openings = self._landing.openings
        void = unsettled(openings, opened)
        if void:
            past = sums.rows_past(landing, sums.lineage_frame(spark, void)).select(*names).distinct()
            days |= {row.day for row in past.select("day").distinct().collect()}
            touched = touched.unionByName(past)
        if days:
            self._write(spark, landing, touched.distinct(), days, schema, openings)

    def _write(
        self,
        spark: SparkSession,
        landing: DataFrame,
        touched: DataFrame,
        days: set[Any],
        schema: Schema,
        openings: list[Opening],
    ) -> None:
        # Literal days let Delta leave out all other partitions, in what is read and in what is merged into.
        of_days = F.col("day").isin(sorted(days))
        lineage = sums.lineage_frame(spark, counted(openings))
        windows = sums.recompute(landing.where(of_days), touched, lineage, schema)
        target = self._prepare(spark, schema)
        self._lease.hold()
        listed = ", ".join(f"DATE'{day}'" for day in sorted(days))
        same = " AND ".join(f"t.`{n}` <=> s.`{n}`" for n in sums.window_columns(schema))
        (
            target.alias("t")
            .merge(windows.alias("s"), f"t.day IN ({listed}) AND {same}")
            .whenMatchedDelete("s.gateways = 0")
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll("s.gateways > 0")
            .execute()
        )

    def _prepare(self, spark: SparkSession, schema: Schema) -> DeltaTable:
        """The fleet table, made or widened to the schema."""
        columns = sums.fleet_columns(schema)
        if self._columns is None:
            builder = DeltaTable.createIfNotExists(spark).location(self._uri).partitionedBy("day")
            for name, kind in columns:
                builder = builder.addColumn(name, kind)
            table = builder.execute()
            # A change of metadata makes a commit fail that another job has under way with an older token.
            spark.sql(f"ALTER TABLE delta.`{self._uri}` SET TBLPROPERTIES ('edgert.lease' = '{self._lease.token}')")
            self._columns = table.toDF().columns
        new = [f"`{name}` {kind}" for name, kind in columns if name not in self._columns]
        if new:
            spark.sql(f"ALTER TABLE delta.`{self._uri}` ADD COLUMNS ({', '.join(new)})")
            self._columns += [name for name, _ in columns if name not in self._columns]
        return DeltaTable.forPath(spark, self._uri)


def _summary(batch: DataFrame) -> tuple[set[Any], list[Epoch]]:
    """The days of a batch's windows and the epochs that it opens, in one pass."""
    opening = F.when(F.col("lineage").isNotNull(), F.struct("gateway", "epoch"))
    rows = batch.groupBy("day").agg(F.collect_set(opening).alias("opened")).collect()
    days = {row.day for row in rows if row.day is not None}
    return days, [(o.gateway, o.epoch) for row in rows for o in row.opened]
