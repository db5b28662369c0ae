"""Tree to text: the canonical form, with the fewest parentheses. `parse(to_text(e)) == e`."""

from __future__ import annotations

from edgert.expr.parse import _INSTEAD, NAME, WORDS
from edgert.expr.tree import (
    Arithmetic,
    Call,
    Comparison,
    Expression,
    Field,
    InList,
    Literal,
    LogicalOperation,
    Negation,
    Not,
)

_OR, _AND, _NOT, _COMPARE, _SUM, _TERM, _UNARY, _POWER, _ATOM = range(1, 10)
_BINDS = {"+": _SUM, "-": _SUM, "*": _TERM, "/": _TERM, "%": _TERM, "**": _POWER}


def to_text(expression: Expression) -> str:
    """The text of `expression`, as `parse` reads it."""
    return _write(expression)[0]


def _write(expression: Expression) -> tuple[str, int]:
    """The text, and how tightly its outermost operator binds."""
    match expression:
        case Literal():
            text = _literal(expression.value)
            return text, _UNARY if text.startswith("-") else _ATOM
        case Field():
            return field_text(expression.name), _ATOM
        case Negation():
            # A minus before a number would be read as a negative number.
            inner = _inside(expression.operand, _UNARY)
            return f"-({inner})" if isinstance(expression.operand, Literal) else f"-{inner}", _UNARY
        case Arithmetic():
            return _arithmetic(expression)
        case Comparison():
            parts = [_inside(o, _SUM) for o in expression.operands]
            chain = "".join(f" {op} {part}" for op, part in zip(expression.operators, parts[1:], strict=True))
            return parts[0] + chain, _COMPARE
        case InList():
            options = ", ".join(_literal(o.value) for o in expression.options)
            word = "not in" if expression.negated else "in"
            return f"{_inside(expression.operand, _SUM)} {word} [{options}]", _COMPARE
        case LogicalOperation():
            binds = _OR if expression.operator == "or" else _AND
            return f" {expression.operator} ".join(_inside(o, binds + 1) for o in expression.operands), binds
        case Not():
            return f"not {_inside(expression.operand, _NOT)}", _NOT
        case Call():
            return f"{expression.function}({', '.join(map(to_text, expression.arguments))})", _ATOM
    raise TypeError(f"expected a node of the expression tree, got {type(expression).__name__}")


def _arithmetic(expression: Arithmetic) -> tuple[str, int]:
    binds = _BINDS[expression.operator]
    if binds == _POWER:  # binds to the right, and more tightly than a minus before it but not after it
        return f"{_inside(expression.left, _ATOM)} ** {_inside(expression.right, _UNARY)}", _POWER
    left, right = _inside(expression.left, binds), _inside(expression.right, binds + 1)
    return f"{left} {expression.operator} {right}", binds


def _inside(expression: Expression, least: int) -> str:
    text, binds = _write(expression)
    return text if binds >= least else f"({text})"


def field_text(name: str) -> str:
    """A field name as it is written in an expression: in backticks unless it is words with dots between them."""
    plain = NAME.fullmatch(name) and name not in WORDS and name not in _INSTEAD
    return name if plain else f"`{name}`"


def _literal(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + "".join(c if c.isprintable() or ord(c) > 0xFFFF else f"\\u{ord(c):04x}" for c in text) + "'"
