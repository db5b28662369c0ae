"""One fleet table: what happens to each batch that Spark's stream of its landing table brings."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from edgert.central.fleet import recompute as sums
from edgert.central.fleet.columns import window_columns
from edgert.central.fleet.merge import WindowMerge
from edgert.central.fleet.touched_windows import Low, Touched, spans_of, touched_by
from edgert.central.fleet.written_marker import Written
from edgert.central.landing.flow_table import FlowTable
from edgert.central.landing.lineage import LAST, Opening, counted, unsettled
from edgert.central.spark.session import set_for
from edgert.central.spark.streams import BatchGate
from edgert.central.tables.lease import TableLease
from edgert.central.tables.table import CommitConflict, join
from edgert.core.errors import EdgertError
from edgert.core.results.result_schema import Schema
from edgert.core.results.results import MOST_DAYS

log = logging.getLogger("edgert.central.fleet")
if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ATTEMPTS: Final = 3
_MANY: Final = 20_000
"""Contributions of a batch from which on it pays to look first which of their windows may be known, and to generate
code for them: as the spans of the windows are part of it, some of it is compiled anew for each batch."""
_INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_OF_A_TASK: Final = 250_000
"""Contributions: the windows of more do not find room in the memory that a task of two has of 1 GB, and are spilled."""
_AS_THEY_ARE: Final = 1 << 20
"""Partitions, more than there are: nothing is put together, but what Spark generates for the aggregation behind it is
apart from the spans in the filter before it, so the same for each batch: Java compiles it once."""
_FEW: Final = 100_000
"""Windows without sketches that this process has room for."""
_FEW_BYTES: Final = 32 * 1024 * 1024
_SKETCH_BYTES: Final = 40_000
"""Size of the largest sketch, rounded up."""
_PARTITIONS: Final = "spark.sql.shuffle.partitions"


class FleetTable:
    """Keeps `fleet/<flow>` as `landing/<flow>` says. `update` is the function of Spark's `foreachBatch`.

    `written`: of the stream; learns what came into the table."""

    def __init__(self, root: str, flow: str, lease: TableLease, written: Written | None = None) -> None:
        self.flow = flow
        self._landing_uri = join(root, "landing", flow)
        self._landing = FlowTable(root, flow)
        self._windows = WindowMerge(join(root, "fleet", flow), lease)
        self._lease = lease
        self._written = written
        self.door = BatchGate()
        self._wrote = False

    def update(self, batch: DataFrame, _batch_id: int) -> None:
        """Recompute the windows that a batch of landing rows touches. Raises `BatchFailed`."""

        def update() -> None:
            self._update_beside_others(batch)
            self._note()

        self.door.run(update)

    def rebuild(self, spark: SparkSession) -> Iterator[tuple[dt.date, int]]:
        """Puts every day of which there are contributions in the place of what the fleet table says of it, one by one;
        yields the day and its number of windows. Other days stay as they are: their contributions may be gone by
        retention. Raises `EdgertError` if nothing has landed, `LeaseLost`, and what Spark raises."""
        self._landing.refresh()
        self._landing.read_opens()
        schema = self._landing.schema
        if schema is None:
            raise EdgertError(f"landing/{self.flow}: expected a table with results of this flow, found none")
        if self._written and self._windows.lacks(self._written):
            self._written.forget_written()  # if this ends before all days are made, the stream must begin anew
        landing = spark.read.format("delta").load(self._landing_uri)
        lineage = sums.Lineage(spark, counted(self._landing.openings))
        rows = landing.where("day IS NOT NULL").select("day").distinct().collect()
        for day in sorted(row.day for row in rows):
            windows = sums.merged(landing.where(F.col("day") == F.lit(day)), lineage, schema)
            self._windows.widen(schema)
            yield day, self._windows.put_day(windows, day)
        self._note()

    def _note(self) -> None:
        table, number = self._windows.written()
        if number and not self._wrote:
            self._wrote = True
            log.info("fleet/%s: the first windows since the start are written", self.flow)
        if self._written and number:
            self._written.note(table, number)

    def _update_beside_others(self, batch: DataFrame) -> None:
        """Again, when a compaction came first: to recompute is the same as often as it is done."""
        for _ in range(_ATTEMPTS):
            try:
                return self._update(batch)
            except CommitConflict:
                pass
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
            lows = {e: Low({s: (low, LAST) for s, low in streams.items()}, 0) for e, streams in void.items()}
            spans = spans_of(sums.touching(landing, sums.Lineage(spark, {}, lows)))
            for day, span in spans:
                touched.add(day, span)
            if spans:  # of most epochs all that was shipped counts: nothing is void, and many windows may be appended
                touched.add_void(void)
        if touched.days:
            with set_for(spark, _settings(spark, touched)):
                self._write(spark, landing, touched, schema, openings)

    def _write(
        self, spark: SparkSession, landing: DataFrame, touched: Touched, schema: Schema, openings: list[Opening]
    ) -> None:
        self._windows.widen(schema)
        lineage = sums.Lineage(spark, counted(openings), touched.lows)
        if touched.rows >= _MANY and not touched.void:
            self._write_many(landing, touched, lineage, schema)
            return
        windows = sums.recompute(landing.where(touched.within()), lineage, schema, touched.void)
        if touched.rows <= _few(schema, touched) and not touched.void:
            self._windows.merge_few(windows, touched, schema)
        else:
            self._windows.merge(windows, touched, schema)

    def _write_many(self, landing: DataFrame, touched: Touched, lineage: sums.Lineage, schema: Schema) -> None:
        """Windows that begin when none does that the table has are appended; so are the others, in catch-up those where
        this batch and the one before it meet, if their keys are new (of a late gateway), else they are merged."""
        known = self._windows.known(touched)
        old, new = touched.parted(known) if known else (None, touched)

        def windows(of: Touched) -> DataFrame:
            contributions = landing.where(of.within()).coalesce(_AS_THEY_ARE)
            return sums.recompute(contributions, lineage, schema, void=False)

        if old is not None:
            keys = sums.touching(landing.where(old.within()), lineage).select(*window_columns(schema))
            most = _few(schema, old)
            if keys.limit(most + 1).count() <= most:
                self._windows.merge_few(windows(old), old, schema)
            elif self._windows.has_any(keys, old, schema):
                self._windows.merge(windows(old), old, schema)
            else:
                self._windows.append(windows(old), old)
        if new is not None:
            self._windows.append(windows(new), new)


def _few(schema: Schema, touched: Touched) -> int:
    """Windows that this process has room for, besides Spark, which hands them over; of many days none: all their files
    would be written at a time."""
    if len(touched.days) > MOST_DAYS:
        return 0
    sketches = sum(kind in sums.SKETCHES for _, kind in schema.aggregates)
    return min(_FEW, _FEW_BYTES // (sketches * _SKETCH_BYTES)) if sketches else _FEW


def _settings(spark: SparkSession, touched: Touched) -> dict[str, str]:
    """Returns the settings of Spark for a batch of this size."""
    if touched.rows < _MANY and not touched.void:
        return _INTERPRETED
    tasks = max(int(spark.conf.get(_PARTITIONS) or 0), touched.rows // _OF_A_TASK)
    return {
        _PARTITIONS: str(tasks),
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        # Most windows have few contributions: a small map before the large one finds next to nothing.
        "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
    }
