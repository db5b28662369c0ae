"""Aggregates that merge: initialise / add / merge / result, over one flat list of slots per window and key.

Adding is generated code, made once per window operator from validated field names (they enter as `repr` of a string);
merging and results are ordinary functions. Aggregates that need the same thing of the same field share its slots, and
rows in which every field has a number are counted once for all fields: nearly all rows are of that kind.

Variance keeps (n, shift, Σ(x-shift), Σ(x-shift)²) while adding, which costs no division per row and stays accurate
because the shift is the window's first value; it leaves as (n, mean, M2), merged as Chan, Golub and LeVeque (1979) do.

A sketch has one slot, None until there is a value (`edgert.sketches.mergeable`). In a checkpoint it is bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Final, Literal

from edgert.core.batch import GREATEST
from edgert.core.results.result_schema import AGGREGATES
from edgert.operators.base.values import UnusableValues
from edgert.operators.state.aggregate_calls import SKETCHES, Aggregate, AggregateFunction

if TYPE_CHECKING:
    from edgert.sketches.mergeable import Mergeable

SKETCH_MEMORY_BYTES: Final = 64 * 1024 * 1024
"""For the sketches of one window operator. They are measured once after each checkpoint."""
Accumulator = list[Any]


@dataclass(frozen=True, slots=True)
class Primitive:
    """An accumulated value: `rows`, `count`, `sum`, `min`, `max`, `moments` or a sketch of one field, and `full`: rows
    in which every field had a number, to be added to each `count`."""

    kind: Literal["rows", "full", "count", "sum", "min", "max", "moments", "hll", "theta", "kll"]
    field: str
    at: int
    """Index of its first slot."""


_INITIAL: Mapping[str, tuple[Any, ...]] = {
    "rows": (0,),
    "full": (0,),
    "count": (0,),
    "sum": (0.0,),
    "min": (None,),
    "max": (None,),
    "moments": (0, 0.0, 0.0, 0.0),
    "hll": (None,),
    "theta": (None,),
    "kll": (None,),
}
_NEEDS: Mapping[AggregateFunction, tuple[str, ...]] = {
    "count": ("count",),
    "sum": ("sum", "count"),
    "mean": ("sum", "count"),
    "variance": ("moments",),
    "min": ("min",),
    "max": ("max",),
    "distinct": ("hll",),
    "distinct_set": ("theta",),
    "quantiles": ("kll",),
}
_OF_ANY_VALUE: Final = frozenset(("hll", "theta"))
"""Primitives to which strings and booleans are added, too."""


class Aggregates:
    """The aggregates of one window operator. Slot 0 of every accumulator is the caller's own."""

    def __init__(self, aggregates: Sequence[Aggregate]) -> None:
        self.aggregates = tuple(aggregates)
        self.sketch_limit_bytes = SKETCH_MEMORY_BYTES
        self._slot: dict[tuple[str, str], int] = {}
        primitives: list[Primitive] = []
        at = 1
        for kind, column in self._wanted():
            if (kind, column) not in self._slot:
                self._slot[kind, column] = at
                primitives.append(Primitive(kind, column, at))  # type: ignore[arg-type]
                at += len(_INITIAL[kind])
        self.primitives = tuple(primitives)
        self._initial: Accumulator = [0] + [v for p in primitives for v in _INITIAL[p.kind]]
        self.unusable = UnusableValues()
        self.constants: dict[str, Any] = {"initial": self.initial, "unusable": self.unusable.note}
        """Constants of the source text of `add_source`."""
        self._sketches: dict[int, Mergeable] = {}
        """Kinds of sketches by the index of their slot."""
        if any(a.function in SKETCHES for a in self.aggregates):
            self._prepare_sketches()

    def _prepare_sketches(self) -> None:
        from edgert.operators.state.sketch_kinds import KINDS
        from edgert.sketches.mergeable import NOT_A_VALUE, value_of

        self._sketches = {p.at: KINDS[p.kind] for p in self.primitives if p.kind in KINDS}
        self.constants |= {f"fresh{at}": kind.fresh for at, kind in self._sketches.items()}
        self.constants |= {"value_of": value_of, "NOT_A_VALUE": NOT_A_VALUE}

    @property
    def plain(self) -> bool:
        """True if an accumulator can be packed as it is: all its slots are numbers or null."""
        return not self._sketches

    def sketch_bytes(self, accs: Iterable[Accumulator]) -> int:
        """Approximate memory of the sketches of these accumulators, bytes."""
        total = 0
        if self._sketches:
            for acc in accs:
                for at, kind in self._sketches.items():
                    if acc[at] is not None:
                        total += kind.held_bytes(acc[at])
        return total

    def _wanted(self) -> list[tuple[str, str]]:
        wanted: list[tuple[str, str]] = []
        for a in self.aggregates:
            if a.field is None:
                wanted.append(("rows", ""))
            else:
                wanted.extend((kind, a.field) for kind in _NEEDS[a.function])
        if any(kind == "count" for kind, _ in wanted):
            wanted.append(("full", ""))  # last: state of before there was one is the same without it
        return wanted

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields read, in order of first use."""
        return tuple(dict.fromkeys(p.field for p in self.primitives if p.field))

    def initial(self) -> Accumulator:
        """A fresh accumulator."""
        return self._initial.copy()

    def merge(self, into: Accumulator, other: Accumulator) -> None:
        """Adds `other` to `into`. Commutative and associative (floats: up to rounding)."""
        for p in self.primitives:
            at = p.at
            if p.kind == "moments":
                _merge_moments(into, other, at)
            elif at in self._sketches:
                ours, theirs = into[at], other[at]
                if ours is None or theirs is None:
                    into[at] = theirs if ours is None else ours
                else:
                    into[at] = self._sketches[at].merge(ours, theirs)
            elif p.kind in ("min", "max"):
                ours, theirs = into[at], other[at]
                if ours is None or theirs is None:
                    into[at] = theirs if ours is None else ours
                else:
                    into[at] = min(ours, theirs) if p.kind == "min" else max(ours, theirs)
            else:
                into[at] += other[at]

    def result(self, acc: Accumulator) -> dict[str, Any]:
        """Final values by aggregate name."""
        if not self._sketches:
            return {a.name: self._result(a, acc) for a in self.aggregates}
        row: dict[str, Any] = {}
        for a in self.aggregates:
            if a.function in SKETCHES:
                kind, sketch = self._sketch(a, acc)
                row |= {a.name + suffix: value for suffix, value in kind.results(sketch).items()}
            else:
                row[a.name] = self._result(a, acc)
        return row

    def _sketch(self, a: Aggregate, acc: Accumulator) -> tuple[Mergeable, Any | None]:
        at = self._slot[SKETCHES[a.function], a.field or ""]
        return self._sketches[at], acc[at]

    def _result(self, a: Aggregate, acc: Accumulator) -> Any:
        if a.field is None:
            return acc[self._slot["rows", ""]]
        if a.function == "variance":
            n, _, m2 = _moments(acc, self._slot["moments", a.field])
            return m2 / (n - 1) if n > 1 else None
        if a.function in ("min", "max"):
            return acc[self._slot[a.function, a.field]]
        if a.function == "count":
            return self._count(acc, a.field)
        total = acc[self._slot["sum", a.field]]
        if a.function == "sum":
            return total
        n = self._count(acc, a.field)
        return total / n if n else None

    def _count(self, acc: Accumulator, column: str) -> Any:
        return acc[self._slot["count", column]] + acc[self._slot["full", ""]]

    def stored(self, acc: Accumulator) -> Accumulator:
        """The slots behind the caller's own, as a checkpoint holds them."""
        slots = acc[1:]
        for at, kind in self._sketches.items():
            if acc[at] is not None:
                slots[at - 1] = kind.stored(acc[at])
        return slots

    def restored(self, slots: Sequence[Any]) -> Accumulator:
        """An accumulator from the slots behind the caller's own, as they were stored by this code or before there was
        the last of them."""
        acc = [0, *slots, *self._initial[1 + len(slots) :]]
        for at, kind in self._sketches.items():
            if acc[at] is not None:
                acc[at] = kind.unpack(acc[at])
        return acc

    def partial(self, acc: Accumulator) -> dict[str, Any]:
        """The mergeable columns of a contribution (see `edgert.core.results.result_schema.partial_columns`)."""
        row: dict[str, Any] = {}
        for a in self.aggregates:
            if a.function == "mean" and a.field:
                row[f"{a.name}__count"] = self._count(acc, a.field)
                row[f"{a.name}__sum"] = acc[self._slot["sum", a.field]]
            elif a.function == "variance" and a.field:
                moments = _moments(acc, self._slot["moments", a.field])
                row[f"{a.name}__count"], row[f"{a.name}__mean"], row[f"{a.name}__m2"] = moments
            elif a.function in SKETCHES:
                kind, sketch = self._sketch(a, acc)
                ((suffix, _),) = AGGREGATES[a.function]
                row[a.name + suffix] = None if sketch is None else kind.pack(sketch)
            else:
                row[a.name] = self._result(a, acc)
        return row

    def add_source(self, variables: Mapping[str, str], finite: frozenset[str] = frozenset()) -> list[str]:
        """Source lines that add the fields, as `variables` names them, to `acc`; they count a value of a wrong type in
        `bad` and go on. Fields in `finite` are known to be floats within `GREATEST`.

        A row in which every field is a number within bounds, as nearly all are, is told by one test. Any other is
        looked at field by field: a string among numbers loses that value only, not the window, and so do NaN,
        infinities and numbers beyond `GREATEST`, which would otherwise stay in a sum for good.
        """
        lines = [f"acc[{p.at}] += 1" for p in self.primitives if p.kind == "rows"]
        for p in self.primitives:
            if p.kind in _OF_ANY_VALUE:
                lines += _add_to_set(p.at, p.field, variables[p.field])
        all_numbers = [f"acc[{p.at}] += 1" for p in self.primitives if p.kind == "full"]
        numeric = [column for column in self.fields if self._of(column)]
        for column in numeric:
            v = variables[column]
            all_numbers += [line for p in self._of(column, but="count") for line in _ADD[p.kind](p.at, v)]
        unsure = [variables[column] for column in numeric if column not in finite]
        if not unsure:
            return lines + all_numbers
        numbers = " and ".join(f"(type({v}) is float or type({v}) is int)" for v in unsure)
        squares = " + ".join(f"{v} * {v}" for v in unsure)
        lines += ["try:", f"    fine = {squares} < {GREATEST**2!r} if {numbers} else False"]
        lines += ["except OverflowError:", "    fine = False", "if fine:"]  # an integer that no float can hold
        lines += [f"    {line}" for line in all_numbers]
        lines.append("else:")
        for column in numeric:
            lines += [f"    {line}" for line in self._add_one(column, variables[column])]
        return lines

    def _of(self, column: str, but: str = "") -> list[Primitive]:
        """The primitives to add to where the field is a number."""
        return [p for p in self.primitives if p.field == column and p.kind != but and p.kind not in _OF_ANY_VALUE]

    def _add_one(self, column: str, v: str) -> list[str]:
        lines = [f"if (type({v}) is float or type({v}) is int) and {-GREATEST!r} <= {v} <= {GREATEST!r}:"]
        lines += [f"    {line}" for p in self._of(column) for line in _ADD[p.kind](p.at, v)]
        lines.append(f"elif {v} is not None:")
        others = [p for p in self._of(column) if p.kind == "count" and self._counts_any(column)]
        return [*lines, *([f"    acc[{p.at}] += 1" for p in others] or _count_bad(column, v))]

    def _counts_any(self, column: str) -> bool:
        """True if the field is only counted, so that a string is a value like any other."""
        counting = ("count", "distinct", "distinct_set")
        return all(a.function in counting for a in self.aggregates if a.field == column)


