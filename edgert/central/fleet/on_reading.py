"""The windows of a flow when they are read: Spark's fleet table where that has all that landed, else merged here.

The rules are those of the fleet job (`edgert.central.fleet.recompute`), as SQL for `deltalake`'s own reader: a window
of which the landing table has contributions is made from those that count, and any other stands as the fleet table has
it. So a site without Spark sees means, and nobody takes a table for whole that Spark has still to write.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from edgert.central.fleet.columns import window_columns
from edgert.central.fleet.written_marker import APPLICATION, Written
from edgert.central.landing.flow_table import FlowTable
from edgert.central.landing.lineage import LAST, bounded, counted
from edgert.central.spark.stream_reader import StreamReader
from edgert.central.tables import show
from edgert.central.tables.query import in_brackets, is_understood, literal, quoted
from edgert.central.tables.table import Table, TableError, join, told, why
from edgert.core.errors import EdgertError
from edgert.core.results.result_schema import AGGREGATES, FINALS, Schema
from edgert.install_hint import missing

_COUNTS: Final = quoted("@counts")
_TYPES: Final = {"long": "BIGINT", "double": "DOUBLE", "integer": "INT"}
_OF_SPARK: Final = (
    "`edgert central run` (Spark) writes the first fleet rows some 20 s after its start, and about 80 s after its very "
    "first one"
)


@dataclass(frozen=True, slots=True)
class ReadWindows:
    """Columns, rows (newest window first), and what a reader has to know of them, a sentence each."""

    columns: list[str]
    rows: list[list[Any]]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class SparkProgress:
    """The part of a landing table that Spark has not merged."""

    rows: int
    """Rows of the landing table that Spark has not merged yet."""
    all_rows: int
    since_s: float | None = None
    """When the first of them landed, s since the epoch; None if that is not known."""
    at_least: bool = False
    """True if there may be more: the table's log does not reach back so far."""

    def sentence(self, flow: str, now_s: float) -> str:
        """Says how far behind Spark is."""
        if not self.rows and not self.at_least:
            return f"Spark has merged all that landed: {self.all_rows:,} rows of landing/{flow}"
        ago = "" if self.since_s is None else f", the first of which landed {max(0.0, now_s - self.since_s):,.0f} s ago"
        least = "at least " if self.at_least else ""
        return f"Spark is behind: {least}{self.rows:,} of {self.all_rows:,} rows of landing/{flow} are not merged{ago}"


def read(root: str, name: str, now_s: float, limit: int = 20, where: str = "") -> ReadWindows:
    """The rows of a table, newest windows first. A flow's name alone means its windows, whoever merges them; a full
    name that table as it is. `where` is an SQL condition over the columns.

    Raises `EdgertError` if there is no such table, it cannot be read, or the condition cannot be understood.
    """
    full = show.find(root, name)
    folder, _, flow = full.rpartition("/")
    if folder not in show.FOLDERS or f"landing/{flow}" not in show.names(root):
        return ReadWindows(*show.rows(root, full, limit, where), [])
    has_fleet = f"fleet/{flow}" in show.names(root)
    told = progress(root, flow)
    sentence = told.sentence(flow, now_s)
    if name != flow:
        lacks = "" if not told.rows else f"; `edgert central show {flow}` merges them as it reads"
        return ReadWindows(*show.rows(root, full, limit, where), [sentence + lacks] if folder == "fleet" else [])
    if has_fleet and not told.rows and not told.at_least:
        return ReadWindows(*show.rows(root, full, limit, where), [sentence])
    there = sentence if has_fleet else f"fleet/{flow} is not there yet: {_OF_SPARK}"
    columns, rows, notes = merged(root, flow, limit, where, has_fleet)
    return ReadWindows(columns, rows, [f"{there}. What landed is merged here, as it is read", *notes])


