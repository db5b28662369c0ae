"""`tumbling_window`: event-time windows per key. It keeps accumulators, never rows.

A window is emitted when the watermark passes its end, and again for late rows within `lateness_s`:

    port RESULT         final values of everything that was added to the window so far (for `publish` and others)
    port CONTRIBUTION   mergeable partials of what was added since the last emission (for `ship`)

    event time   ──0────────60────────120──▶
    watermark          ▲ 61: window 0 emitted      a row at 58 now: late, emitted again if lateness_s ≥ 1
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, Row
from edgert.core.errors import Problem
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import FieldUse, OperatorSpec, Parameter
from edgert.operators.base.inline import Fields, Inlinable, Lines, TimeUse, indented
from edgert.operators.base.logic import Build, Emission, Now
from edgert.operators.state.aggregate_calls import FUNCTIONS, Aggregate, aggregate_named, all_aggregates
from edgert.operators.state.aggregates import Accumulator, Aggregates, compile_function
from edgert.operators.state.bounded_keys import KEY_BYTES, MEMORY_BYTES, SLOT_BYTES
from edgert.operators.state.columns import check_names, check_table
from edgert.operators.state.groups import GroupRoom, Groups, Key, make_source
from edgert.operators.state.keys import AS_KEY, CONSTANTS, key_source, may_fail
from edgert.operators.state.wrong_clock import TAKEN_BACK, is_taken_back

RESULT, CONTRIBUTION = 0, 1
EARLY: Final = "window ended early (groups)"
_MOST_GROUPS: Final = MEMORY_BYTES // (KEY_BYTES + 2 * SLOT_BYTES)
"""With short keys, of `count()` alone."""

_ADD = """\
def add(rows, open_window, generation, dirty, weighs):
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
        self.unusable = self.aggregates.unusable
        self.windows = Groups("windows", "gone", self.aggregates)
        self.emitted = Groups("emitted", "forgotten", self.aggregates)
        self._room = GroupRoom(self.windows, self.emitted)
        self.memory = self._room.memory
        self.watermark = NO_WATERMARK
        self._watermarks = [NO_WATERMARK] * max(1, inputs)
        self._generation = 1
        self._too_late: set[float] = set()
        """Windows opened in this turn by rows later than the lateness, which are shipped and nothing else."""
        self._saved_watermarks = list(self._watermarks)
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
        mark = ["if acc[0] != generation:", "    acc[0] = generation", "    dirty.append((w, key, acc))"]
        return [*make_source(self.keys), *mark, *self.aggregates.add_source(variables, finite)]

    # -- inside a decoder's function (see `edgert.operators.fusion.compiled_region`)

    def inline(self, row: Fields, source: int) -> Lines:
        keys = [f"k{number} = {row.of(name)}" for number, (name, _) in enumerate(self.keys)]
        find = self._open_source(row.of("time"), ["late_row = True", "break"])
        return Lines(
            check=["late_row = False", *find, *keys, *self._key_source(["break"])],
            effect=self._add_source({column: row.of(column) for column in self.aggregates.fields}, row.floats()),
            gone=["if late_row:", "    late += 1", "else:", "    bad_keys += 1"],
            setup=[
                "open_window, generation, dirty, weighs = adding()",
                "current = accs = None",
                "late = bad = bad_keys = 0",
            ],
            finish=["added(late, bad, bad_keys)"],
            constants={**self.aggregates.constants, **CONSTANTS, "adding": self.adding, "added": self.added},
        )

    def time_by(self, source: int) -> TimeUse:
        return "heeds"

    def adding(self) -> tuple[Any, ...]:
        """Values for the lines in this turn: `open_window`, `generation`, `dirty`, `weighs`."""
        return self._open, self._generation, self.windows.dirty, self.windows.weighs

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
        if is_taken_back(self._watermarks[source], batch.watermark):
            self._watermarks[source] = batch.watermark
            self.watermark = min(self._watermarks)
            self.drops[TAKEN_BACK] += 1
        before = self.watermark
        if batch.rows:
            self.added(*self._add(batch.rows, *self.adding()))
        if batch.watermark > self._watermarks[source]:
            self._watermarks[source] = batch.watermark
            self.watermark = max(before, min(self._watermarks))
        return self._close(batch.arrival, self.watermark, self.watermark > before)

    def _open(self, window: float) -> dict[Key, Accumulator] | None:
        """The accumulators of a window; None when its rows come too late."""
        if window not in self.windows and (window + 1) * self.size_s + self.lateness_s <= self.watermark:
            if not self.ships_late:
                return None
            self._too_late.add(window)
        return self.windows.open(window)

    # -- windows out

    def _close(self, arrival: float, watermark: float, advanced: bool) -> list[Emission]:
        results: list[Row] = []
        contributions: list[Row] = []
        size = self.size_s
        while (window := self.windows.oldest()) is not None and (window + 1) * size <= watermark:
            self._emit(window, self.windows.leave(window), watermark, results, contributions)
        for window in self._room.lacking(self._generation):
            self._end_early(window, results, contributions)
        while (window := self.emitted.oldest()) is not None and (window + 1) * size + self.lateness_s <= watermark:
            self.emitted.leave(window)  # no more late rows correct what it gave
        self._too_late.clear()
        out = []
        if RESULT in self.ports and (results or advanced):
            out.append(Emission(RESULT, Batch(results, arrival, self._promise(watermark))))
        if contributions:
            out.append(Emission(CONTRIBUTION, Batch(contributions, arrival, watermark)))
        return out

    def _end_early(self, window: float, results: list[Row], contributions: list[Row]) -> None:
        """The oldest goes, so that a sensor which makes up names cannot fill the memory. Contributions merge, so what
        is shipped stays right; of results there will be another row if more comes, of that alone."""
        accs = self.windows.leave(window)
        self.drops[EARLY] += len(accs.keys() | self.emitted.get(window, {}).keys())
        self._emit(window, accs, math.inf, results, contributions)
        self.emitted.leave(window)

    def _promise(self, watermark: float) -> float:
        """The watermark of what leaves: rows carry their window's start, so it is that of the oldest window to come."""
        size = self.size_s
        return (watermark - self.lateness_s) // size * size if math.isfinite(watermark) else watermark

    def _emit(
        self,
        window: float,
        accs: dict[Key, Accumulator],
        watermark: float,
        results: list[Row],
        contributions: list[Row],
    ) -> None:
        start, end = window * self.size_s, (window + 1) * self.size_s
        keeps = RESULT in self.ports and self.lateness_s > 0 and end + self.lateness_s > watermark
        before = self.emitted.get(window, {})
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
                    self.emitted.put(window, key, acc)
                    self.emitted.dirty.append((window, key, acc))

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
        if not (self.windows.changed or self.emitted.changed) and self._saved_watermarks == self._watermarks:
            return None
        told = {**self.windows.changes(), **self.emitted.changes(), **self._times()}
        # only now: what cannot be packed, or finds no memory, is told the next time
        self.windows.told()
        self.emitted.told()
        self._generation += 1
        self._saved_watermarks = list(self._watermarks)
        return told

    def _times(self) -> dict[str, Any]:
        return {"marks": list(self._watermarks), "watermark": self.watermark}

    def snapshot(self) -> Any | None:
        return {**self.windows.snapshot(), **self.emitted.snapshot(), **self._times()}

    def restore(self, state: Any) -> None:
        self.windows.restore(state)
        self.emitted.restore(state)
        self._room.restored()
        stored = state["marks"]
        self._watermarks = [*stored, *self._watermarks[len(stored) :]][: len(self._watermarks)]
        self._saved_watermarks = list(self._watermarks)
        self.watermark = state["watermark"]


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
        f"watermark passes a window's end, and earlier, counted as `{EARLY}`, the oldest first, where the groups "
        f"of all windows take more than {MEMORY_BYTES >> 20} MB (about {_MOST_GROUPS // 1000},000 with short keys and "
        "a `count()`, fewer with more aggregates or long keys), or their sketches as much again: what is shipped "
        "merges, of results another row follows if more comes.",
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
                + "; for instance `mean(temperature)`. The last three are sketches. A field whose name has other "
                "characters than letters, digits, `_` and dots is written in backticks: `` mean(`Total Power`) ``.",
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
