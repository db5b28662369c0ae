"""A rule applied to a landing table's stream: a frame with state, and verdicts of each of its batches."""

from __future__ import annotations

import datetime as dt
import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812

from edgert.central.alerts.rules import GATEWAY, SILENT, AlertRule
from edgert.central.alerts.silence import AHEAD_US, MERGES, SilenceLimits
from edgert.central.alerts.state import SILENCE_OUT, WINDOWS_OUT, Silence, Windows
from edgert.central.alerts.table import Alert, Alerts, KeyVerdict
from edgert.central.landing.flow_table import FlowTable
from edgert.central.landing.flow_tables import of_flow
from edgert.central.spark.streams import CannotStart
from edgert.central.tables.query import literal
from edgert.central.tables.table import join, list_tables
from edgert.core.results.result_schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger("edgert.central.alerts")
BOUNDS_S: Final = 300.0
"""How long quantiles of the fleet are used until they are made anew."""
_AT_ONCE: Final = 200
"""Keys that one condition names."""
_ACCURACY: Final = 10_000


class RuleStream(ABC):
    """One rule on the stream of one landing table of its flow. Not for more than one thread."""

    keys: tuple[str, ...]
    """The key columns of its alerts, in their order there."""

    def __init__(self, rule: AlertRule, table: str, root: str, alerts: Alerts) -> None:
        self.rule = rule
        self._table = table
        self._root = root
        self._alerts = alerts
        self.ahead = 0
        """Windows of the last batch that are ahead of now: some clock was."""

    @abstractmethod
    def frame(self, landing: DataFrame) -> DataFrame:
        """The stream with its state. What the state holds depends on the rule's kind, keys and columns only."""

    @abstractmethod
    def verdicts(self, batch: DataFrame) -> list[KeyVerdict]:
        """Runs a batch, once, with its change of state. Returns one verdict per key."""


def rule_stream(rule: AlertRule, table: str, schema: Schema, root: str, alerts: Alerts) -> RuleStream:
    """Makes a rule's stream from a landing table. Raises `CannotStart` for a rule that does not fit the table."""
    return (SilentStream if rule.kind == SILENT else OutsideStream)(rule, table, schema, root, alerts)