def progress(root: str, flow: str) -> SparkProgress:
    """Looks how far Spark is with `landing/<flow>`, which must be there. Raises `EdgertError`."""
    reader = StreamReader(root)
    uri = join(root, "landing", flow)
    with told(uri, "its log could not be read"):
        landing = show.load(root, f"landing/{flow}")
        files = pa.table(landing.get_add_actions(flatten=True))
        all_rows = sum(count or 0 for count in files["num_records"].to_pylist())
        read_up_to = reader.read_version(flow)
        fleet = Table(join(root, "fleet", flow))
        if not fleet.refresh() or Written(reader.checkpoint(flow)).why_incomplete(fleet, APPLICATION):
            read_up_to = -1
        if read_up_to < 0:
            return SparkProgress(all_rows, all_rows)
        log = [commit for commit in landing.history() if int(commit["version"]) > read_up_to]
        news = [commit for commit in log if commit.get("operation") == "WRITE"]
        rows = sum(int(commit.get("operationMetrics", {}).get("num_added_rows", 0)) for commit in news)
        since_s = min((int(commit["timestamp"]) / 1e3 for commit in news), default=None)
        return SparkProgress(rows, all_rows, since_s, at_least=len(log) < landing.version() - read_up_to)


def merged(
    root: str, flow: str, limit: int, where: str = "", has_fleet: bool = True
) -> tuple[list[str], list[list[Any]], list[str]]:
    """(columns, rows, notes) of the newest windows of a flow as the fleet job would make them, but for the sketches
    themselves, of which only the results are there. Raises `EdgertError`."""
    tables = {"t": show.load(root, f"landing/{flow}")}
    if has_fleet:
        tables["f"] = show.load(root, f"fleet/{flow}")
    known = {f"{folder}/{flow}": table for folder, table in zip(("landing", "fleet"), tables.values(), strict=False)}
    landing = FlowTable(root, flow)
    try:
        landing.refresh()
        landing.read_opens()
    except TableError as error:
        raise show.failed(root, known, "table", error) from error
    if landing.schema is None:  # nobody opened an epoch, so there are no rows either
        return ["window_start", "window_end"], [], []
    merge = _Merge(flow, landing, tables)
    try:
        return merge.rows(limit, where)
    except (DeltaError, OSError, ValueError) as error:
        if where and not is_understood(tables, merge.text(0, where, None)):
            listed = ", ".join(merge.columns)
            raise EdgertError(f"{flow}: expected a condition over {listed}: {why(error)}") from error
        raise show.failed(root, known, "condition", error) from error


