"""Results of the last hour, for the page's plots: one value per key and aggregate each ten seconds.

Nothing is done per row or batch. Each look at the gateway takes the newest window of each flow, if it has changed:

    windows of 10 s   21.0  21.4  21.2  ...   one point each
    windows of 1 s    21.0  21.3  ...         one point in ten seconds, of the first window in them
    windows of 60 s   21.1                    one point a minute

Memory is bounded for all flows together: `MOST_LINES` lines of `MOST_POINTS` points, 2 MB when full.
"""

from __future__ import annotations

import math
import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from edgert.core.batch import Row
from edgert.core.clock import Clock
from edgert.core.results.result_schema import Schema
from edgert.runtime.latest import LatestWindow
from gateway.flows.flows import Flows
from gateway.status.results import field_of

HOUR_S: Final = 3600.0
PERIOD_S: Final = 10.0
"""Least time between two points."""
MOST_POINTS: Final = int(HOUR_S / PERIOD_S)
MOST_LINES: Final = 1_000
"""Lines of all flows together, each of 1,440 bytes and its name."""
MOST_OF_FLOW, LEAST_OF_FLOW = 100, 4
"""Lines of one flow: its share of `MOST_LINES`, within these bounds."""
KEY_CHARACTERS: Final = 64
AHEAD_S: Final = 60.0
"""A window that ends so far in the future has a wrong time, and no place on a plot of the last hour."""
NAN: Final = math.nan

LineKey = tuple[str, ...]
"""Values of the flow's keys, as text."""


def _mean(row: Row, name: str) -> float | None:
    count: float | None = row.get(f"{name}__count")
    return row[f"{name}__sum"] / count if count else None


def _variance(row: Row, name: str) -> float | None:
    count: float | None = row.get(f"{name}__count")
    return row[f"{name}__m2"] / (count - 1) if count and count > 1 else None


def _number(row: Row, name: str) -> float | None:
    found: float | None = row.get(name)
    return found


VALUES: Final[Mapping[str, Callable[[Row, str], float | None]]] = {
    "mean": _mean, "max": _number, "min": _number, "sum": _number, "variance": _variance, "count": _number,
}  # fmt: skip
"""Kinds of aggregates that have one number, those that people look for first, and how a shipped row gives it."""
RANKS: Final = tuple(VALUES)


class PlotLine(msgspec.Struct, frozen=True):
    """Values of one key."""

    key: LineKey
    values: list[float | None]
    """One for each of the plot's times; None where the key had no result."""


class Plot(msgspec.Struct, frozen=True):
    """Values of one column of a flow's results in the last hour."""

    flow: str
    keys: list[str]
    """Names of the keys."""
    columns: list[str]
    """Columns that are kept, the most telling first."""
    column: str
    """The one that `lines` are of."""
    times: list[float]
    """Ends of windows, seconds since the epoch."""
    lines: list[PlotLine]
    left_out: int
    """Lines of all columns for which there was no room."""
    field: str = ""
    """The field of rows whose unit the column has; empty where it has none or another one, as a count."""


