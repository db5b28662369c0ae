"""What a rule makes of a landing table's stream: a frame with state, and verdicts of each of its batches."""

from __future__ import annotations

import datetime as dt
import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812

from edgert.central.alert_rules import GATEWAY, SILENT, Rule
from edgert.central.alert_state import SILENCE_OUT, WINDOWS_OUT, Silence, Windows
from edgert.central.alerts import Alerts, Verdict
from edgert.central.query import literal
from edgert.central.silence import MERGES, Limits
from edgert.central.supervisor import CannotStart
from edgert.central.tables import Table, join, list_tables
from edgert.core.result_schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger("edgert.central.alerts")
BOUNDS_S: Final = 300.0
"""How long quantiles of the fleet are used until they are made anew."""
_AT_ONCE: Final = 200
"""Keys that one condition names."""
_ACCURACY: Final = 10_000


class RuleStream(ABC):
    """One rule on one stream. Not for more than one thread."""

    keys: tuple[str, ...]
    """The key columns of its alerts, in their order there."""

    def __init__(self, rule: Rule, schema: Schema, root: str, alerts: Alerts) -> None:
        self.rule = rule
        self._schema = schema
        self._root = root
        self._alerts = alerts

    @abstractmethod
    def frame(self, landing: DataFrame) -> DataFrame:
        """The stream with its state. What the state holds depends on the rule's kind, keys and columns only."""

    @abstractmethod
    def verdicts(self, batch: DataFrame) -> list[Verdict]:
        """What a batch says, one verdict a key. It runs the batch, once: its state goes on with that."""


def rule_stream(rule: Rule, schema: Schema, root: str, alerts: Alerts) -> RuleStream:
    """Raises `CannotStart` for a rule that does not fit the flow."""
    return (SilentStream if rule.kind == SILENT else OutsideStream)(rule, schema, root, alerts)


class SilentStream(RuleStream):
    """A key of which nothing came for a while."""

    def __init__(self, rule: Rule, schema: Schema, root: str, alerts: Alerts) -> None:
        super().__init__(rule, schema, root, alerts)
        types = {**dict(schema.keys), GATEWAY: "string"}
        self.keys = rule.keys or tuple(name for name, _ in schema.keys)
        if not self.keys or not set(self.keys) <= types.keys():
            raise CannotStart(
                f"rule {rule.name}: expected keys of flow {rule.flow} ({', '.join(types)}), got "
                f"{', '.join(self.keys) or 'none'}"
            )
        self._landing = Table(join(root, "landing", rule.flow))

    def frame(self, landing: DataFrame) -> DataFrame:
        group = F.lit("") if self.keys == (GATEWAY,) else F.col(GATEWAY)
        rows = landing.where("day IS NOT NULL").select(
            group.alias("grp"), _key(self.keys).alias("key"), F.unix_micros("window_end").alias("ends")
        )
        limits = Limits(round(self.rule.after_s * 1000), round(self.rule.patience_s * 1000))
        return rows.groupBy("grp").transformWithState(Silence(limits), SILENCE_OUT, "Append", "ProcessingTime")

    def verdicts(self, batch: DataFrame) -> list[Verdict]:
        well: dict[str, Verdict] = {}
        silent: dict[str, Verdict] = {}
        for row in batch.collect():
            kind = well if row.since is None else silent
            if row.key not in kind or kind[row.key].at < row.at:
                kind[row.key] = Verdict(row.key, row.at, row.since)
        confirmed = self._confirmed([v for key, v in silent.items() if key not in well])
        # A gateway that catches up says of each of its keys, with each batch, that it is heard.
        known = {alert.key for alert in self._alerts.open(self.rule.name)} if well else set()
        return [*(verdict for key, verdict in well.items() if key in known), *confirmed]

    def _confirmed(self, silent: Sequence[Verdict]) -> list[Verdict]:
        """Those of which the whole landing table has nothing newer either: a sensor may have come to another gateway,
        and a stream that begins anew has not read all of it. `since` becomes what the table says."""
        if not silent:
            return []
        self._landing.refresh()
        names = [*self.keys]
        found: list[Verdict] = []
        for at in range(0, len(silent), _AT_ONCE):
            asked = {tuple(json.loads(v.key)[n] for n in names): v for v in silent[at : at + _AT_ONCE]}
            first = _moment(min(_since(v) for v in asked.values()))
            day = (first - dt.timedelta(seconds=self._schema.window_s)).date()
            keys = " OR ".join(_same(names, values) for values in asked)
            where = f"day >= DATE '{day}' AND window_end > TIMESTAMP '{first.isoformat()}' AND ({keys})"
            last = {values: _since(v) for values, v in asked.items()}
            for row in self._landing.read([*names, "window_end"], where):
                values = tuple(row[n] for n in names)
                last[values] = max(last[values], _micros(row["window_end"]))
            found += [
                Verdict(v.key, v.at, last[values])
                for values, v in asked.items()
                if last[values] + round(self.rule.after_s * 1e6) <= v.at
            ]
        return found


