"""The expression tree: immutable nodes, bounded in depth and size wherever they come from.

Meaning of the nodes (SQL's, so that a flow and Spark agree): a field that is absent or None is **null**; arithmetic,
comparisons and most functions of null are null; `and`, `or` and `not` are three-valued.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MAX_DEPTH: Final = 32
"""Levels of nesting. The generated Python stays far below CPython's limit of 200 nested parentheses."""
MAX_SIZE: Final = 4096
"""Nodes in one tree, counted as often as they occur: a tree that shares its branches is no way around the bound."""
MAX_INTEGER: Final = 2**63
Value = int | float | str | bool | None


@dataclass(frozen=True)
class Expression:
    """Base of all nodes. Equality is by structure."""

    depth: int = field(init=False, compare=False, repr=False, default=1)
    size: int = field(init=False, compare=False, repr=False, default=1)

    def __post_init__(self) -> None:
        children = self.children()
        depth = 1 + max((c.depth for c in children), default=0)
        size = 1 + sum(c.size for c in children)
        if depth > MAX_DEPTH:
            raise ValueError(f"expected at most {MAX_DEPTH} levels of nesting, got more")
        if size > MAX_SIZE:
            raise ValueError(f"expected at most {MAX_SIZE} parts, got {size}")
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "size", size)

    def children(self) -> tuple[Expression, ...]:
        """The direct parts, from left to right."""
        return ()


@dataclass(frozen=True)
class Literal(Expression):
    """A constant: a finite number, a string, true, false or null."""

    value: Value

    def __post_init__(self) -> None:
        value = self.value
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError("expected text, got a string with half a surrogate pair") from None
        elif isinstance(value, float) and not abs(value) <= 1e308:
            raise ValueError(f"expected a number of at most 1e308, got {value}")
        elif isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise ValueError("expected an integer of at most 2**63, got a greater one (write it as 1e20)")
        super().__post_init__()


@dataclass(frozen=True)
class Field(Expression):
    """The value of a field of the row."""

    name: str

    def __post_init__(self) -> None:
        check_field_name(self.name)
        super().__post_init__()


@dataclass(frozen=True)
class Negation(Expression):
    """Minus."""

    operand: Expression

    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)


@dataclass(frozen=True)
class Arithmetic(Expression):
    """`operator` is one of + - * / % **."""

    operator: str
    left: Expression
    right: Expression

    def children(self) -> tuple[Expression, ...]:
        return (self.left, self.right)


@dataclass(frozen=True)
class Comparison(Expression):
    """A chain as in `1 < x <= 5`: one operator (< <= > >= == !=) between each two operands. Null if any operand is."""

    operators: tuple[str, ...]
    operands: tuple[Expression, ...]

    def children(self) -> tuple[Expression, ...]:
        return self.operands


@dataclass(frozen=True)
class InList(Expression):
    """`operand in [...]`; the options are constants other than null."""

    operand: Expression
    options: tuple[Literal, ...]
    negated: bool = False

    def children(self) -> tuple[Expression, ...]:
        return (self.operand, *self.options)


@dataclass(frozen=True)
class LogicalOperation(Expression):
    """`and` or `or` of two or more operands."""

    operator: str
    operands: tuple[Expression, ...]

    def children(self) -> tuple[Expression, ...]:
        return self.operands


@dataclass(frozen=True)
class Not(Expression):
    """`not`."""

    operand: Expression

    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)


@dataclass(frozen=True)
class Call(Expression):
    """A registered function (see `edgert.expr.functions`)."""

    function: str
    arguments: tuple[Expression, ...]

    def children(self) -> tuple[Expression, ...]:
        return self.arguments


def check_field_name(name: str) -> None:
    """Raise ValueError unless `name` can be a field: 1 to 255 printable characters without backticks."""
    if not 1 <= len(name) <= 255:
        raise ValueError(f"expected a field name of 1 to 255 characters, got {len(name)}")
    if "`" in name or not name.isprintable():
        raise ValueError(f"expected a field name of printable characters without backticks, got {name!r}")


def negate(operand: Expression) -> Expression:
    """Minus `operand`; the minus of a number is a number."""
    if isinstance(operand, Literal) and isinstance(operand.value, int | float) and not isinstance(operand.value, bool):
        return Literal(-operand.value)
    return Negation(operand)


def join(operator: str, operands: tuple[Expression, ...]) -> Expression:
    """`and`/`or` of the operands; nested ones of the same operator become one."""
    flat: list[Expression] = []
    for operand in operands:
        same = isinstance(operand, LogicalOperation) and operand.operator == operator
        flat.extend(operand.children() if same else (operand,))
    return LogicalOperation(operator, tuple(flat))


def fields(expression: Expression) -> frozenset[str]:
    """The names of all fields that the expression looks at."""
    if isinstance(expression, Field):
        return frozenset((expression.name,))
    return frozenset().union(*(fields(c) for c in expression.children()))