class _Merge:
    """The queries over `landing/<flow>` (t) and, if it is among `tables`, `fleet/<flow>` (f)."""

    def __init__(self, flow: str, landing: FlowTable, tables: Mapping[str, DeltaTable]) -> None:
        assert landing.schema is not None
        self._flow = flow
        self._schema: Schema = landing.schema
        self._tables = tables
        self._keys = window_columns(self._schema)
        self._sketches = {name: kind for name, kind in self._schema.aggregates if _is_sketch(kind)}
        self._lineage = _lineage(landing)
        finals = [column for name, kind in self._schema.aggregates for column in _results(name, kind)]
        self.columns = [*self._keys[1:], *finals, "gateways", "day"]
        """Names of what is read."""

    def rows(self, limit: int, where: str) -> tuple[list[str], list[list[Any]], list[str]]:
        hidden = [column for name, kind in self._sketches.items() for column in _results(name, kind)]
        if named := [column for column in hidden if re.search(rf"\b{re.escape(column)}\b", where)]:
            raise EdgertError(
                f"--where: {', '.join(named)} come from sketches, which Spark alone compares: expected a condition "
                f"over other columns, or the table fleet/{self._flow}"
            )
        found = self._answer(self.text(limit, where, None if where else self._oldest_of(limit)))
        notes = self._unite(found)
        return self.columns, [[row[column] for column in self.columns] for row in found], notes

    def text(self, limit: int, where: str, bound: dt.datetime | None) -> str:
        """The query of the newest windows."""
        condition = f" WHERE {in_brackets(where)}" if where else ""
        return (
            f"{self._lineage}, windows AS ({self._windows(bound)}) SELECT * FROM windows{condition} "
            f"ORDER BY window_start DESC NULLS LAST LIMIT {int(limit)}"
        )

    def _answer(self, text: str) -> list[dict[str, Any]]:
        builder = QueryBuilder()
        for name, table in self._tables.items():
            builder = builder.register(name, table)
        found: list[dict[str, Any]] = pa.table(builder.execute(text)).to_pylist()
        return found

    def _oldest_of(self, limit: int) -> dt.datetime | None:
        """The least beginning among the newest `limit` different ones, each of which has a window; None if there are
        fewer."""
        text = (
            f"{self._lineage} SELECT DISTINCT window_start FROM landed WHERE {_COUNTS} "
            f"ORDER BY window_start DESC LIMIT {int(limit)}"
        )
        found = [row["window_start"] for row in self._answer(text)]
        return min(found) if found and len(found) == limit else None

    def _windows(self, bound: dt.datetime | None) -> str:
        """Windows that begin at `bound` or later: those of which there are contributions, and the others."""
        keys = ", ".join(map(quoted, self._keys))
        values = [f"{expression} AS {quoted(column)}" for column, expression in self._expressions()]
        within = f" WHERE {_since(bound)}" if bound else ""
        gateways = f"CAST(count(DISTINCT CASE WHEN {_COUNTS} THEN gateway END) AS INT) AS gateways"
        text = (
            f"SELECT * FROM (SELECT {', '.join([keys, *values, gateways])} FROM landed{within} GROUP BY {keys}) "
            "WHERE gateways > 0"
        )
        if "f" not in self._tables:
            return text
        has = {field.name for field in self._tables["f"].schema().fields}
        columns = [column for column, _ in self._expressions()]
        kinds = {name + suffix: _TYPES[kind] for name, how in self._schema.aggregates for suffix, kind in _shown(how)}
        of_fleet = [
            f"f.{quoted(column)}"
            if column in has
            else f"CAST(NULL AS {kinds.get(column, 'BYTEA[]')}) AS {quoted(column)}"
            for column in columns
        ]
        same = " AND ".join(f"(f.{quoted(key)} IS NOT DISTINCT FROM k.{quoted(key)})" for key in self._keys)
        known = f"SELECT DISTINCT {keys} FROM t WHERE day IS NOT NULL" + (f" AND {_since(bound)}" if bound else "")
        taken = ", ".join([*(f"f.{quoted(key)}" for key in self._keys), *of_fleet, "f.gateways"])
        later = f" WHERE {_since(bound, 'f.')}" if bound else ""
        return f"{text} UNION ALL SELECT {taken} FROM f LEFT ANTI JOIN ({known}) k ON {same}{later}"

    def _expressions(self) -> Iterator[tuple[str, str]]:
        """(column, SQL) of the aggregates. Of a sketch all its parts are one list, beside null for each result."""
        for name, kind in self._schema.aggregates:
            if _is_sketch(kind):
                yield from ((column, f"CAST(NULL AS {_TYPES[of]})") for column, of in _typed(name, kind))
                yield _parts(name), f"array_agg({_of(name + AGGREGATES[kind][0][0])})"
            else:
                yield name, _MERGES[kind](name)

    def _unite(self, rows: Sequence[dict[str, Any]]) -> list[str]:
        """Puts the results of sketches into the rows that were merged here; returns what has to be said."""
        if not self._sketches:
            return []
        try:
            from edgert.operators.state.sketch_kinds import KINDS
        except ModuleNotFoundError as error:
            if (hint := missing(error)) is None:
                raise
            return [f"{', '.join(self._sketches)}: {hint}"]
        for row in rows:
            for name, kind in self._sketches.items():
                parts = row.get(_parts(name))
                if parts is None:  # of the fleet table
                    continue
                how = KINDS[AGGREGATES[kind][0][0].removeprefix("__")]
                whole = None
                for part in filter(None, parts):
                    whole = how.unpack(part) if whole is None else how.merge(whole, how.unpack(part))
                if whole is not None:  # of no sketch Spark makes null, not 0
                    row.update({name + suffix: value for suffix, value in how.results(whole).items()})
        return []


