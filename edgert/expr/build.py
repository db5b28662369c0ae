"""Expressions in Python: `field("temperature") * 9 / 5 + 32` builds the same tree as the text does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from edgert.expr.text import to_text
from edgert.expr.tree import (
    Arithmetic,
    Call,
    Comparison,
    Expression,
    Field,
    InList,
    Literal,
    Not,
    Value,
    join,
    negate,
)
from edgert.expr.types import type_of


class Term:
    """An expression under construction. `&`, `|`, `~` stand for and, or, not; comparisons give terms."""

    __slots__ = ("expression",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expression: Expression) -> None:
        type_of(expression)
        self.expression = expression

    def __str__(self) -> str:
        return to_text(self.expression)

    def __repr__(self) -> str:
        return f"<expression {self}>"

    def to_document(self) -> str:
        """Returns the expression as a flow document writes it."""
        return str(self)

    def __bool__(self) -> NoReturn:
        raise TypeError("expected & | ~ between expressions (in place of and, or, not), got a test for truth")

    def __neg__(self) -> Term:
        return Term(negate(self.expression))

    def __invert__(self) -> Term:
        return Term(Not(self.expression))

    def __and__(self, other: Term | bool) -> Term:
        return Term(join("and", (self.expression, _expression(other))))

    def __or__(self, other: Term | bool) -> Term:
        return Term(join("or", (self.expression, _expression(other))))

    def __add__(self, other: Term | float) -> Term:
        return _arithmetic("+", self, other)

    def __radd__(self, other: float) -> Term:
        return _arithmetic("+", other, self)

    def __sub__(self, other: Term | float) -> Term:
        return _arithmetic("-", self, other)

    def __rsub__(self, other: float) -> Term:
        return _arithmetic("-", other, self)

    def __mul__(self, other: Term | float) -> Term:
        return _arithmetic("*", self, other)

    def __rmul__(self, other: float) -> Term:
        return _arithmetic("*", other, self)

    def __truediv__(self, other: Term | float) -> Term:
        return _arithmetic("/", self, other)

    def __rtruediv__(self, other: float) -> Term:
        return _arithmetic("/", other, self)

    def __mod__(self, other: Term | float) -> Term:
        return _arithmetic("%", self, other)

    def __rmod__(self, other: float) -> Term:
        return _arithmetic("%", other, self)

    def __pow__(self, other: Term | float) -> Term:
        return _arithmetic("**", self, other)

    def __rpow__(self, other: float) -> Term:
        return _arithmetic("**", other, self)

    def __lt__(self, other: Term | float | str) -> Term:
        return self._compare("<", other)

    def __le__(self, other: Term | float | str) -> Term:
        return self._compare("<=", other)

    def __gt__(self, other: Term | float | str) -> Term:
        return self._compare(">", other)

    def __ge__(self, other: Term | float | str) -> Term:
        return self._compare(">=", other)

    def __eq__(self, other: object) -> Term:  # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: object) -> Term:  # type: ignore[override]
        return self._compare("!=", other)

    def between(self, low: Term | float | str, high: Term | float | str) -> Term:
        """`low <= this <= high`."""
        operands = (_expression(low), self.expression, _expression(high))
        return Term(Comparison(("<=", "<="), operands))

    def is_in(self, options: Iterable[float | str | bool]) -> Term:
        """A condition: the value equals one of the constants."""
        return Term(InList(self.expression, tuple(Literal(o) for o in options)))

    def is_null(self) -> Term:
        """A condition: the value is null, or the field absent."""
        return Term(Call("is_null", (self.expression,)))

    def _compare(self, operator: str, other: object) -> Term:
        return Term(Comparison((operator,), (self.expression, _expression(other))))


def field(name: str) -> Term:
    """The field `name` of the row."""
    return Term(Field(name))


def call(function: str, *arguments: Term | Value) -> Term:
    """A registered function: `call("sqrt", field("x"))`."""
    return Term(Call(function, tuple(map(_expression, arguments))))


def _expression(value: object) -> Expression:
    if isinstance(value, Term):
        return value.expression
    if value is None or isinstance(value, bool | int | float | str):
        return Literal(value)
    raise TypeError(f"expected an expression, a number, a string or a boolean, got {type(value).__name__}")


def _arithmetic(operator: str, left: Term | float, right: Term | float) -> Term:
    return Term(Arithmetic(operator, _expression(left), _expression(right)))
