"""A chain of stateless steps becomes one Python function over a list of rows.

Measured on the development machine (Python 3.11, 100 rows of 7 fields): see `tests/expr/test_speed.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgert.core.batch import Row
from edgert.expr.codegen import Scope
from edgert.expr.functions import Type
from edgert.expr.operations import Bound, known_number
from edgert.expr.tree import Call, Expression, Field, Literal, check_field_name
from edgert.expr.types import demand_boolean, type_of, type_of_shallow


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep the rows for which `where` is true (neither false nor null)."""

    where: Expression


@dataclass(frozen=True, slots=True)
class Map:
    """Add or replace fields; every expression sees the row as it came."""

    set: Mapping[str, Expression]


@dataclass(frozen=True, slots=True)
class Select:
    """Keep these fields where they are there, and always `time` and `source`."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lookup:
    """Add what a table says of the value of the field `key`; if it says nothing, the fields are null."""

    key: str
    fields: tuple[str, ...]
    table: Mapping[Any, tuple[Any, ...]]
    """Values of `fields` by value of `key`."""
    drop: bool = False
    """Let go of rows of which the table says nothing, and count them (`CompiledChain.missed`)."""


Step = Filter | Map | Select | Lookup


@dataclass(frozen=True, slots=True)
class Bad:
    """A row that a step could not work on, and is lost."""

    index: int
    """Its index in the list that was given."""
    row: Row
    reason: str
    """One of few: wrong type, division by zero, not finite, outside the domain, failed."""
    step: int
    """Which step of the chain."""
    detail: str


_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (TypeError, "wrong type"),
    (ZeroDivisionError, "division by zero"),
    (OverflowError, "not finite"),
    (ValueError, "outside the domain"),
)


class CompiledChain:
    """Compiled steps. Rows that are given are never changed; rows that nothing changes are handed on as they are."""

    def __init__(self, steps: Sequence[Step], live: frozenset[str] | None = None) -> None:
        self.steps = tuple(steps)
        self.missed = [0] * len(self.steps)
        """Rows of which the table of a `Lookup` said nothing, by step; whoever looks sets it to 0."""
        self.source, names, self._layout = _generate(self.steps, live, self.missed)
        space = _execute(self.source, names)
        self._fast: Callable[[list[Row]], list[Row]] = space["fast"]
        self._one: Callable[[Row, list[int]], Row | None] = space["one"]

    def apply(self, rows: list[Row]) -> tuple[list[Row], list[Bad]]:
        """The resulting rows, and those that were lost. Only if some row fails, all are done again one by one."""
        before = self.missed[:]
        try:
            return self._fast(rows), []
        except Exception:  # noqa: BLE001 - whatever it was, the careful way finds the row and says it
            self.missed[:] = before
            return self._carefully(rows)

    def fields_of(self, given: Sequence[str]) -> list[str]:
        """The fields of what a row with fields `given` becomes, in order."""
        made, kept = self._layout
        if kept is None:
            return [*given, *(name for name in made if name not in given)]
        return [*(name for name in kept if name in given), *made]

    def _carefully(self, rows: list[Row]) -> tuple[list[Row], list[Bad]]:
        out: list[Row] = []
        bad: list[Bad] = []
        at = [0]
        for index, row in enumerate(rows):
            try:
                result = self._one(row, at)
            except Exception as error:  # noqa: BLE001 - bad input never stops the process
                reason = next((text for kind, text in _REASONS if isinstance(error, kind)), "failed")
                bad.append(Bad(index, row, reason, at[0], str(error)[:200]))
            else:
                if result is not None:
                    out.append(result)
        return out, bad


@dataclass(frozen=True, slots=True)
class Inlined:
    """Steps as lines inside a function of somebody else's, where fields are local variables."""

    lines: tuple[str, ...]
    """`break` where a step lets go; what a bad row raises is not caught."""
    fields: Mapping[str, str]
    """The fields behind the steps: variable, or `None` for what is always null."""
    constants: Mapping[str, Any]
    sure: frozenset[str]
    """Variables that are never None."""
    numbers: frozenset[str]
    """Variables that are numbers, or None."""
    misses: bool
    """True if the table of a step may let go: `which` is the number of that step then, -1 if another did."""


