"""`count_window`: aggregates over every n rows of a key, whatever their times. It keeps accumulators, never rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, Row
from edgert.core.text.long_text import SHORT
from edgert.flow.graph import Node
from edgert.flow.spec import FieldUse, OperatorSpec, Parameter
from edgert.operators.base.inline import Fields, Inlinable, Lines, indented
from edgert.operators.base.logic import Build, Emission, Now
from edgert.operators.state.aggregate_calls import Aggregate, aggregate_named, all_aggregates
from edgert.operators.state.aggregates import SKETCH_MEMORY_BYTES, Accumulator, Aggregates, compile_function
from edgert.operators.state.bounded_keys import MAX_KEYS, MEMORY_BYTES, SLOT_BYTES, ByKey
from edgert.operators.state.columns import check_names
from edgert.operators.state.keys import CONSTANTS, key_source, may_fail

WINDOW_BYTES: Final = 80
"""Bytes of an open window beside its slots, as measured; its sketches have a bound of their own."""
_BEGIN = ("accs, size, generation, dirty, weighs, full = adding()", "bad = bad_keys = 0")
_FIND = (
    "if acc is None:",
    "    if type(key) is not str or len(key) > SHORT:",
    "        weighs(key)",
    "    accs[key] = acc = initial()",
    "    acc.append(0)",
    "if acc[0] != generation:",
    "    acc[0] = generation",
    "    dirty[key] = None",
)
_ADD = """\
def add(rows, adding):
    {begin}
    for row in rows:
        try:
            {values}
        except KeyError:
            get = row.get
            {values_or_none}
        try:
            {key}
        except BadKey:
            bad_keys += 1
            continue
        acc = accs.get(key)
        {add}
        acc[{at}] = count = acc[{at}] + 1
        if count == size:
            full(row['time'], row['source'], key, acc)
    return bad, bad_keys
