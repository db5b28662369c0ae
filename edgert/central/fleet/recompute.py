"""One trigger of the fleet job, as Spark expressions: touched windows, recomputed whole from their contributions.

Nothing is added to what the fleet table says, so the same batch twice, a lost streaming checkpoint or a rebuild give
the same table.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from edgert.central.fleet.columns import fleet_columns, window_columns
from edgert.central.fleet.touched_windows import Low
from edgert.central.landing.lineage import LAST, Cut, Epoch, bounded
from edgert.core.results.result_schema import QUANTILES, Schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Columns that no flow can have: keys and aggregates are words.
_LINEAGE: Final = "@lineage"
_COUNTS: Final = "@counts"
_TOUCHED: Final = "@touched"

_SEQUENCES: Final = pa.map_(pa.int32(), pa.int64())
"""Sequence numbers by stream."""
_TOLD: Final = pa.schema(
    [
        ("gateway", pa.string()),
        ("epoch", pa.int64()),
        (
            _LINEAGE,
            pa.struct(
                [
                    ("number", pa.int32()),
                    ("whole", pa.bool_()),
                    ("cut", _SEQUENCES),
                    ("after", _SEQUENCES),
                    ("up_to", _SEQUENCES),
                    ("others", pa.int64()),
                ]
            ),
        ),
    ]
)
_WORD: Final = 63
"""Bits of a long that are no sign."""
MOST_BITS: Final = 8 * _WORD


class Lineage:
    """Which contributions count, and which touch their window, as a small frame to join with.

    It goes to Spark as an Arrow table: rows given as Python objects would start Python workers, 100 MB of them, and the
    same rows as SQL text take Spark seconds to read where a fleet has thousands of epochs.
    """

    def __init__(
        self, spark: SparkSession, limits: Mapping[Epoch, Cut], lows: Mapping[Epoch, Low] | None = None
    ) -> None:
        lows = lows or {}
        numbers = {gateway: number for number, gateway in enumerate(sorted({gateway for gateway, _ in limits}))}
        self.gateways = len(numbers)
        """Number of gateways whose contributions may count; they are numbered from 0."""
        told = []
        for gateway, epoch in limits.keys() | lows.keys():
            cut, low = limits.get((gateway, epoch), {}), lows.get((gateway, epoch), Low({}))
            after, up_to = ({stream: span[at] for stream, span in low.streams.items()} for at in (0, 1))
            of = {
                "number": numbers.get(gateway, 0), "whole": cut is None, "cut": [*bounded(cut or {}).items()],
                "after": [*bounded(after).items()], "up_to": [*bounded(up_to).items()], "others": low.others,
            }  # fmt: skip
            told.append({"gateway": gateway, "epoch": epoch, _LINEAGE: of})
        self.frame = F.broadcast(spark.createDataFrame(pa.Table.from_pylist(told, _TOLD)))


def touching(landing: DataFrame, lineage: Lineage) -> DataFrame:
    """The contributions that touch their window."""
    return landing.join(lineage.frame, ["gateway", "epoch"]).where(_past())


def _past() -> Column:
    """A condition: a contribution joined with the lineage touches its window."""
    after = F.coalesce(_of_lineage("after")[F.col("stream")], _of_lineage("others"))
    up_to = F.coalesce(_of_lineage("up_to")[F.col("stream")], F.lit(LAST))
    sequence = F.col("sequence")
    return F.coalesce((sequence > after) & (sequence <= up_to), F.lit(False))


def _of_lineage(name: str) -> Column:
    return F.col(f"`{_LINEAGE}`.{name}")


def recompute(contributions: DataFrame, lineage: Lineage, schema: Schema, void: bool) -> DataFrame:
    """Each touched window from all its contributions, which must be among those given; `gateways` is 0 where none of
    them counts. Without `void`, windows that only lose contributions are left out."""
    touches = F.bool_or(_past()).alias(_TOUCHED)
    groups = _merged(contributions, lineage, schema, void, touches).where(f"`{_TOUCHED}`")
    return groups.select(*(name for name, _ in fleet_columns(schema)))


def merged(contributions: DataFrame, lineage: Lineage, schema: Schema) -> DataFrame:
    """Every window of which there are `contributions`, which must be all of it."""
    return _merged(contributions, lineage, schema, False).select(*(name for name, _ in fleet_columns(schema)))


def _merged(contributions: DataFrame, lineage: Lineage, schema: Schema, void: bool, *others: Column) -> DataFrame:
    """With further columns from all rows of a window: from those that count, if `void` is not asked for."""
    rows = contributions.join(lineage.frame, ["gateway", "epoch"], "left")
    within = F.coalesce(_of_lineage("cut")[F.col("stream")], F.lit(0)) >= F.col("sequence")
    counts = F.coalesce(_of_lineage("whole") | within, F.lit(False))
    rows = rows.withColumn(_COUNTS, counts) if void else rows.where(counts)

    def of(column: str) -> Column:
        return F.when(F.col(f"`{_COUNTS}`"), F.col(column)) if void else F.col(column)

    values = [column.alias(name) for a in schema.aggregates for name, column in _columns(*a, of)]
    gateways = _gateways(lineage.gateways, of).cast("int").alias("gateways")
    groups = rows.groupBy(*window_columns(schema)).agg(*values, gateways, *others)
    for name, kind in schema.aggregates:
        if kind in _READS:
            groups = groups.withColumns(_READS[kind](name))
    return groups


Of = Callable[[str], Any]


def _gateways(known: int, of: Of) -> Column:
    """How many gateways contribute: a bit for each, as long as these are few. To count different names doubles the
    cost of a window."""
    if known > MOST_BITS:
        return F.count_distinct(of("gateway"))
    number = of(f"`{_LINEAGE}`.number")
    bit = F.expr(f"shiftleft(1L, `{_LINEAGE}`.number % {_WORD})")
    words = [F.bit_or(F.when(F.floor(number / _WORD) == word, bit)) for word in range(-(-known // _WORD))]
    return reduce(operator.add, (F.coalesce(F.bit_count(word), F.lit(0)) for word in words), F.lit(0))


def _columns(name: str, kind: str, of: Of) -> list[tuple[str, Column]]:
    """The columns of an aggregate that are merged from contributions; the others are read from these."""
    if kind not in _UNITES:
        return [(name, _MERGES[kind](name, of))]
    suffix, unite = _UNITES[kind]
    sketches = of(name + suffix)
    return [(name + suffix, F.when(F.count(sketches) > 0, unite(sketches)))]


def _count(column: Any) -> Column:
    """Exact below 2^53, and never an overflow: of longs it would be an error that stops the stream for ever."""
    total = F.sum(column.cast("double"))
    return F.when(total >= float(LAST), F.lit(LAST)).otherwise(total.cast("long"))


def _mean(name: str, of: Of) -> Column:
    count = F.sum(of(f"{name}__count").cast("double"))
    return F.when(count > 0, F.sum(of(f"{name}__sum")) / count)


def _variance(name: str, of: Of) -> Column:
    """Sample variance. What the means x, each of n values, add to the sum of squares is Σ n (x - M)²: made from
    covariances over the contributions, which Spark adds up without the loss of digits that sums of squares of large
    values close to each other have, and without keeping a list per window:

        Σ n (x - x̄)² = C(x, n x) - x̄ C(x, n),   M - x̄ = C(x, n) / Σ n,   C(a, b) = Σ (a - ā) (b - b̄)
    """
    n, mean, m2 = of(f"{name}__count"), of(f"{name}__mean"), of(f"{name}__m2")
    some = n > 0
    n, x, within = F.when(some, n.cast("double")), F.when(some, mean), F.sum(F.when(some, m2))
    parts, total = F.count(x), F.sum(n)
    with_n = F.covar_pop(x, n) * parts
    between = F.covar_pop(x, n * x) * parts - F.avg(x) * with_n - with_n * with_n / total
    squares = F.when(parts > 1, within + F.greatest(between, F.lit(0.0))).otherwise(within)
    return F.when(total > 1, squares / (total - 1))


_MERGES: Mapping[str, Callable[[str, Of], Any]] = {
    "count": lambda name, of: _count(of(name)),
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
"""Spark's functions for the column of sketches with this suffix. All have one size (`edgert.core.results.results`)."""
SKETCHES: Final = frozenset(_UNITES)
"""Kinds of aggregates."""
_READS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "distinct": lambda name: {name: F.hll_sketch_estimate(f"{name}__hll")},
    "distinct_set": lambda name: {name: F.theta_sketch_estimate(f"{name}__theta")},
    "quantiles": lambda name: {
        name + suffix: F.kll_sketch_get_quantile_double(f"{name}__kll", F.lit(rank))
        for suffix, rank in QUANTILES.items()
    },
}