def inline_chain(
    chain: CompiledChain, fields: Mapping[str, str], sure: frozenset[str], numbers: frozenset[str] = frozenset()
) -> Inlined:
    """The steps of `chain` for a row of exactly these `fields` (name → local variable, not `t1`, `t2`, ...); of the
    variables those in `sure` are never None, those in `numbers` nothing but that or a number. Nothing is counted."""
    writer = _ChainWriter(chain.steps, None, careful=False)
    writer.missing = "which = {}"
    writer.scope.computed = dict(fields)
    writer.scope.only = frozenset()
    writer.known = sure.union(map(known_number, numbers))
    lines = writer.steps_inline()
    variables = frozenset(writer.scope.computed.values())
    misses = any(isinstance(step, Lookup) and step.drop for step in chain.steps)
    return Inlined(
        (*(["which = -1"] if misses else ()), *lines),
        writer.scope.computed,
        writer.scope.globals,
        variables & writer.known,
        frozenset(variable for variable in variables if known_number(variable) in writer.known),
        misses,
    )


def compile_chain(steps: Sequence[Step], live: frozenset[str] | None = None) -> CompiledChain:
    """One function for all `steps`. Raises ValueError if a step contradicts itself (types, nesting, field names).

    `live` names the fields of the resulting rows that anybody will look at (None: all): a selection builds no others,
    and the result of a map that nobody reads is computed (it may find a bad row) but not kept.
    """
    for step in steps:
        match step:
            case Filter():
                demand_boolean(step.where)
            case Map():
                for name, expression in step.set.items():
                    check_field_name(name)
                    type_of(expression)
            case Select():
                for name in step.fields:
                    check_field_name(name)
            case Lookup():
                for name in (step.key, *step.fields):
                    check_field_name(name)
    return CompiledChain(steps, live)


def compile_expression(expression: Expression) -> Callable[[Row], Any]:
    """A function from row to value, None for null. It raises TypeError, ValueError or ArithmeticError for bad rows."""
    type_of(expression)
    scope = Scope()
    code = scope.value_of(expression, frozenset())
    body = [f"t = {code}", *_bound("t", expression, code), "return t"]
    lines = ["def value(r):", *("    " + line for line in body)]
    function: Callable[[Row], Any] = _execute("\n".join(lines), scope.globals)["value"]
    return function


def _execute(source: str, names: Mapping[str, Any]) -> dict[str, Any]:
    space: dict[str, Any] = {"__builtins__": {"KeyError": KeyError}, **names}
    try:
        exec(compile(source, "<edgert expression>", "exec"), space)  # noqa: S102 - generated, see codegen
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"expected a simpler expression, got one that Python cannot compile ({error})") from None
    return space


Layout = tuple[list[str], list[str] | None]
"""Fields that are made, and those that are left of what a row brings; None: all."""


def _generate(
    steps: tuple[Step, ...], live: frozenset[str] | None, missed: list[int]
) -> tuple[str, dict[str, Any], Layout]:
    fast, one = _ChainWriter(steps, live, careful=False), _ChainWriter(steps, live, careful=True)
    simple = _ChainWriter(steps, live, careful=False)
    filters = simple.filters()
    body = ["        " + line for line in fast.body()]
    if filters:
        fast_lines = filters
    else:
        fast_lines = ["out = []", "append = out.append", "for r in rows:"]
        fast_lines = ["    " + line for line in fast_lines] + body + ["    return out"]
    one_lines = ["    " + line for line in one.body()]
    lines = ["def fast(rows):", *fast_lines, "", "def one(r, at):", *one_lines]
    names = {**simple.scope.globals, **fast.scope.globals, **one.scope.globals, "missed": missed}
    return "\n".join(lines) + "\n", names, fast.layout()


