"""Which windows a batch of landing rows may have changed, told by little: where its rows stand, not which they are.

Each stream lands in order, so a batch is told by two sequences of each: the one before its first row and that of its
last; and its windows by the spans of time in which they begin, by which Delta leaves out files that have none of them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812

from edgert.central.landing.lineage import LAST, Epoch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Span = tuple[int, int]
"""When windows begin, first and last, µs since the epoch."""
COLUMNS: Final = ("gateway", "epoch", "stream", "sequence", "day", "window_start", "lineage")
"""Columns of landing rows that `touched_by` reads. A stream that has more makes rows of all of them."""
_HOUR_US: Final = 3_600_000_000
_MOST_SPANS: Final = 16
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def spark_literal(micros: int) -> str:
    """A time of µs since the epoch."""
    return f"TIMESTAMP'{_EPOCH + dt.timedelta(microseconds=micros)}'"


def deltalake_literal(micros: int) -> str:
    """A time of µs since the epoch, for deltalake, which reads text as ns: these end in 2262."""
    return f"to_timestamp_micros({micros})"


@dataclass(frozen=True, slots=True)
class Low:
    """Which contributions of an epoch touch their window: those past a sequence of their stream, up to another."""

    streams: Mapping[int, tuple[int, int]]
    others: int | None = None
    """All past this sequence, of all other streams (None: nothing of these)."""


@dataclass(slots=True)
class Touched:
    """Where the touched windows are, and which contributions tell them from others there."""

    lows: dict[Epoch, Low] = field(default_factory=dict)
    opened: list[Epoch] = field(default_factory=list)
    """Epochs that the batch opens."""
    days: set[dt.date] = field(default_factory=set)
    spans: list[Span] = field(default_factory=list)
    rows: int = 0
    """Contributions of the batch."""
    void: bool = False
    """True if windows are among them that lose contributions."""
    but: Span | None = None
    """Windows that begin within it are left out."""

    def add(self, day: dt.date, span: Span) -> None:
        """Windows of a day."""
        self.days.add(day)
        self.spans.append(span)

    def add_void(self, void: Mapping[Epoch, Mapping[int, int]]) -> None:
        """Also rows past a sequence of their stream; all those of a stream that is not named."""
        self.void = self.void or bool(void)
        for epoch, old in void.items():
            new = self.lows.get(epoch, Low({})).streams
            streams = {s: min(new[s][0] if s in new else old.get(s, 0), old.get(s, 0)) for s in {*new, *old}}
            self.lows[epoch] = Low({s: (low, LAST) for s, low in streams.items()}, 0)

    def parted(self, span: Span) -> tuple[Touched | None, Touched | None]:
        """The windows that begin within a span, and the others (None: there are none of these). The others have all
        spans, so that these become one where those of the whole do: no part goes beyond what the whole condition holds,
        by which it was looked up what is known."""
        first, last = span
        days = {day for day in self.days if _micros(day) <= last and first < _micros(day + dt.timedelta(days=1))}
        inside = [(max(first, a), min(last, b)) for a, b in self.spans if a <= last and b >= first]
        outside = any(a < first or b > last for a, b in self.spans)
        return (
            replace(self, days=days, spans=inside) if inside else None,
            replace(self, but=span) if outside else None,
        )

    def within(self, table: str = "", literal: Callable[[int], str] = spark_literal) -> str:
        """Returns an SQL condition on the columns of a table (its name with a dot). Its literals are such that Delta
        leaves out other partitions and files, in what is read and in what is merged into. `literal` writes a time of µs
        since the epoch: as Spark reads it, or `deltalake_literal`."""
        days = ", ".join(f"DATE'{day}'" for day in sorted(self.days))
        spans = " OR ".join(
            f"{table}window_start BETWEEN {literal(first)} AND {literal(last)}"
            for first, last in united(self.spans, _MOST_SPANS)
        )
        within = f"{table}day IN ({days}) AND ({spans})"
        if self.but is None:
            return within
        return f"{within} AND NOT {table}window_start BETWEEN {literal(self.but[0])} AND {literal(self.but[1])}"


def touched_by(batch: DataFrame) -> Touched:
    """In one pass over a batch of landing rows."""
    start = F.unix_micros("window_start")
    rows = (
        batch.groupBy("gateway", "epoch", "stream", "day", _hour().alias("hour"))
        .agg(
            F.min("sequence").alias("least"),
            F.max("sequence").alias("most"),
            F.min(start).alias("first"),
            F.max(start).alias("last"),
            F.max(F.col("lineage").isNotNull()).alias("opens"),
            F.count("*").alias("rows"),
        )
        .collect()
    )
    return touched_of(rows)


def touched_of(parts: Iterable[Any]) -> Touched:
    """From what is told of parts of a batch, each of one stream, day and hour."""
    touched = Touched()
    lows: dict[Epoch, dict[int, tuple[int, int]]] = {}
    for part in parts:
        epoch = (part.gateway, part.epoch)
        if part.opens:
            touched.opened.append(epoch)
        if part.day is not None:
            touched.add(part.day, (part.first, part.last))
            touched.rows += part.rows
            low = lows.setdefault(epoch, {})
            before, last = low.get(part.stream, (LAST, 0))
            low[part.stream] = min(before, part.least - 1), max(last, part.most)
    touched.lows = {epoch: Low(low) for epoch, low in lows.items()}
    return touched


def spans_of(contributions: DataFrame) -> list[tuple[dt.date, Span]]:
    """The days of some contributions, and when their windows begin."""
    start = F.unix_micros("window_start")
    rows = contributions.where("day IS NOT NULL").groupBy("day", _hour().alias("hour"))
    found = rows.agg(F.min(start).alias("first"), F.max(start).alias("last")).collect()
    return [(row.day, (row.first, row.last)) for row in found]


def _micros(day: dt.date) -> int:
    """When it begins, µs since the epoch."""
    return (day - _EPOCH.date()) // dt.timedelta(microseconds=1)


def _hour() -> Column:
    """In which a window begins: any number that tells one from others."""
    return F.expr(f"unix_micros(window_start) div {_HOUR_US}")


def united(spans: Iterable[Span], most: int) -> Sequence[Span]:
    """Returns at most `most` spans that hold all of `spans`: those near each other become one."""
    ordered = sorted(spans)
    gap = _HOUR_US
    while True:
        done: list[Span] = []
        for first, last in ordered:
            if done and first <= done[-1][1] + gap:
                done[-1] = (done[-1][0], max(last, done[-1][1]))
            else:
                done.append((first, last))
        if len(done) <= most:
            return done
        ordered, gap = done, gap * 2
