"""`tumbling_window`: event-time windows per key. It keeps accumulators, never rows.

A window is emitted when the watermark passes its end, and again for late rows within `lateness_s`:

    port RESULT         final values of everything that was added to the window so far (for `publish` and others)
    port CONTRIBUTION   mergeable partials of what was added since the last emission (for `ship`)

    event time   ──0────────60────────120──▶
    watermark          ▲ 61: window 0 emitted      a row at 58 now: late, emitted again if lateness_s ≥ 1
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Raw

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, Row
from edgert.core.errors import Problem
from edgert.core.packing import pack
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import FieldUse, OperatorSpec, Parameter
from edgert.operators.aggregates import (
    FUNCTIONS,
    SKETCH_MEMORY_BYTES,
    Aggregate,
    Aggregates,
    Slots,
    aggregate_named,
    all_aggregates,
    compile_function,
)
from edgert.operators.columns import check_names, check_table
from edgert.operators.division import divided
from edgert.operators.fields import hashable
from edgert.operators.inline import Fields, Inlinable, Lines, TimeUse, indented
from edgert.operators.keys import AS_KEY, CONSTANTS, key_source, may_fail
from edgert.operators.logic import Build, Emission, Now

RESULT, CONTRIBUTION = 0, 1
MAX_GROUPS: Final = 200_000
"""Of a key and a window, kept at a time."""
EARLY: Final = "window ended early (groups)"
Key = Any
"""The value of a single key field, a tuple of several, or the empty tuple."""


_ADD = """\
def add(rows, open_window, generation, dirty):
    late = bad = bad_keys = 0
    current = accs = None
    for row in rows:
        {open}
        try:
            {values}
        except KeyError:
            get = row.get
            {values_or_none}
        {key}
        {add}
    return late, bad, bad_keys