def _extreme(operator: str) -> Callable[[int, str], list[str]]:
    return lambda at, v: [f"m = acc[{at}]", f"if m is None or {v} {operator} m:", f"    acc[{at}] = {v}"]


_ADD: Mapping[str, Callable[[int, str], list[str]]] = {
    "count": lambda at, v: [f"acc[{at}] += 1"],
    "sum": lambda at, v: [f"acc[{at}] += {v}"],
    "min": _extreme("<"),
    "max": _extreme(">"),
    "moments": lambda at, v: [
        f"if acc[{at}]:",
        f"    d = {v} - acc[{at + 1}]",
        f"    acc[{at + 2}] += d",
        f"    acc[{at + 3}] += d * d",
        "else:",
        f"    acc[{at + 1}] = float({v})",
        f"acc[{at}] += 1",
    ],
    "kll": lambda at, v: [*_sketch_at(at), f"sketch.update({v})"],
}


def _sketch_at(at: int) -> list[str]:
    return [f"sketch = acc[{at}]", "if sketch is None:", f"    sketch = acc[{at}] = fresh{at}()"]


def _count_bad(column: str, v: str) -> list[str]:
    return ["    bad += 1", f"    unusable({column!r}, {v})"]


def _add_to_set(at: int, column: str, v: str) -> list[str]:
    add = ["try:", f"    sketch.update({v} if type({v}) is str else value_of({v}))"]
    add += ["except NOT_A_VALUE:", *_count_bad(column, v)]
    return [f"if {v} is not None:", *(f"    {line}" for line in [*_sketch_at(at), *add])]