class OutsideStream(RuleStream):
    """A key whose newest windows are all outside what the fleet has."""

    def __init__(self, rule: Rule, schema: Schema, root: str, alerts: Alerts) -> None:
        super().__init__(rule, schema, root, alerts)
        kinds = dict(schema.aggregates)
        self._kind = kinds.get(rule.column, "")
        if self._kind not in MERGES:
            fit = [name for name, kind in kinds.items() if kind in MERGES]
            raise CannotStart(
                f"rule {rule.name}: expected as column one of flow {rule.flow} that is a {', '.join(MERGES)} "
                f"({', '.join(fit) or 'it has none'}), got {rule.column}"
            )
        if rule.of and kinds.get(rule.of) != "quantiles":
            fit = [name for name, kind in kinds.items() if kind == "quantiles"]
            raise CannotStart(
                f"rule {rule.name}: expected as of a column of flow {rule.flow} with quantiles "
                f"({', '.join(fit) or 'it has none'}), got {rule.of}"
            )
        self.keys = tuple(name for name, _ in schema.keys)
        self._bounds = Bounds(rule, root)

    def frame(self, landing: DataFrame) -> DataFrame:
        name = self.rule.column
        a, b = (f"{name}__count", f"{name}__sum") if self._kind == "mean" else (name, None)
        rows = landing.where("day IS NOT NULL").select(
            _key(self.keys).alias("key"),
            F.unix_micros("window_start").alias("starts"),
            F.unix_micros("window_end").alias("ends"),
            F.col(a).cast("double").alias("a"),
            (F.col(b) if b else F.lit(0.0)).alias("b"),
        )
        known = rows.where("a > 0 AND b IS NOT NULL" if b else "a IS NOT NULL")
        windows = Windows(self._kind, self.rule.windows)
        return known.groupBy("key").transformWithState(windows, WINDOWS_OUT, "Append", "None")

    def verdicts(self, batch: DataFrame) -> list[Verdict]:
        bounds = self._bounds.of_now(batch.sparkSession)
        if bounds is None:
            batch.write.format("noop").mode("overwrite").save()
            return []
        low, high = bounds
        known = {alert.key for alert in self._alerts.open(self.rule.name)}

        def outside(value: Column) -> Column:
            return (value < F.lit(float("-inf") if low is None else low)) | (
                value > F.lit(float("inf") if high is None else high)
            )

        newest = F.element_at("values", -1)
        wrong = (F.size("values") >= self.rule.windows) & F.forall("values", outside)
        well = F.col("key").isin(sorted(known)) & ~outside(newest)
        oldest = round((time.time() - self.rule.patience_s) * 1e6)
        rows = batch.withColumns({"wrong": wrong, "newest": newest}).where(
            (F.col("at") >= oldest) & (F.col("wrong") | well)
        )
        return [
            Verdict(row.key, row.at, row.since if row.wrong else None, row.newest, low, high) for row in rows.collect()
        ]


class Bounds:
    """What quantiles of the fleet allow, made anew now and then from the fleet table."""

    def __init__(self, rule: Rule, root: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._rule = rule
        self._root = root
        self._monotonic = monotonic
        self._made_at = float("-inf")
        self._bounds: tuple[float | None, float | None] | None = None
        self._said = ""

    def of_now(self, spark: SparkSession) -> tuple[float | None, float | None] | None:
        """(low, high); None while the fleet has too few values."""
        if self._monotonic() - self._made_at >= BOUNDS_S or self._bounds is None:
            self._bounds = self._make(spark)
            self._made_at = self._monotonic()
        return self._bounds

    def _make(self, spark: SparkSession) -> tuple[float | None, float | None] | None:
        rule = self._rule
        count, values = 0, None
        if rule.flow in list_tables(self._root, "fleet"):
            since = dt.datetime.now(dt.UTC) - dt.timedelta(days=rule.days)
            fleet = spark.read.format("delta").load(join(self._root, "fleet", rule.flow))
            rows = fleet.where((F.col("day") >= F.lit(since.date())) & (F.col("window_start") >= F.lit(since)))
            found = rows.agg(*self._columns()).collect()[0]
            count, values = found.n or 0, found.quantiles
        if count < rule.least or values is None:
            self._say(f"rule {rule.name}: {count:,} values of the fleet in the newest days, and {rule.least:,} needed")
            return None
        self._say("")
        return widened(rule, list(values))

    def _columns(self) -> list[Column]:
        ranks = F.array(*(F.lit(rank) for rank in _ranks(self._rule)))
        if self._rule.of:
            sketch = F.kll_merge_agg_double(f"{self._rule.of}__kll")
            quantiles = F.kll_sketch_get_quantile_double(sketch, ranks)
            return [F.kll_sketch_get_n_double(sketch).alias("n"), quantiles.alias("quantiles")]
        column = self._rule.column
        return [F.count(column).alias("n"), F.percentile_approx(column, ranks, _ACCURACY).alias("quantiles")]

    def _say(self, text: str) -> None:
        if text and text != self._said:
            log.info("%s", text)
        self._said = text


def widened(rule: Rule, values: Sequence[float]) -> tuple[float | None, float | None]:
    """(low, high) from the quantiles at the rule's ranks, with its margin."""
    given = iter(values)
    low = next(given) if rule.low is not None else None
    high = next(given) if rule.high is not None else None
    if low is not None and high is not None:
        wider = rule.margin * (high - low)
        return low - wider, high + wider
    return low, high


def _ranks(rule: Rule) -> list[float]:
    return [float(rank) for rank in (rule.low, rule.high) if rank is not None]


def _key(names: Sequence[str]) -> Column:
    return F.to_json(F.struct(*names), {"ignoreNullFields": "false"}) if names else F.lit("{}")


def _same(names: Sequence[str], values: Sequence[Any]) -> str:
    return "(" + " AND ".join(f'"{n}" IS NOT DISTINCT FROM {_sql(v)}' for n, v in zip(names, values, strict=True)) + ")"


def _sql(value: Any) -> str:
    if value is None:
        return "NULL"
    return literal(value) if isinstance(value, str) else str(value).lower()


def _since(verdict: Verdict) -> int:
    assert verdict.since is not None
    return verdict.since


def _moment(micros: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)


def _micros(moment: dt.datetime) -> int:
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