"""


def _fields(node: Node) -> FieldUse:
    columns = {c for a in node.parameters["aggregates"] for c in a.columns} | {"window_start", "window_end"}
    reads = frozenset(a.field for a in node.parameters["aggregates"] if a.field)
    return FieldUse(reads, frozenset(columns), keeps=frozenset())


def _check(node: Node, flow: Flow) -> Iterable[Problem]:
    yield from check_names(node, flow)
    yield from check_table(node, flow)


class TumblingWindow(Inlinable):
    """State: accumulators per open window and key, and for windows that may still be corrected what was emitted."""

    def __init__(
        self,
        name: str,
        size_s: float,
        aggregates: Sequence[Aggregate],
        keys: Sequence[tuple[str, str]] = (),
        lateness_s: float = 0.0,
        late: str = "drop",
        inputs: int = 1,
        ports: frozenset[int] = frozenset((RESULT, CONTRIBUTION)),
    ) -> None:
        super().__init__()
        self.name = name
        self.size_s = float(size_s)
        self.lateness_s = lateness_s
        self.keys = tuple(keys)
        self.ports = ports
        self.ships_late = late == "ship" and CONTRIBUTION in ports
        self.aggregates = Aggregates(aggregates)
        self.windows: dict[float, dict[Key, Slots]] = {}
        self.emitted: dict[float, dict[Key, Slots]] = {}
        self.watermark = NO_WATERMARK
        self._marks = [NO_WATERMARK] * max(1, inputs)
        self._generation = 1
        self._measured = 0
        """The generation in which the memory of sketches was last looked at."""
        self._dirty: list[tuple[float, Key, Slots]] = []
        self._emitted_dirty: list[tuple[float, Key, Slots]] = []
        self._gone: set[float] = set()
        self._forgotten: set[float] = set()
        """Since the last delta: windows whose accumulators left, and whose emitted values are no longer kept."""
        self._too_late: set[float] = set()
        """Windows opened in this turn by rows later than the lateness, which are shipped and nothing else."""
        self._saved_marks = list(self._marks)
        self._add = compile_function("add", self._source(), **self.aggregates.constants, **CONSTANTS)

    def _source(self) -> str:
        names = {column: f"v{i}" for i, column in enumerate(self.aggregates.fields)}

        def values(read: str) -> list[str]:
            keys = [f"k{number} = {read.format(name)}" for number, (name, _) in enumerate(self.keys)]
            return [*keys, *(f"{v} = {read.format(column)}" for column, v in names.items())] or ["pass"]

        return _ADD.format(
            open="\n        ".join(self._open_source("row['time']", ["late += 1", "continue"])),
            key="\n        ".join(self._key_source(["bad_keys += 1", "continue"])),
            values="\n            ".join(values("row[{!r}]")),
            values_or_none="\n            ".join(values("get({!r})")),
            add="\n        ".join(self._add_source(names)),
        )

    def _open_source(self, time: str, late: Sequence[str]) -> list[str]:
        """Lines that find the window of a row, or what is to be done if it is `late`."""
        lines = [f"w = {time} // {self.size_s!r}", "if w != current:", "    current = w", "    accs = open_window(w)"]
        return [*lines, "if accs is None:", *indented(late)]

    def _key_source(self, bad: Sequence[str]) -> list[str]:
        """Lines that make the key of k0, k1, ..., or what is to be done if it is `bad`; and look it up."""
        key = key_source(self.keys)
        if may_fail(self.keys):
            key = ["try:", *indented(key), "except BadKey:", *indented(bad)]
        return [*key, "acc = accs.get(key)"]

    def _add_source(self, variables: Mapping[str, str], finite: frozenset[str] = frozenset()) -> list[str]:
        """Lines that add a row, whose fields are `variables`, to its accumulator."""
        make = ["if acc is None:", "    accs[key] = acc = initial()"]
        mark = ["if acc[0] != generation:", "    acc[0] = generation", "    dirty.append((w, key, acc))"]
        return [*make, *mark, *self.aggregates.add_source(variables, finite)]

    # -- inside a decoder's function (see `edgert.operators.pipeline`)

    def inline(self, row: Fields, source: int) -> Lines:
        keys = [f"k{number} = {row.of(name)}" for number, (name, _) in enumerate(self.keys)]
        find = self._open_source(row.of("time"), ["late_row = True", "break"])
        return Lines(
            check=["late_row = False", *find, *keys, *self._key_source(["break"])],
            effect=self._add_source({column: row.of(column) for column in self.aggregates.fields}, row.floats()),
            gone=["if late_row:", "    late += 1", "else:", "    bad_keys += 1"],
            setup=["open_window, generation, dirty = adding()", "current = accs = None", "late = bad = bad_keys = 0"],
            finish=["added(late, bad, bad_keys)"],
            constants={**self.aggregates.constants, **CONSTANTS, "adding": self.adding, "added": self.added},
        )

    def time_by(self, source: int) -> TimeUse:
        return "heeds"

    def adding(self) -> tuple[Callable[[float], dict[Key, Slots] | None], int, list[tuple[float, Key, Slots]]]:
        """What the lines need in this turn: `open_window`, `generation`, `dirty`."""
        return self._open, self._generation, self._dirty

    def added(self, late: int, bad: int, bad_keys: int) -> None:
        """Counts what could not be added."""
        if bad_keys:
            self.drops["bad_key"] += bad_keys
        if late:
            self.drops["late"] += late
        if bad:
            self.drops["bad_value (values)"] += bad

    # -- rows in

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        before = self.watermark
        if batch.rows:
            self.added(*self._add(batch.rows, *self.adding()))
        if batch.watermark > self._marks[source]:
            self._marks[source] = batch.watermark
            self.watermark = max(before, min(self._marks))
        return self._close(batch.arrival, self.watermark, self.watermark > before)

    def _open(self, window: float) -> dict[Key, Slots] | None:
        """The accumulators of a window; None when its rows come too late."""
        accs = self.windows.get(window)
        if accs is None:
            if (window + 1) * self.size_s + self.lateness_s <= self.watermark:
                if not self.ships_late:
                    return None
                self._too_late.add(window)
            accs = self.windows[window] = {}
        return accs

    # -- windows out

    def _close(self, arrival: float, watermark: float, advanced: bool) -> list[Emission]:
        results: list[Row] = []
        contributions: list[Row] = []
        size = self.size_s
        for window in sorted(w for w in self.windows if (w + 1) * size <= watermark):
            self._emit(window, self.windows.pop(window), watermark, results, contributions)
        while self._too_much():
            self._end_early(min((*self.windows, *self.emitted)), results, contributions)
        for window in [w for w in self.emitted if (w + 1) * size + self.lateness_s <= watermark]:
            self._forget(window)
        self._too_late.clear()
        out = []
        if RESULT in self.ports and (results or advanced):
            out.append(Emission(RESULT, Batch(results, arrival, self._promise(watermark))))
        if contributions:
            out.append(Emission(CONTRIBUTION, Batch(contributions, arrival, watermark)))
        return out

    def _too_much(self) -> bool:
        """Whether there are too many groups, or since the last checkpoint their sketches take too much memory."""
        if sum(map(len, self.windows.values())) + sum(map(len, self.emitted.values())) > MAX_GROUPS:
            return True
        if self._measured == self._generation:
            return False
        groups = (acc for kept in (self.windows, self.emitted) for accs in kept.values() for acc in accs.values())
        if self.aggregates.sketch_bytes(groups) > SKETCH_MEMORY_BYTES:
            return True
        self._measured = self._generation
        return False

    def _end_early(self, window: float, results: list[Row], contributions: list[Row]) -> None:
        """The oldest goes, so that a sensor which makes up names cannot fill the memory. Contributions merge, so what
        is shipped stays right; of results there will be another row if more comes, of that alone."""
        accs = self.windows.pop(window, {})
        self.drops[EARLY] += len(accs.keys() | self.emitted.get(window, {}).keys())
        self._emit(window, accs, math.inf, results, contributions)
        self._forget(window)

    def _forget(self, window: float) -> None:
        """No more late rows correct what it gave."""
        if self.emitted.pop(window, None) is not None:
            self._forgotten.add(window)

    def _promise(self, watermark: float) -> float:
        """The watermark of what leaves: rows carry their window's start, so it is that of the oldest window to come."""
        size = self.size_s
        return (watermark - self.lateness_s) // size * size if math.isfinite(watermark) else watermark

    def _emit(
        self, window: float, accs: dict[Key, Slots], watermark: float, results: list[Row], contributions: list[Row]
    ) -> None:
        start, end = window * self.size_s, (window + 1) * self.size_s
        keeps = RESULT in self.ports and self.lateness_s > 0 and end + self.lateness_s > watermark
        before = self.emitted.get(window, {})
        self._gone.add(window)
        for key, acc in accs.items():
            head = self._head(start, end, key)
            if head is None:
                self.drops["bad_key (groups)"] += 1
                continue
            if CONTRIBUTION in self.ports:
                contributions.append({**head, **self.aggregates.partial(acc)})
            if RESULT in self.ports and window not in self._too_late:
                if key in before:
                    self.aggregates.merge(before[key], acc)
                    acc = before[key]
                results.append({**head, **self.aggregates.result(acc)})
                if keeps:
                    self.emitted.setdefault(window, {})[key] = acc
                    self._emitted_dirty.append((window, key, acc))

    def _head(self, start: float, end: float, key: Key) -> Row | None:
        """The columns every emitted row begins with; None when a key has no form in its type."""
        values = (key,) if len(self.keys) == 1 else key
        head: Row = {"time": start, "source": self.name, "window_start": start, "window_end": end}
        for (name, kind), value in zip(self.keys, values, strict=True):
            try:
                head[name] = None if value is None else AS_KEY[kind](value)
            except (ValueError, TypeError, OverflowError):
                return None
        return head

    def flush(self, now: Now) -> Sequence[Emission]:
        return self._close(now.monotonic, math.inf, True)

    # -- checkpoints

    def delta(self) -> Any | None:
        dirty, emitted, gone, forgotten = self._dirty, self._emitted_dirty, self._gone, self._forgotten
        if not (dirty or emitted or gone or forgotten) and self._saved_marks == self._marks:
            return None
        told = {
            "gone": sorted(gone),
            "forgotten": sorted(forgotten),
            **self._changed("windows", dirty, self.windows, gone),
            **self._changed("emitted", emitted, self.emitted, forgotten),
            "marks": list(self._marks),
            "watermark": self.watermark,
        }
        # only now: what cannot be packed, or finds no memory, is told the next time
        self._dirty, self._emitted_dirty, self._gone, self._forgotten = [], [], set(), set()
        self._generation += 1
        self._saved_marks = list(self._marks)
        return told

    def _changed(
        self, name: str, dirty: Sequence[tuple[float, Key, Slots]], kept: Mapping[float, Mapping[Key, Slots]],
        left: set[float],
    ) -> dict[str, Any]:  # fmt: skip
        """What of `dirty` is still kept. The flow stands still meanwhile, so nothing is looked up for windows that have
        not `left`, and accumulators are packed as they are, with their own slot: to copy 10,000 of them, for the
        collector of garbage to look at, would take four times as long."""
        if left:
            dirty = [one for one in dirty if one[0] not in left or kept.get(one[0], {}).get(one[1]) is one[2]]
        if self.aggregates.plain:
            return {f"whole_{name}": Raw(pack(dirty))} if dirty else {}
        stored = self.aggregates.stored
        return {name: [[window, key, stored(acc)] for window, key, acc in dirty]}

    def snapshot(self) -> Any | None:
        def pack(kept: dict[float, dict[Key, Slots]]) -> list[list[Any]]:
            return [[w, k, self.aggregates.stored(a)] for w, accs in kept.items() for k, a in accs.items()]

        return {
            "gone": [],
            "forgotten": [],
            "windows": pack(self.windows),
            "emitted": pack(self.emitted),
            "marks": list(self._marks),
            "watermark": self.watermark,
        }

    def restore(self, state: Any) -> None:
        for window in state["gone"]:
            self.windows.pop(window, None)
        for window in state["forgotten"]:
            self.emitted.pop(window, None)
        for kept, name in ((self.windows, "windows"), (self.emitted, "emitted")):
            for window, key, slots in state.get(name, ()):
                accs = kept.setdefault(window, {})
                accs[hashable(key)] = self.aggregates.restored(slots)
            for window, key, acc in state.get(f"whole_{name}", ()):
                accs = kept.setdefault(window, {})
                accs[hashable(key)] = self.aggregates.restored(acc[1:])
        marks = state["marks"]
        self._marks = [*marks, *self._marks[len(marks) :]][: len(self._marks)]
        self._saved_marks = list(self._marks)
        self.watermark = state["watermark"]

    def shared(self, snapshots: Sequence[Any], copies: int, copy_of: Callable[[Any], int]) -> Sequence[Any]:
        """The smallest watermark counts: what one copy still waited for is not late to another."""
        marks = [min(column) for column in zip(*(s["marks"] for s in snapshots), strict=True)]
        watermark = min(s["watermark"] for s in snapshots)
        windows, emitted = (
            divided([entry for s in snapshots for entry in s[name]], copies, lambda entry: copy_of(entry[1]))
            for name in ("windows", "emitted")
        )
        head = {"gone": [], "forgotten": [], "marks": marks, "watermark": watermark}
        return [{**head, "windows": windows[n], "emitted": emitted[n]} for n in range(copies)]