"""


class CountWindow(Inlinable):
    """State: an accumulator per key; its last slot counts the rows."""

    def __init__(self, size: int, aggregates: Sequence[Aggregate], keys: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__()
        self.size = size
        self.aggregates = Aggregates(aggregates)
        self.unusable = self.aggregates.unusable
        self._at = len(self.aggregates.initial())
        """The last slot. (Python finds it at once by its number, by -1 it does not.)"""
        self._by_key: ByKey[Accumulator] = ByKey("open", WINDOW_BYTES + SLOT_BYTES * (self._at + 1))
        self.memory = self._by_key.memory
        self.open = self._by_key.kept
        self._keys = tuple(keys)
        self._generation = 1
        self._measured = 0
        """The generation in which the memory of sketches was last looked at."""
        self._out: list[Row] = []
        self._names = {**self.aggregates.constants, **CONSTANTS, "SHORT": SHORT}
        self._add: Callable[..., tuple[int, int]] = compile_function("add", self._source(), **self._names)

    def _source(self) -> str:
        names = {column: f"v{i}" for i, column in enumerate(self.aggregates.fields)}

        def values(read: str) -> str:
            keys = [f"k{number} = {read.format(name)}" for number, (name, _) in enumerate(self._keys)]
            return "\n            ".join([*keys, *(f"{v} = {read.format(c)}" for c, v in names.items())] or ["pass"])

        add = "\n        ".join([*_FIND, *self.aggregates.add_source(names)])
        key = "\n            ".join(key_source(self._keys))
        begin = "\n    ".join(_BEGIN)
        read, read_or_none = values("row[{!r}]"), values("get({!r})")
        return _ADD.format(begin=begin, values=read, values_or_none=read_or_none, key=key, add=add, at=self._at)

    def _adding(self) -> tuple[Any, ...]:
        """Values for the lines until the next checkpoint."""
        return self.open, self.size, self._generation, self._by_key.changed, self._by_key.weighs, self._full

    def _added(self, bad: int, bad_keys: int) -> None:
        """Counts what could not be added, and forgets what is too much."""
        if bad:
            self.drops["bad_value (values)"] += bad
        if bad_keys:
            self.drops["bad_key"] += bad_keys
        self._incomplete(self._by_key.forget_beyond(self.drops, self._most_keys()))

    def inline(self, row: Fields, source: int) -> Lines:
        keys = [f"k{number} = {row.of(name)}" for number, (name, _) in enumerate(self._keys)]
        add = self.aggregates.add_source({column: row.of(column) for column in self.aggregates.fields}, row.floats())
        full = [f"acc[{self._at}] = count = acc[{self._at}] + 1", "if count == size:"]
        full.append(f"    full({row.of('time')}, {row.of('source')}, key, acc)")
        make = ["try:", *indented([*keys, *key_source(self._keys)]), "except BadKey:", "    break"]
        return Lines(
            check=[*(make if may_fail(self._keys) else [*keys, *key_source(self._keys)]), "acc = accs.get(key)"],
            effect=[*_FIND, *add, *full],
            gone=["bad_keys += 1"],
            setup=_BEGIN,
            finish=["added(bad, bad_keys)"],
            constants={**self._names, "adding": self._adding, "added": self._added},
        )

    @property
    def completed(self) -> bool:
        return bool(self._out)

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        if batch.rows:
            self._added(*self._add(batch.rows, self._adding))
        rows, self._out = self._out, []
        if not rows and batch.watermark == NO_WATERMARK:
            return ()
        return (Emission(0, Batch(rows, batch.arrival, batch.watermark)),)

    def _most_keys(self) -> int | None:
        """Once after each checkpoint a bound, if their sketches take too much memory."""
        if self._measured == self._generation:
            return None
        self._measured = self._generation
        held = self.aggregates.sketch_bytes(self.open.values())
        self._by_key.sketch_bytes = held // max(1, len(self.open))
        limit = self.aggregates.sketch_limit_bytes
        return None if held <= limit else len(self.open) * limit // held

    def _full(self, time: float, source: str, key: Any, acc: Accumulator) -> None:
        """The key's rows are complete: the result has the time and the source of the last of them."""
        head: Row = {"time": time, "source": source}
        values = (key,) if len(self._keys) == 1 else key
        head.update(zip((name for name, _ in self._keys), values, strict=True))
        self._out.append({**head, **self.aggregates.result(acc)})
        self._by_key.forget(key)

    def flush(self, now: Now) -> Sequence[Emission]:
        """The flow ends: windows that are not complete give nothing, and that is said."""
        self._incomplete(self.open.values())
        return ()

    def _incomplete(self, windows: Iterable[Accumulator]) -> None:
        if rows := sum(acc[-1] for acc in windows):
            self.drops["incomplete window"] += rows

    def delta(self) -> Any | None:
        self._generation += 1
        return self._by_key.delta(lambda acc: (self.aggregates.stored(acc),))

    def snapshot(self) -> Any | None:
        return self._by_key.snapshot(lambda acc: (self.aggregates.stored(acc),))

    def restore(self, state: Any) -> None:
        for key, slots in self._by_key.told(state):
            self.open[key] = self.aggregates.restored(slots)


def _fields(node: Node) -> FieldUse:
    aggregates: Sequence[Aggregate] = node.parameters["aggregates"]
    reads = frozenset(a.field for a in aggregates if a.field)
    return FieldUse(reads, frozenset(c for a in aggregates for c in a.columns), keeps=frozenset())


def _make(build: Build) -> CountWindow:
    return CountWindow(build.node.parameters["size"], build.node.parameters["aggregates"], build.keys)


SPECS = (
    OperatorSpec(
        type="count_window",
        doc="Aggregates every `size` rows of a key, whatever their times. The result has time and source of the last. "
        "Rows of windows that stay incomplete give nothing and are counted: when the flow ends, and of the oldest "
        f"where more than {MAX_KEYS:,} keys have one open, or they take more than {MEMORY_BYTES >> 20} MB, or their "
        f"sketches more than {SKETCH_MEMORY_BYTES >> 20} MB.",
        check=check_names,
        fields=_fields,
        logic=_make,
        divides_by=lambda node, keys: keys,
        parameters=(
            Parameter("size", "integer", "Rows of a window.", unit="rows", minimum=1, maximum=1_000_000),
            Parameter(
                "aggregates",
                "string_map",
                "Field to aggregate, as in `tumbling_window`.",
                parse_entry=aggregate_named,
                parse=all_aggregates,
            ),
        ),
    ),
)
