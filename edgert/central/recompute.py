"""One trigger of the fleet job, as Spark expressions: touched windows, recomputed whole from their contributions.

Nothing is added to what the fleet table says, so the same batch twice, a lost streaming checkpoint or a rebuild give
the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from edgert.central.lineage import Cut, Epoch
from edgert.core.results import QUANTILES, WINDOW_COLUMNS, Schema, final_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TYPES: Mapping[str, str] = {
    "string": "STRING",
    "double": "DOUBLE",
    "long": "BIGINT",
    "boolean": "BOOLEAN",
    "binary": "BINARY",
}


def window_columns(schema: Schema) -> list[str]:
    """The columns that tell the rows of a fleet table apart."""
    return ["day", *WINDOW_COLUMNS, *(name for name, _ in schema.keys)]


def fleet_columns(schema: Schema) -> list[tuple[str, str]]:
    """(name, SQL type) of the columns of a fleet table."""
    return [
        ("window_start", "TIMESTAMP"),
        ("window_end", "TIMESTAMP"),
        *((name, _TYPES[kind]) for name, kind in (*schema.keys, *final_columns(schema))),
        ("gateways", "INT"),
        ("day", "DATE"),
    ]


def lineage_frame(spark: SparkSession, limits: Mapping[Epoch, Cut]) -> DataFrame:
    """(gateway, epoch) with their cuts, as a small frame to join with.

    It is made as text: rows given as Python objects would start Python workers, 100 MB of them.
    """
    values = ", ".join(
        f"('{gateway}', {epoch}L, {cut is None}, {_map(cut or {})})" for (gateway, epoch), cut in limits.items()
    )
    none = f"SELECT '' AS gateway, 0L AS epoch, true AS whole, {_map({})} AS cut WHERE false"
    query = f"SELECT * FROM VALUES {values} AS lineage(gateway, epoch, whole, cut)" if values else none
    return F.broadcast(spark.sql(query))


def _map(cut: Mapping[int, int]) -> str:
    pairs = ", ".join(f"{stream}, {last}L" for stream, last in cut.items())
    return f"CAST(map({pairs}) AS MAP<INT, BIGINT>)"


def rows_past(landing: DataFrame, lows: DataFrame) -> DataFrame:
    """The contributions of some epochs past a sequence of their stream."""
    joined = landing.join(lows, ["gateway", "epoch"])
    return joined.where(F.col("sequence") > F.coalesce(F.col("cut")[F.col("stream")], F.lit(0)))


def recompute(landing: DataFrame, touched: DataFrame, lineage: DataFrame, schema: Schema) -> DataFrame:
    """Each touched window from all its contributions; `gateways` is 0 where none of them counts any more."""
    same = [landing[n].eqNullSafe(touched[n]) for n in window_columns(schema)]
    return merged(landing.join(touched, _all(same), "left_semi"), lineage, schema)


def merged(contributions: DataFrame, lineage: DataFrame, schema: Schema) -> DataFrame:
    """Every window of which there are `contributions`, which must be all of it; `gateways` as in `recompute`."""
    rows = contributions.join(lineage, ["gateway", "epoch"], "left")
    within = F.coalesce(F.col("cut")[F.col("stream")], F.lit(0)) >= F.col("sequence")
    rows = rows.withColumn("counts", F.coalesce(F.col("whole") | within, F.lit(False)))

    def of(column: str) -> Column:
        return F.when(F.col("counts"), F.col(column))

    values = [column.alias(name) for a in schema.aggregates for name, column in _merged(*a, of)]
    gateways = F.size(F.collect_set(of("gateway"))).alias("gateways")
    groups = rows.groupBy(*window_columns(schema)).agg(*values, gateways)
    for name, kind in schema.aggregates:
        if kind in _READS:
            groups = groups.withColumns(_READS[kind](name))
    return groups.select(*(name for name, _ in fleet_columns(schema)))


def _all(conditions: Sequence[Column]) -> Column:
    result = conditions[0]
    for condition in conditions[1:]:
        result = result & condition
    return result


Of = Callable[[str], Any]


def _merged(name: str, kind: str, of: Of) -> list[tuple[str, Column]]:
    """The columns of an aggregate that are merged from contributions; the others are read from these."""
    if kind not in _UNITES:
        return [(name, _MERGES[kind](name, of))]
    suffix, unite = _UNITES[kind]
    sketches = of(name + suffix)
    return [(name + suffix, F.when(F.count(sketches) > 0, unite(sketches)))]


def _mean(name: str, of: Of) -> Column:
    count = F.sum(of(f"{name}__count"))
    return F.when(count > 0, F.sum(of(f"{name}__sum")) / count)


def _variance(name: str, of: Of) -> Column:
    """Sample variance, merged pairwise by the rule of Chan, Golub and LeVeque (1979): sums of squares of large values
    close to each other would lose every digit. Sorted, so that the same contributions give the same digits."""
    n, mean, m2 = of(f"{name}__count"), of(f"{name}__mean"), of(f"{name}__m2")
    part = F.struct(n.cast("double").alias("n"), mean.alias("mean"), m2.alias("m2"))
    parts = F.sort_array(F.collect_list(F.when(n > 0, part)))
    zero = F.struct(F.lit(0.0).alias("n"), F.lit(0.0).alias("mean"), F.lit(0.0).alias("m2"))
    merged = F.aggregate(parts, zero, _chan)
    return F.when(merged["n"] > 1, merged["m2"] / (merged["n"] - 1))


def _chan(a: Column, b: Column) -> Column:
    n = a["n"] + b["n"]
    delta = b["mean"] - a["mean"]
    mean = a["mean"] + delta * b["n"] / n
    m2 = a["m2"] + b["m2"] + delta * delta * a["n"] * b["n"] / n
    return F.struct(n.alias("n"), mean.alias("mean"), m2.alias("m2"))


_MERGES: Mapping[str, Callable[[str, Of], Any]] = {
    "count": lambda name, of: F.sum(of(name)),
    "sum": lambda name, of: F.sum(of(name)),
    "min": lambda name, of: F.min(of(name)),
    "max": lambda name, of: F.max(of(name)),
    "mean": _mean,
    "variance": _variance,
}

_UNITES: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "distinct": ("__hll", F.hll_union_agg),
    "distinct_set": ("__theta", F.theta_union_agg),
    "quantiles": ("__kll", F.kll_merge_agg_double),
}
"""Spark's own functions for the column of sketches with this suffix. All have one size (see `edgert.core.results`)."""
_READS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "distinct": lambda name: {name: F.hll_sketch_estimate(f"{name}__hll")},
    "distinct_set": lambda name: {name: F.theta_sketch_estimate(f"{name}__theta")},
    "quantiles": lambda name: {
        name + suffix: F.kll_sketch_get_quantile_double(f"{name}__kll", F.lit(rank))
        for suffix, rank in QUANTILES.items()
    },
}