def make_window(build: Build) -> TumblingWindow:
    """The logic of one `tumbling_window`."""
    p = build.node.parameters
    return TumblingWindow(
        build.node.name,
        p["size_s"],
        p["aggregates"],
        build.keys,
        lateness_s=p["lateness_s"],
        late=p["late"],
        inputs=build.inputs,
        ports=build.ports,
    )


SPECS = (
    OperatorSpec(
        type="tumbling_window",
        doc="Aggregates rows per key over event-time windows of one size, aligned to the epoch (UTC). Emits when the "
        f"watermark passes a window's end, and earlier, counted as `{EARLY}`, where open windows would have more than "
        f"{MAX_GROUPS:,} groups, or sketches of {SKETCH_MEMORY_BYTES >> 20} MB: what is "
        "shipped merges, of results another row follows if more comes.",
        check=_check,
        fields=_fields,
        logic=make_window,
        divides_by=lambda node, keys: keys,
        ordered=False,
        parameters=(
            Parameter("size_s", "number", "Length of a window.", unit="s", minimum=0.001, maximum=31_622_400),
            Parameter(
                "aggregates",
                "string_map",
                "Column name to aggregate: "
                + ", ".join(f"`{f}`" for f in FUNCTIONS)
                + "; for instance `mean(temperature)`. The last three are sketches.",
                parse_entry=aggregate_named,
                parse=all_aggregates,
            ),
            Parameter(
                "lateness_s",
                "number",
                "Allowed lateness: a row up to this late corrects its window.",
                0.0,
                "s",
                minimum=0.0,
                maximum=31_622_400,
            ),
            Parameter(
                "late",
                "string",
                "A row later than that: `drop` (counted), or `ship` it to the central table as one more contribution.",
                "drop",
                choices=("drop", "ship"),
            ),
        ),
    ),
)
