"""Operators as lines of one generated function (`edgert.operators.fusion.compiled_region`).

In that function a row is a few local variables.

Each operator writes its lines as if it were alone, and knows of nobody else but the row that it gets: `alone` gives
all other names in them an end of their own.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from edgert.codecs.shapes import OfTopic
from edgert.operators.base.logic import Logic, foreign

TimeUse = Literal["heeds", "passes", "ignores"]
_COMMON: Final = frozenset(dir(builtins))


@dataclass(frozen=True, slots=True)
class Fields:
    """A row as local variables."""

    variables: Mapping[str, str]
    """Variables by field, in the order in which the row has them, `time` and `source` among them."""
    sure: frozenset[str] = frozenset()
    """Variables that are never None."""
    finite: frozenset[str] = frozenset()
    """Variables that are floats within `GREATEST`, or None."""
    numbers: frozenset[str] = frozenset()
    """Other variables that are numbers, or None."""
    captured: Mapping[str, str] = field(default_factory=dict)
    """Variable → level of the topic from which it follows."""

    def of(self, name: str) -> str:
        """Code of a field's value."""
        return self.variables.get(name, "None")

    def key(self, names: Sequence[str]) -> str:
        """Code of a key, as `edgert.operators.base.fields.key_reader` reads it."""
        values = [self.of(name) for name in names]
        return f"({', '.join(values)})" if len(values) > 1 else (values or ["None"])[0]

    def floats(self) -> frozenset[str]:
        """The fields whose variables are `finite`."""
        return frozenset(name for name, variable in self.variables.items() if variable in self.finite)


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of an operator for a row."""

    check: Sequence[str] = ()
    """Come first, those of all operators before the first effect of any. They change nothing that another try would
    find changed, and raise for a row that the operator is to get in the ordinary way; `break` lets the row go."""
    effect: Sequence[str] = ()
    """For a row that was not let go. They never raise."""
    gone: Sequence[str] = ()
    """For one that was."""
    row: Fields | None = None
    """The row that the operator gives by its port 0 at once."""
    setup: Sequence[str] = ()
    """Before the first row of a batch."""
    finish: Sequence[str] = ()
    """Behind the last."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    count: Callable[[int], None] | None = None
    """Function that is told then how many rows came."""
    of_topic: Mapping[str, OfTopic] = field(default_factory=dict)
    """Variables that follow from what is captured of the topic."""

    @property
    def lets_go(self) -> bool:
        """True if a row may go no further."""
        return any(line.strip() == "break" for line in self.check)


class Inlinable(Logic):
    """Logic that may be asked for `inline`."""

    at_once = False
    """True if its lines give a row on. If not, what rows complete is given by the next call of `process`."""

    def inlines(self, source: int) -> bool:
        """True if rows by that input may go through its lines: they do what `process` does with a batch of such rows
        that brings no watermark."""
        return True

    @property
    def text_length(self) -> int:
        """Characters of its lines, about."""
        return 500

    def inline(self, row: Fields, source: int) -> Lines:
        """The lines for one row that comes by that input."""
        raise TypeError(f"{type(self).__name__} has no lines")

    def time_by(self, source: int) -> TimeUse:
        """The use of a watermark that comes by that input without rows."""
        return "passes"

    @property
    def completed(self) -> bool:
        """True if rows wait in it that `process` is to give."""
        return False


def time_use(logic: Logic, source: int) -> TimeUse:
    """The use of a watermark without rows by any logic. A logic of another package may use it."""
    return logic.time_by(source) if isinstance(logic, Inlinable) and not foreign(logic) else "heeds"


def alone(lines: Lines, row: Fields, end: str) -> Lines:
    """Appends `end` to each name in `lines` that is neither one of the `row` that the operator gets, nor Python's."""
    own = _Names(frozenset(row.variables.values()) | _COMMON, end)
    given = lines.row and Fields(
        {name: own.name(variable) for name, variable in lines.row.variables.items()},
        frozenset(map(own.name, lines.row.sure)),
        frozenset(map(own.name, lines.row.finite)),
        frozenset(map(own.name, lines.row.numbers)),
        lines.row.captured,
    )
    return Lines(
        own.lines(lines.check), own.lines(lines.effect), own.lines(lines.gone), given, own.lines(lines.setup),
        own.lines(lines.finish), {own.name(name): value for name, value in lines.constants.items()}, lines.count,
        {own.name(name): made for name, made in lines.of_topic.items()},
    )  # fmt: skip


class _Names(ast.NodeTransformer):
    def __init__(self, common: frozenset[str], end: str) -> None:
        self._common, self._end = common, end

    def name(self, name: str) -> str:
        """Gives a name that the generated code uses from now on."""
        return name if name in self._common else name + self._end

    def lines(self, lines: Sequence[str]) -> list[str]:
        """With other names."""
        return ast.unparse(self.visit(ast.parse("\n".join(lines)))).splitlines()

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """Works as `NodeTransformer`."""
        node.id = self.name(node.id)
        return node


def indented(lines: Sequence[str]) -> list[str]:
    """Indents lines, as the body of the statement before them."""
    return ["    " + line for line in lines]