def _moments(acc: Accumulator, at: int) -> tuple[int, float, float]:
    """(n, mean, M2) from the shifted sums."""
    n, shift, total, squares = acc[at : at + 4]
    if not n:
        return 0, 0.0, 0.0
    return n, shift + total / n, max(0.0, squares - total * total / n)


def _merge_moments(into: Accumulator, other: Accumulator, at: int) -> None:
    (n, mean, m2), (m, other_mean, other_m2) = _moments(into, at), _moments(other, at)
    if not m:
        return
    if not n:
        into[at : at + 4] = other[at : at + 4]
        return
    delta, count = other_mean - mean, n + m
    merged_m2 = m2 + other_m2 + delta * delta * n * m / count
    # kept as shifted sums about the merged mean: the sum is zero there and the squares are M2 itself
    into[at : at + 4] = [count, mean + delta * m / count, 0.0, merged_m2]


def plain_sum(values: Iterable[float]) -> float:
    """Added from left to right, as a window adds its rows. `sum` has compensated for rounding since Python 3.12: with
    it a result would depend on the interpreter."""
    return reduce(add, values, 0.0)


def compile_function(name: str, source: str, **names: Any) -> Callable[..., Any]:
    """Compiles generated source (never user text) into one function."""
    scope: dict[str, Any] = dict(names)
    exec(compile(source, f"<edgert {name}>", "exec"), scope)  # noqa: S102 - source is generated from validated names
    function: Callable[..., Any] = scope[name]
    return function