def _lineage(landing: FlowTable) -> str:
    """`landed`: the contributions, each with whether it counts."""
    limits = counted(landing.openings)
    whole = [(gateway, epoch) for (gateway, epoch), cut in limits.items() if cut is None]
    cuts = [(*epoch, stream, last) for epoch, cut in limits.items() if cut for stream, last in bounded(cut).items()]

    def values(rows: Sequence[tuple[Any, ...]], none: str) -> str:
        told = (", ".join([literal(row[0]), *map(str, row[1:])]) for row in rows)
        return "VALUES " + (", ".join(f"({row})" for row in told) or none)

    return (
        f"WITH whole(gateway, epoch) AS ({values(whole, '(NULL, 0)')}), "
        f"cuts(gateway, epoch, stream, last) AS ({values(cuts, '(NULL, 0, 0, 0)')}), "
        f"landed AS (SELECT t.*, whole.epoch IS NOT NULL OR coalesce(t.sequence <= cuts.last, false) AS {_COUNTS} "
        "FROM t LEFT JOIN whole ON t.gateway = whole.gateway AND t.epoch = whole.epoch "
        "LEFT JOIN cuts ON t.gateway = cuts.gateway AND t.epoch = cuts.epoch AND t.stream = cuts.stream "
        "WHERE t.day IS NOT NULL)"
    )


def _since(bound: dt.datetime, table: str = "") -> str:
    """A condition that leaves out whole days, too."""
    day = bound.astimezone(dt.UTC).date()
    micros = round((bound - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(microseconds=1))
    return f"{table}day >= DATE '{day}' AND {table}window_start >= to_timestamp_micros({micros})"


def _is_sketch(kind: str) -> bool:
    return AGGREGATES[kind][0][1] == "binary"


def _shown(kind: str) -> Iterator[tuple[str, str]]:
    """(suffix, type) of an aggregate's columns that people read."""
    return ((suffix, of) for suffix, of in FINALS[kind] if of != "binary")


def _typed(name: str, kind: str) -> Iterator[tuple[str, str]]:
    return ((name + suffix, of) for suffix, of in _shown(kind))


def _results(name: str, kind: str) -> list[str]:
    return [column for column, _ in _typed(name, kind)]


def _parts(name: str) -> str:
    """The column with all sketches of a window; no flow can have it."""
    return f"@{name}"


def _of(column: str) -> str:
    """A column of contributions that count."""
    return f"CASE WHEN {_COUNTS} THEN {quoted(column)} END"


def _count(name: str) -> str:
    """Exact below 2^53, and never an overflow."""
    total = f"sum(CAST({_of(name)} AS DOUBLE))"
    return f"CASE WHEN {total} >= {float(LAST)!r} THEN {LAST} ELSE CAST({total} AS BIGINT) END"


def _mean(name: str) -> str:
    count = f"sum(CAST({_of(f'{name}__count')} AS DOUBLE))"
    return f"CASE WHEN {count} > 0 THEN sum({_of(f'{name}__sum')}) / {count} END"


def _variance(name: str) -> str:
    """Works as that of the fleet job, whose formula stands there."""
    some = f"{_COUNTS} AND {quoted(f'{name}__count')} > 0"
    n, x, m2 = (
        f"CASE WHEN {some} THEN CAST({quoted(name + suffix)} AS DOUBLE) END" for suffix in ("__count", "__mean", "__m2")
    )
    within, parts, total = f"sum({m2})", f"count({x})", f"sum({n})"
    with_n = f"(covar_pop({x}, {n}) * {parts})"
    between = f"(covar_pop({x}, ({n}) * ({x})) * {parts} - avg({x}) * {with_n} - {with_n} * {with_n} / {total})"
    squares = f"CASE WHEN {parts} > 1 THEN {within} + greatest({between}, 0.0) ELSE {within} END"
    return f"CASE WHEN {total} > 1 THEN ({squares}) / ({total} - 1) END"


_MERGES: Final = {
    "count": _count,
    "sum": lambda name: f"sum({_of(name)})",
    "min": lambda name: f"min({_of(name)})",
    "max": lambda name: f"max({_of(name)})",
    "mean": _mean,
    "variance": _variance,
}
