"""One trigger of the fleet job, as Spark expressions: touched windows, recomputed whole from their contributions.

Nothing is added to what the fleet table says, so the same batch twice, a lost streaming checkpoint or a rebuild give
the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812

from edgert.central.lineage import Cut, Epoch
from edgert.central.touched import Low
from edgert.core.result_schema import QUANTILES, WINDOW_COLUMNS, Schema, final_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TYPES: Mapping[str, str] = {
    "string": "STRING",
    "double": "DOUBLE",
    "long": "BIGINT",
    "boolean": "BOOLEAN",
    "binary": "BINARY",
}

# Columns that no flow can have: keys and aggregates are words.
_LINEAGE: Final = "@lineage"
_COUNTS: Final = "@counts"
_TOUCHED: Final = "@touched"


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


def lineage_frame(
    spark: SparkSession, limits: Mapping[Epoch, Cut], lows: Mapping[Epoch, Low] | None = None
) -> DataFrame:
    """(gateway, epoch) with their cuts, and which of their rows touch their window, as a small frame to join with.

    It is made as text: rows given as Python objects would start Python workers, 100 MB of them.
    """
    lows = lows or {}
    rows = []
    for gateway, epoch in limits.keys() | lows.keys():
        cut = limits.get((gateway, epoch), {})
        low = lows.get((gateway, epoch), Low({}))
        others = "NULL" if low.others is None else f"{low.others}L"
        rows.append(f"('{gateway}', {epoch}L, {cut is None}, {_map(cut or {})}, {_map(low.streams)}, {others})")
    values = ", ".join(rows) or f"('', 0L, true, {_map({})}, {_map({})}, NULL)"
    of = "struct(whole, cut, low, CAST(others AS BIGINT) AS others)"
    table = f"VALUES {values} AS lineage(gateway, epoch, whole, cut, low, others)"
    return F.broadcast(spark.sql(f"SELECT gateway, epoch, {of} AS `{_LINEAGE}` FROM {table}"))


def _map(cut: Mapping[int, int]) -> str:
    pairs = ", ".join(f"{stream}, {last}L" for stream, last in cut.items())
    return f"CAST(map({pairs}) AS MAP<INT, BIGINT>)"


def rows_past(landing: DataFrame, lows: DataFrame) -> DataFrame:
    """The contributions of some epochs past a sequence of their stream."""
    return landing.join(lows, ["gateway", "epoch"]).where(_past())


def _past() -> Column:
    """Whether a contribution joined with the lineage touches its window."""
    low = F.coalesce(_of_lineage("low")[F.col("stream")], _of_lineage("others"))
    return F.coalesce(F.col("sequence") > low, F.lit(False))


def _of_lineage(name: str) -> Column:
    return F.col(f"`{_LINEAGE}`.{name}")


def recompute(contributions: DataFrame, lineage: DataFrame, schema: Schema) -> DataFrame:
    """Each touched window from all its contributions, which must be among those given; `gateways` is 0 where none of
    them counts any more."""
    groups = _merged(contributions, lineage, schema, F.bool_or(_past()).alias(_TOUCHED)).where(f"`{_TOUCHED}`")
    return groups.select(*(name for name, _ in fleet_columns(schema)))


def merged(contributions: DataFrame, lineage: DataFrame, schema: Schema) -> DataFrame:
    """Every window of which there are `contributions`, which must be all of it; `gateways` as in `recompute`."""
    return _merged(contributions, lineage, schema).select(*(name for name, _ in fleet_columns(schema)))


def _merged(contributions: DataFrame, lineage: DataFrame, schema: Schema, *others: Column) -> DataFrame:
    """With further columns from all rows of a window."""
    rows = contributions.join(lineage, ["gateway", "epoch"], "left")
    within = F.coalesce(_of_lineage("cut")[F.col("stream")], F.lit(0)) >= F.col("sequence")
    rows = rows.withColumn(_COUNTS, F.coalesce(_of_lineage("whole") | within, F.lit(False)))

    def of(column: str) -> Column:
        return F.when(F.col(f"`{_COUNTS}`"), F.col(column))

    values = [column.alias(name) for a in schema.aggregates for name, column in _columns(*a, of)]
    gateways = F.size(F.collect_set(of("gateway"))).alias("gateways")
    groups = rows.groupBy(*window_columns(schema)).agg(*values, gateways, *others)
    for name, kind in schema.aggregates:
        if kind in _READS:
            groups = groups.withColumns(_READS[kind](name))
    return groups


Of = Callable[[str], Any]


def _columns(name: str, kind: str, of: Of) -> list[tuple[str, Column]]:
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
