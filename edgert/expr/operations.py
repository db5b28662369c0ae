"""How one operation is written in Python, where Python gives it another meaning for text or for booleans.

Python takes `True` for 1; here a boolean is no number. Where a number must stand, a value of unknown type is looked at
once, some 8 ns; a comparison does so only when it comes out as it would for a boolean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, Final

from edgert.expr.functions import Type
from edgert.expr.tree import Arithmetic, Comparison, Expression, InList, Literal
from edgert.expr.types import type_of_shallow

Bound = frozenset[str]
"""Local variables that are certainly bound and not None at this place of the code, and which of them, or of others,
are numbers if they are not None (`known_number`)."""
NULL: Final = "None"
EQUALITY: Final = ("==", "!=")
_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


def variables(known: Bound) -> Bound:
    """Without what is known of types."""
    return frozenset(name for name in known if name.isidentifier())


def known_number(code: str) -> str:
    """Key in `Bound` of a variable that is certainly a number, if it is not None."""
    return f"{code} is a number"


def is_number(part: Expression, code: str, known: Bound) -> bool:
    return type_of_shallow(part) is Type.NUMBER or known_number(code) in known


def as_numbers(
    parts: Sequence[Expression], codes: Sequence[str], known: Bound, which: Sequence[bool] = ()
) -> tuple[list[str], Bound]:
    """Codes that raise for a boolean, and what is known when that for which they must be numbers (all, or `which`) did
    not raise either, as it does for text."""
    checked, proven = [], set()
    for part, code, wanted in zip(parts, codes, which or [True] * len(codes), strict=True):
        found = code
        if wanted and type_of_shallow(part) is Type.ANY and code != NULL:
            proven.add(known_number(code))
            if known_number(code) not in known:
                found = f"({code} if {code} is not True and {code} is not False else wrong({code}))"
        checked.append(found)
    return checked, known | proven


def proven_by(e: Comparison, codes: Sequence[str]) -> Bound:
    """Operands that are numbers if the first pair of a chain did not raise: those that were ordered with a number."""
    if e.operators[0] in EQUALITY or Type.NUMBER not in map(type_of_shallow, e.operands[:2]):
        return frozenset()
    return frozenset(known_number(code) for code in codes[:2])


def in_order(operator: str, parts: Sequence[Expression], codes: Sequence[str], known: Bound) -> tuple[str, Bound]:
    """A comparison of two numbers or two strings, and what is known where it holds. Beside a constant it is enough to
    look when it comes out as it would for a boolean."""
    if Type.STRING in map(type_of_shallow, parts):
        return f"{codes[0]} {operator} {codes[1]}", known
    checked, after = as_numbers(parts, codes, known)
    at = 1 if isinstance(parts[0], Literal) else 0
    constant, value = parts[1 - at], codes[at]
    if isinstance(constant, Literal) and checked[at] != value:
        order = _ORDERS[operator]
        outcomes = {order(constant.value, b) if at else order(b, constant.value) for b in (True, False)}
        if outcomes == {True}:
            look = f"and ({value} is not True and {value} is not False or wrong({value}))"
        else:
            look = f"or ({value} is True or {value} is False) and wrong({value})"
        if len(outcomes) == 1:
            return f"({codes[0]} {operator} {codes[1]} {look})", after
    return f"{checked[0]} {operator} {checked[1]}", after


def equality(operator: str, parts: Sequence[Expression], codes: Sequence[str], known: Bound) -> str:
    """Code of an equality of value and type: Python's equality alone ignores types."""
    a, b = codes
    types = [type_of_shallow(part) for part in parts]
    plain = f"{a} {operator} {b}"
    if Type.ANY not in types or Type.STRING in types or NULL in codes:
        return plain
    if Type.BOOLEAN in types:
        return f"{a} {'is' if operator == '==' else 'is not'} {b}"
    if Type.NUMBER in types:
        value, other = (a, parts[1]) if types[0] is Type.ANY else (b, parts[0])
        alike = _booleans_like([other.value]) if isinstance(other, Literal) else ["True", "False"]
        return plain if known_number(value) in known else _unless(plain, value, alike, operator == "!=")
    same = f"({a} is True or {a} is False) is ({b} is True or {b} is False)"
    return f"({plain} and {same})" if operator == "==" else f"({plain} or not {same})"


def membership(e: InList, code: str) -> str:
    options = [option.value for option in e.options]
    booleans = [option for option in options if isinstance(option, bool)]
    if type_of_shallow(e.operand) is not Type.ANY or not (booleans or _booleans_like(options)):
        booleans, others = [], options
    else:
        others = [option for option in options if not isinstance(option, bool)]
    word = "not in" if e.negated and not booleans else "in"
    plain = f"{code} {word} ({''.join(f'{option!r}, ' for option in others)})"
    alike = _booleans_like(others) if type_of_shallow(e.operand) is Type.ANY else []
    test = _unless(plain, code, alike, word == "not in")
    if not booleans:
        return f"({test})"
    either = " or ".join([test, *(f"{code} is {option}" for option in booleans)])
    return f"(not ({either}))" if e.negated else f"({either})"


def _booleans_like(values: Sequence[Any]) -> list[str]:
    """The booleans that Python takes for one of these numbers."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return [repr(boolean) for boolean in (True, False) if boolean in numbers]


def _unless(test: str, code: str, booleans: Sequence[str], negated: bool) -> str:
    """A test that takes some booleans for numbers, without that."""
    word, sign = ("or", "is") if negated else ("and", "is not")
    more = "".join(f" {word} {code} {sign} {boolean}" for boolean in booleans)
    return f"({test}{more})" if more else test


def arithmetic(e: Arithmetic, codes: Sequence[str], numbers: Sequence[bool]) -> str:
    """Python's operator; `numbers`: which operands certainly are some.

    `"x" * 10**9` would fill the memory and `"%99999999d" % 1` too, so an operand whose type is not known passes
    through unary plus, which text does not have (about 10 ns; it raises TypeError as the other operators do).
    """
    a, b = codes
    unknown_a, unknown_b = (not number for number in numbers)
    match e.operator:
        case "**":
            return f"power({a}, {b})"
        case "*":
            real = any(isinstance(x, Literal) and isinstance(x.value, float) for x in (e.left, e.right))
            a = f"(+{a})" if unknown_a and not real else a
            b = f"(+{b})" if unknown_b and not real else b
        case "%":
            a = f"(+{a})" if unknown_a else a
        case "+":
            a = f"(+{a})" if unknown_a and unknown_b else a
    return f"({a} {e.operator} {b})"
