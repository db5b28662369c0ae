"""Static types of expressions: what can never work is refused before a flow starts.

A field's type is known only at run time (`any`), so this finds contradictions, such as `"a" + 1`, `not "x"`, or a
comparison of a string with a number; a row whose value has the wrong type is found when it comes.
"""

from __future__ import annotations

from difflib import get_close_matches

from edgert.expr.functions import FUNCTIONS, Type
from edgert.expr.tree import (
    Arithmetic,
    Call,
    Comparison,
    Expression,
    InList,
    Literal,
    LogicalOperation,
    Negation,
    Not,
)

_A = {Type.NUMBER: "a number", Type.STRING: "a string", Type.BOOLEAN: "a boolean", Type.NULL: "null", Type.ANY: "any"}


class TypeFault(ValueError):
    """A contradiction at `node`; the message is "expected ..., got ..."."""

    def __init__(self, node: Expression, expected: str, got: str) -> None:
        super().__init__(f"expected {expected}, got {got}")
        self.node = node


def type_of(expression: Expression) -> Type:
    """The static type of `expression`; raises `TypeFault` (a ValueError) at the first contradiction in it."""
    match expression:
        case Literal():
            return _literal(expression.value)
        case Negation():
            _demand(expression.operand, Type.NUMBER, "after -")
            return Type.NUMBER
        case Arithmetic():
            for operand in expression.children():
                _demand(operand, Type.NUMBER, f"beside {expression.operator}")
            return Type.NUMBER
        case Comparison():
            _comparison(expression)
            return Type.BOOLEAN
        case InList():
            _membership(expression)
            return Type.BOOLEAN
        case LogicalOperation():
            for operand in expression.operands:
                _demand(operand, Type.BOOLEAN, f"beside {expression.operator}")
            return Type.BOOLEAN
        case Not():
            _demand(expression.operand, Type.BOOLEAN, "after not")
            return Type.BOOLEAN
        case Call():
            return _call(expression)
    return Type.ANY


def type_of_shallow(e: Expression) -> Type:
    """BOOLEAN or NUMBER where the node alone says so; ANY otherwise (constant time, unlike `type_of`)."""
    match e:
        case Comparison() | InList() | LogicalOperation() | Not():
            return Type.BOOLEAN
        case Negation() | Arithmetic():
            return Type.NUMBER
        case Literal():
            return type_of(e)
        case Call():
            return FUNCTIONS[e.function].returns
    return Type.ANY


def demand_boolean(expression: Expression) -> None:
    """Raise ValueError unless `expression` can be a condition."""
    _demand(expression, Type.BOOLEAN, "as condition")


def _literal(value: object) -> Type:
    if value is None:
        return Type.NULL
    if isinstance(value, bool):
        return Type.BOOLEAN
    return Type.STRING if isinstance(value, str) else Type.NUMBER


def _demand(operand: Expression, wanted: Type, where: str) -> None:
    _accept(operand, type_of(operand), wanted, where)


def _accept(operand: Expression, got: Type, wanted: Type, where: str) -> None:
    if got not in (wanted, Type.ANY) and wanted is not Type.ANY:
        raise TypeFault(operand, f"{_A[wanted]} {where}", _A[got])


def _comparison(expression: Comparison) -> None:
    types = [type_of(o) for o in expression.operands]
    for node, got in zip(expression.operands, types, strict=True):
        if got is Type.NULL:
            raise TypeFault(node, "a value to compare with (is_null(x) asks for null)", "null")
    for i, operator in enumerate(expression.operators):
        left, right, node = types[i], types[i + 1], expression.operands[i + 1]
        if operator not in ("==", "!=") and Type.BOOLEAN in (left, right):
            raise TypeFault(node, f"numbers or strings beside {operator}", "a boolean")
        if Type.ANY not in (left, right) and left is not right:
            raise TypeFault(node, f"{_A[left]} to compare with {_A[left]}", _A[right])
        if operator != "!=" and right is Type.ANY:  # as in 1 < x < 'a': x is what it has to be on its left
            types[i + 1] = left


def _membership(expression: InList) -> None:
    wanted = type_of(expression.operand)
    if wanted is Type.NULL:
        raise TypeFault(expression.operand, "a value before in", "null")
    for option in expression.options:
        got = type_of(option)
        if got is Type.NULL:
            raise TypeFault(option, "numbers, strings or booleans in the list", "null")
        if wanted is not Type.ANY and got is not wanted:
            raise TypeFault(option, f"{_A[wanted]} in the list", _A[got])


def _call(expression: Call) -> Type:
    known = FUNCTIONS.get(expression.function)
    if known is None:
        near = get_close_matches(expression.function, FUNCTIONS, 1)
        hint = f"did you mean {near[0]}?" if near else ", ".join(sorted(FUNCTIONS))
        raise TypeFault(expression, f"a known function ({hint})", expression.function)
    count, most = len(expression.arguments), len(known.parameters)
    if count < known.required or (count > most and not known.variadic):
        more = " or more" if known.variadic else f" to {most}" if most > known.required else ""
        raise TypeFault(expression, f"{known.required}{more} argument(s) as in {known.signature}", f"{count}")
    types = [type_of(a) for a in expression.arguments]  # each once: twice per level would be exponential
    for i, (argument, got) in enumerate(zip(expression.arguments, types, strict=True)):
        _accept(argument, got, known.parameters[min(i, most - 1)], f"as argument {i + 1} of {known.name}")
    if known.name in ("coalesce", "if"):
        return _common(types[1:] if known.name == "if" else types)
    return known.returns


def _common(types: list[Type]) -> Type:
    """The one type of several possible values: nulls aside, the same for all, else any."""
    some = set(types) - {Type.NULL}
    if not some:
        return Type.NULL
    return some.pop() if len(some) == 1 else Type.ANY