class FlowHistory:
    """The lines of one flow."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        known = [(name, kind) for name, kind in schema.aggregates if kind in VALUES]
        self.columns = {name: VALUES[kind] for name, kind in sorted(known, key=lambda one: RANKS.index(one[1]))}
        """Column → what gives its value of a shipped row; the most telling first."""
        self.times = array("d")
        self.lines: dict[tuple[str, LineKey], array[float]] = {}
        """(column, key) → values, one for each of `times`."""
        self.left_out: set[int] = set()
        """Hashes of lines without room."""
        self._start = -math.inf
        """Start of the window that the newest point is of."""
        self._seen = -1

    def sample(self, latest: LatestWindow, now: float, room: int, most: int) -> None:
        """Takes the newest window. `now`: seconds since the epoch; `room`: lines that all flows may still make;
        `most`: lines that this flow may have."""
        if latest.changes == self._seen or latest.start is None:
            return
        self._seen, rows, start = latest.changes, latest.rows, latest.start
        end = _end(rows)
        if not now - HOUR_S < end < now + AHEAD_S:
            return
        is_later = self._start < start < self._start + PERIOD_S
        if start >= self._start + PERIOD_S:
            self._start = start
            self._begin_point(end)
        elif not is_later and start != self._start:
            return
        keyed = [(row, self._key(row)) for row in islice(rows, most)]
        room = min(room, most - len(self.lines))
        for column, value_of in self.columns.items():
            for row, key in keyed:
                value = value_of(row, column)
                if value is not None:
                    room -= self._put((column, key), value, room, only_missing=is_later)

    def _begin_point(self, end: float) -> None:
        old = sum(time <= end - HOUR_S for time in self.times)
        gone = max(old, len(self.times) + 1 - MOST_POINTS)
        self.times = self.times[gone:]
        self.times.append(end)
        for line, values in list(self.lines.items()):
            kept = values[gone:]
            kept.append(NAN)
            if all(map(math.isnan, kept)):
                del self.lines[line]
            else:
                self.lines[line] = kept

    def _put(self, line: tuple[str, LineKey], value: float, room: int, *, only_missing: bool) -> bool:
        """True if the value took the room of a new line. `only_missing`: the newest point keeps a value that it has."""
        values = self.lines.get(line)
        if values is not None:
            if not only_missing or math.isnan(values[-1]):
                values[-1] = value
            return False
        if room <= 0:
            if len(self.left_out) < MOST_LINES:
                self.left_out.add(hash(line))
            return False
        values = self.lines[line] = array("f", [NAN]) * len(self.times)
        values[-1] = value
        self.left_out.discard(hash(line))
        return True

    def _key(self, row: Row) -> LineKey:
        return tuple(_short(str(row.get(name))) for name, _ in self.schema.keys)


class History:
    """The histories of all flows."""

    def __init__(self, flows: Flows, clock: Clock) -> None:
        self._flows, self._clock = flows, clock
        self._histories: dict[str, FlowHistory] = {}

    def sample(self) -> None:
        """Takes the newest windows. Call this some times in `PERIOD_S`."""
        runs, now = dict(self._flows.runs), self._clock.wall()
        for name in self._histories.keys() - runs.keys():
            del self._histories[name]
        most = min(MOST_OF_FLOW, max(LEAST_OF_FLOW, MOST_LINES // max(1, len(runs))))
        lines = sum(len(history.lines) for history in self._histories.values())
        for name, run in runs.items():
            if run.schema is None:
                continue
            history = self._histories.get(name)
            if history is None or history.schema != run.schema:
                history = self._histories[name] = FlowHistory(run.schema)
            before = len(history.lines)
            history.sample(run.latest, now, MOST_LINES - lines, most)
            lines += len(history.lines) - before

    def plot(self, name: str, column: str) -> Plot | None:
        """The values of a column of a flow's results, by default the first column; None where no such flow runs."""
        run, flow = self._flows.runs.get(name), self._histories.get(name)
        if run is None:
            return None
        if flow is None:
            return Plot(name, [], [], "", [], [], 0)
        chosen, now = column if column in flow.columns else next(iter(flow.columns), ""), self._clock.wall()
        names = [name for name, _ in flow.schema.keys]
        first = next((at for at, time in enumerate(flow.times) if time > now - HOUR_S), len(flow.times))
        lines = [
            PlotLine(key, [_plain(value) for value in values[first:]])
            for (of, key), values in sorted(flow.lines.items())
            if of == chosen
        ]
        times = [round(time, 3) for time in flow.times[first:]]
        return Plot(name, names, list(flow.columns), chosen, times, lines, len(flow.left_out), field_of(run, chosen))


def _end(rows: Sequence[Row]) -> float:
    """The end of the window that these rows are of."""
    row: Row = next(iter(rows), {"time": -math.inf})
    end: float = row["window_end"] if "window_end" in row else row["time"]
    return end


def _short(text: str) -> str:
    """A text that is one line's alone, however long it was."""
    if len(text) <= KEY_CHARACTERS:
        return text
    return f"{text[:KEY_CHARACTERS]}… {zlib.crc32(text.encode(errors='replace')):08x}"


def _plain(value: float) -> float | None:
    """A value with the digits that a 32-bit float has."""
    return float(f"{value:.7g}") if math.isfinite(value) else None
