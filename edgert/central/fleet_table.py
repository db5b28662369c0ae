"""One fleet table: what happens to each batch that Spark's stream of its landing table brings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from edgert.central import recompute as sums
from edgert.central.landing import FlowTable
from edgert.central.lease import Lease
from edgert.central.lineage import Opening, counted, unsettled
from edgert.central.supervisor import Door
from edgert.central.tables import join
from edgert.central.touched import Low, Touched, spans_of, touched_by
from edgert.core.errors import EdgertError
from edgert.core.result_schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ATTEMPTS: Final = 3
_CHECKPOINT_COMMITS: Final = 50
"""Delta's own 10 would make every tenth trigger at low rate write one; to read 50 commits costs little."""


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
        touched = touched_by(batch)
        landing = spark.read.format("delta").load(self._landing_uri)
        openings = self._landing.openings
        void = unsettled(openings, touched.opened)
        if void:
            lows = {epoch: Low(streams, 0) for epoch, streams in void.items()}
            for day, span in spans_of(sums.rows_past(landing, sums.lineage_frame(spark, {}, lows))):
                touched.add(day, span)
            touched.add_void(void)
        if touched.days:
            self._write(spark, landing, touched, schema, openings)

    def _write(
        self, spark: SparkSession, landing: DataFrame, touched: Touched, schema: Schema, openings: list[Opening]
    ) -> None:
        lineage = sums.lineage_frame(spark, counted(openings), touched.lows)
        windows = sums.recompute(landing.where(touched.within()), lineage, schema)
        target = self._prepare(spark, schema)
        self._lease.hold()
        same = " AND ".join(f"t.`{n}` <=> s.`{n}`" for n in sums.window_columns(schema))
        (
            target.alias("t")
            .merge(windows.alias("s"), f"{touched.within('t.')} AND {same}")
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
            properties = f"'edgert.lease' = '{self._lease.token}', 'delta.checkpointInterval' = '{_CHECKPOINT_COMMITS}'"
            spark.sql(f"ALTER TABLE delta.`{self._uri}` SET TBLPROPERTIES ({properties})")
            self._columns = table.toDF().columns
        new = [f"`{name}` {kind}" for name, kind in columns if name not in self._columns]
        if new:
            spark.sql(f"ALTER TABLE delta.`{self._uri}` ADD COLUMNS ({', '.join(new)})")
            self._columns += [name for name, _ in columns if name not in self._columns]
        return DeltaTable.forPath(spark, self._uri)