class SilentStream(RuleStream):
    """A key of which nothing came for a while."""

    def __init__(self, rule: AlertRule, table: str, schema: Schema, root: str, alerts: Alerts) -> None:
        super().__init__(rule, table, root, alerts)
        self._types = _types(schema)
        self.keys = rule.keys or tuple(name for name, _ in schema.keys)
        if not self.keys or not set(self.keys) <= self._types.keys():
            raise CannotStart(
                f"rule {rule.name}: expected keys of landing/{table} ({', '.join(self._types)}), got "
                f"{', '.join(self.keys) or 'none'}"
            )
        self._tables: dict[str, FlowTable] = {}

    def frame(self, landing: DataFrame) -> DataFrame:
        group = F.lit("") if self.keys == (GATEWAY,) else F.col(GATEWAY)
        rows = landing.where("day IS NOT NULL").select(
            group.alias("grp"), _key(self.keys).alias("key"), F.unix_micros("window_end").alias("ends")
        )
        limits = SilenceLimits(round(self.rule.after_s * 1000), round(self.rule.patience_s * 1000))
        return rows.groupBy("grp").transformWithState(Silence(limits), SILENCE_OUT, "Append", "ProcessingTime")

    def verdicts(self, batch: DataFrame) -> list[KeyVerdict]:
        well: dict[str, KeyVerdict] = {}
        silent: dict[str, KeyVerdict] = {}
        self.ahead = 0
        for row in batch.collect():
            if row.key is None:
                self.ahead += row.at
                continue
            kind = well if row.since is None else silent
            if row.key not in kind or kind[row.key].at < row.at:
                kind[row.key] = KeyVerdict(row.key, row.at, row.since)
        confirmed = self._confirmed([v for key, v in silent.items() if key not in well])
        # A gateway that catches up says of each of its keys, with each batch, that it is heard.
        open_ = self._alerts.open(self.rule.name) if well else []
        return [*self._well(well, open_), *confirmed]

    def _well(self, well: Mapping[str, KeyVerdict], open_: Iterable[Alert]) -> Iterator[KeyVerdict]:
        """Verdicts that clear something. An alert of a table with other keys is cleared by a verdict with the same
        values in the keys that both have."""
        newest: dict[tuple[str, ...], dict[tuple[Any, ...], int]] = {}
        for alert in open_:
            key = json.loads(alert.key)
            names = tuple(name for name in self.keys if name in key)
            if tuple(key) == self.keys:
                if alert.key in well:
                    yield well[alert.key]
            elif names:
                if names not in newest:
                    ats = sorted((v.at, v.key) for v in well.values())
                    newest[names] = {_values(key, names): at for at, key in ats}
                if (at := newest[names].get(_values(alert.key, names))) is not None:
                    yield KeyVerdict(alert.key, at)

    def _confirmed(self, silent: Sequence[KeyVerdict]) -> list[KeyVerdict]:
        """Silent keys of which the whole landing table has nothing newer either: a sensor may have come to another
        gateway, and a stream that begins anew has not read all of it. `since` becomes the table's newest. A key whose
        newest window is in another table of the flow, since its gateway has another version, is left to the stream of
        that table."""
        if not silent:
            return []
        tables = self._flow()
        last = {v.key: _since(v) for v in silent}
        for table in (t for name, t in tables.items() if name == self._table):
            self._look(table, silent, last)
        newest = dict(last)
        for table in (t for name, t in tables.items() if name != self._table):
            self._look(table, silent, newest)
        after = round(self.rule.after_s * 1e6)
        here = (v for v in silent if newest[v.key] == last[v.key])
        return [KeyVerdict(v.key, v.at, last[v.key]) for v in here if last[v.key] + after <= v.at]

    def _flow(self) -> dict[str, FlowTable]:
        """The flow's landing tables, as they are now."""
        names = of_flow(list_tables(self._root, "landing"), self.rule.flow)
        self._tables = {name: self._tables.get(name) or FlowTable(self._root, name) for name in names}
        return {name: table for name, table in self._tables.items() if table.refresh()}

    def _look(self, table: FlowTable, silent: Sequence[KeyVerdict], last: dict[str, int]) -> None:
        """Brings `last` up to what a table says of keys: by those of the key columns that it has."""
        types = _types(table.schema) if table.schema else {}
        names = [name for name in self.keys if types.get(name) == self._types[name]]
        if table.schema is None or not names:
            return
        now = f"TIMESTAMP '{dt.datetime.now(dt.UTC).isoformat()}'"  # what ends later is of a clock that was ahead
        for at in range(0, len(silent), _AT_ONCE):
            asked: dict[tuple[Any, ...], list[str]] = {}
            for verdict in silent[at : at + _AT_ONCE]:
                asked.setdefault(_values(verdict.key, names), []).append(verdict.key)
            first = _moment(min(last[key] for keys in asked.values() for key in keys))
            day = (first - dt.timedelta(seconds=table.schema.window_s)).date()
            one = " OR ".join(_same(names, values) for values in asked)
            newer = f"window_end > TIMESTAMP '{first.isoformat()}' AND window_end <= {now}"
            where = f"day >= DATE '{day}' AND {newer} AND ({one})"
            for row in table.table.read([*names, "window_end"], where):
                for key in asked[tuple(row[n] for n in names)]:
                    last[key] = max(last[key], _micros(row["window_end"]))