class _ChainWriter:
    """Writes the body of one of the two functions: `fast` over all rows, or (careful) `one` row."""

    def __init__(self, steps: tuple[Step, ...], live: frozenset[str] | None, *, careful: bool) -> None:
        self.steps = steps
        self.missing = "missed[{}] += 1"
        """The line for a row of which the table of step {} says nothing."""
        self.live = live if live is None else live | {"time", "source"}
        self.careful = careful
        self.scope = Scope()
        self.known: Bound = frozenset()
        self.lines: list[str] = []

    def filters(self) -> list[str]:
        """A list comprehension, which is fastest, if the steps only choose among rows; else nothing."""
        self.scope = Scope()
        tests = []
        for step in self.steps:
            match step:
                case Filter():
                    test, self.known = self.scope.true(step.where, self.known)
                    tests.append(test)
                case Map() | Lookup():
                    return []
                case Select():
                    self._select(step)
        if not tests or not self._unchanged():
            return []
        return [f"    return [r for r in rows if {' and '.join(tests)}]"]

    def body(self) -> list[str]:
        self._steps(("return None",) if self.careful else ("continue",))
        self._finish()
        return self.lines

    def steps_inline(self) -> list[str]:
        """The steps alone, for `inline_chain`."""
        self._steps(("break",))
        return self.lines

    def _steps(self, let_go: Sequence[str]) -> None:
        for index, step in enumerate(self.steps):
            if self.careful:
                self.lines.append(f"at[0] = {index}")
            match step:
                case Filter():
                    test, self.known = self.scope.true(step.where, self.known)
                    self.lines += [f"if not {test}:", *(f"    {line}" for line in let_go)]
                case Map():
                    self._map(step)
                case Select():
                    self._select(step)
                case Lookup():
                    self._lookup(step, index, let_go)

    def _map(self, step: Map) -> None:
        made, sure = {}, set()
        for name, expression in step.set.items():
            code = self.scope.value_of(expression, self.known)
            variable = made[name] = self.scope.fresh()
            self.lines += [f"{variable} = {code}", *_bound(variable, expression, code)]
            if not self.scope.strict(expression, self.known)[0]:
                sure.add(variable)
            if type_of(expression) is Type.NUMBER:
                sure.add(known_number(variable))
        self.scope.computed.update(made)
        self.known |= sure

    def _lookup(self, step: Lookup, index: int, let_go: Sequence[str]) -> None:
        names = self.scope.globals
        names[f"find{index}"] = step.table.get
        found = self.scope.fresh()
        self.lines += [f"{found} = find{index}({self.scope.value(step.key, self.known)})", f"if {found} is None:"]
        if step.drop:
            self.lines += [f"    {line}" for line in (self.missing.format(index), *let_go)]
        else:
            names[f"nothing{index}"] = (None,) * len(step.fields)
            self.lines.append(f"    {found} = nothing{index}")
        made = {name: self.scope.fresh() for name in step.fields}
        self.lines.append(f"{''.join(f'{variable}, ' for variable in made.values())}= {found}")
        self.scope.computed.update(made)

    def _select(self, step: Select) -> None:
        names = frozenset(step.fields) | {"time", "source"}
        self.scope.only = names if self.scope.only is None else self.scope.only & names
        for name in self.scope.computed.keys() - names:
            # What the row brought under this name was replaced, so it is gone, too (`only` leaves it out).
            del self.scope.computed[name]

    def layout(self) -> Layout:
        """Behind all steps."""
        if self._unchanged():
            return [], None
        live, only = self.live, self.scope.only
        made = [name for name in self.scope.computed if live is None or name in live]
        if only is None:
            return made, None
        kept = only - self.scope.computed.keys()
        return made, sorted(kept if live is None else kept & live, key=lambda n: (n != "time", n != "source", n))

    def _finish(self) -> None:
        give = "return {}" if self.careful else "append({})"
        if self._unchanged():
            self.lines.append(give.format("r"))
            return
        names_made, through = self.layout()
        made = {name: self.scope.computed[name] for name in names_made}
        computed = [f"{name!r}: {variable}" for name, variable in made.items()]
        if through is None:
            # a third less than {**r, ...}
            self.lines += ["row = r.copy()", *(f"row[{n!r}] = {v}" for n, v in made.items()), give.format("row")]
            return
        parts = [f"{name!r}: {self._present(name)}" for name in through] + computed
        names = "(" + "".join(f"{n!r}, " for n in through) + ")"
        rest = "".join(", " + c for c in computed)
        self.lines += [
            "try:",
            "    row = {" + ", ".join(parts) + "}",
            "except KeyError:  # not every row has every field",
            f"    row = {{**{{k: r[k] for k in {names} if k in r}}{rest}}}",
            give.format("row"),
        ]

    def _unchanged(self) -> bool:
        """True if the row itself may be handed on: nobody behind would see a difference."""
        only, live, computed = self.scope.only, self.live, self.scope.computed.keys()
        if live is None:
            return only is None and not computed
        return not computed & live and (only is None or live <= only)

    def _present(self, name: str) -> str:
        variable = self.scope.variables.get(name, "")
        return variable if variable in self.known else f"r[{name!r}]"


def _bound(variable: str, expression: Expression, code: str) -> list[str]:
    """Lines that see to it that a result is finite and fits 64 bits."""
    if _is_given(expression) or type_of(expression) in (Type.BOOLEAN, Type.STRING):
        return []
    if type_of_shallow(expression) is Type.NUMBER:
        null = f"{variable} is not None and " if code.endswith(" else None)") else ""
        return [f"if {null}not -9.2e18 < {variable} < 9.2e18:", f"    {variable} = bounded({variable})"]
    return [f"{variable} = bounded({variable})"]


def _is_given(expression: Expression) -> bool:
    """True if its value is one that a field has, or that the expression names."""
    match expression:
        case Field() | Literal():
            return True
        case Call(function="if", arguments=(_, *choices)) | Call(function="coalesce", arguments=choices):
            return all(map(_is_given, choices))
    return False