class OutsideStream(RuleStream):
    """A key whose newest windows are all outside what the fleet has."""

    def __init__(self, rule: AlertRule, table: str, schema: Schema, root: str, alerts: Alerts) -> None:
        super().__init__(rule, table, root, alerts)
        kinds = dict(schema.aggregates)
        self._kind = kinds.get(rule.column, "")
        if self._kind not in MERGES:
            fit = [name for name, kind in kinds.items() if kind in MERGES]
            raise CannotStart(
                f"rule {rule.name}: expected as column one of landing/{table} that is a {', '.join(MERGES)} "
                f"({', '.join(fit) or 'it has none'}), got {rule.column}"
            )
        if rule.of and kinds.get(rule.of) != "quantiles":
            fit = [name for name, kind in kinds.items() if kind == "quantiles"]
            raise CannotStart(
                f"rule {rule.name}: expected as of a column of landing/{table} with quantiles "
                f"({', '.join(fit) or 'it has none'}), got {rule.of}"
            )
        self.keys = tuple(name for name, _ in schema.keys)
        self._bounds = QuantileBounds(rule, root, table)

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

    def verdicts(self, batch: DataFrame) -> list[KeyVerdict]:
        bounds = self._bounds.of_now(batch.sparkSession)
        if bounds is None:
            self.ahead = sum(row.at for row in batch.where("values IS NULL").collect())
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
            F.col("values").isNull() | ((F.col("at") >= oldest) & (F.col("wrong") | well))
        )
        said = rows.collect()
        self.ahead = sum(row.at for row in said if row["values"] is None)
        return [
            KeyVerdict(row.key, row.at, row.since if row.wrong else None, row.newest, low, high)
            for row in said
            if row["values"] is not None
        ]


class QuantileBounds:
    """Bounds by quantiles of the fleet, made anew now and then from the fleet table with the same windows as the
    landing table: a sum over a minute says nothing of one over an hour."""

    def __init__(self, rule: AlertRule, root: str, table: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._rule = rule
        self._root = root
        self._table = table
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
        if self._table in list_tables(self._root, "fleet"):
            now = dt.datetime.now(dt.UTC)
            since, until = now - dt.timedelta(days=rule.days), now + dt.timedelta(microseconds=AHEAD_US)
            fleet = spark.read.format("delta").load(join(self._root, "fleet", self._table))
            days = F.col("day").between(F.lit(since.date()), F.lit(until.date()))
            rows = fleet.where(days & F.col("window_start").between(F.lit(since), F.lit(until)))
            found = rows.agg(*self._columns()).collect()[0]
            count, values = found.n or 0, found.quantiles
        if count < rule.least or values is None:
            values_there = f"{count:,} values of fleet/{self._table} in the newest days"
            self._say(f"rule {rule.name}: {values_there}, and {rule.least:,} needed")
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


def widened(rule: AlertRule, values: Sequence[float]) -> tuple[float | None, float | None]:
    """(low, high) from the quantiles at the rule's ranks, with its margin."""
    given = iter(values)
    low = next(given) if rule.low is not None else None
    high = next(given) if rule.high is not None else None
    if low is not None and high is not None:
        wider = rule.margin * (high - low)
        return low - wider, high + wider
    return low, high


def _ranks(rule: AlertRule) -> list[float]:
    return [float(rank) for rank in (rule.low, rule.high) if rank is not None]


def _key(names: Sequence[str]) -> Column:
    return F.to_json(F.struct(*names), {"ignoreNullFields": "false"}) if names else F.lit("{}")


def _types(schema: Schema) -> dict[str, str]:
    """Returns column → type of all columns that can be a key of a rule."""
    return {**dict(schema.keys), GATEWAY: "string"}


def _values(key: str, names: Sequence[str]) -> tuple[Any, ...]:
    known = json.loads(key)
    return tuple(known[name] for name in names)


def _same(names: Sequence[str], values: Sequence[Any]) -> str:
    # Each in parentheses: else `AND` and what follows it are taken for a part of what the first is compared with.
    parts = [f'("{n}" IS NOT DISTINCT FROM {_sql(v)})' for n, v in zip(names, values, strict=True)]
    return "(" + " AND ".join(parts) + ")"


def _sql(value: Any) -> str:
    if value is None:
        return "NULL"
    return literal(value) if isinstance(value, str) else str(value).lower()


def _since(verdict: KeyVerdict) -> int:
    assert verdict.since is not None
    return verdict.since


def _moment(micros: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)


def _micros(moment: dt.datetime) -> int:
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
