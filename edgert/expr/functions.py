"""The functions of expressions. To add one: write it here with its decorator; parser, compiler and docs follow.

Unless it says otherwise a function of null is null, and is not called. A function raises `ValueError` for a value
outside its domain, `TypeError` for a wrong type; the row is then dropped and counted. None may take long or make
something big: each is called per row with values from outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from edgert.core.text.spelled_number import spelled_number


class Type(Enum):
    """Static type of an expression. A field is ANY: it is known only when the row is there."""

    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"
    NULL = "null"
    ANY = "any"


NUMBER, STRING, BOOLEAN, ANY = Type.NUMBER, Type.STRING, Type.BOOLEAN, Type.ANY
MAX_TEXT: Final = 65_536
"""Longest string that a function makes, in characters."""


@dataclass(frozen=True, slots=True)
class Function:
    """One function: what it takes, what it gives, how it is called."""

    name: str
    doc: str
    parameters: tuple[Type, ...]
    """Types of the arguments; with `variadic` the last one repeats."""
    returns: Type
    call: Callable[..., Any]
    required: int
    """Least number of arguments."""
    variadic: bool = False
    special: bool = False
    """Sees nulls: the compiler has a rule of its own for it, and `call` is not used."""
    signature: str = ""


FUNCTIONS: Final[dict[str, Function]] = {}


def function(
    signature: str,
    parameters: tuple[Type, ...],
    returns: Type,
    *,
    optional: int = 0,
    variadic: bool = False,
    special: bool = False,
    doc: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function under the name that `signature` begins with; its docstring is the doc (a function
    of Python's own is told it, and called with nothing between: a call costs some 30 ns)."""

    def register(call: Callable[..., Any]) -> Callable[..., Any]:
        name = signature.partition("(")[0]
        text = " ".join((doc or call.__doc__ or "").split())
        required = len(parameters) - optional
        FUNCTIONS[name] = Function(
            name, text, parameters, returns, call, required, variadic, special, signature=signature
        )
        return call

    return register


function("abs(x)", (NUMBER,), NUMBER, doc="The amount of `x` without its sign.")(abs)


@function("round(x, digits)", (NUMBER, NUMBER), NUMBER, optional=1)
def _round(x: float, digits: float = 0) -> float:
    """`x` rounded to `digits` decimal places (default 0, -15 to 15); halves go to the even neighbour."""
    if not -15 <= digits <= 15:
        raise ValueError("digits outside -15 to 15")
    return round(x, int(digits))


function("floor(x)", (NUMBER,), NUMBER, doc="The greatest integer not above `x`.")(math.floor)


function("ceil(x)", (NUMBER,), NUMBER, doc="The least integer not below `x`.")(math.ceil)


function("sqrt(x)", (NUMBER,), NUMBER, doc="The square root; `x` must not be negative.")(math.sqrt)


function("exp(x)", (NUMBER,), NUMBER, doc="e to the power of `x`.")(math.exp)


function("log(x)", (NUMBER,), NUMBER, doc="The natural logarithm; `x` must be above 0.")(math.log)


function("log10(x)", (NUMBER,), NUMBER, doc="The logarithm to base 10; `x` must be above 0.")(math.log10)


@function("min(a, b, ...)", (NUMBER, NUMBER), NUMBER, variadic=True)
def _min(*values: float) -> float:
    """The least of the arguments; null if one of them is null."""
    return min(map(_number, values))


@function("max(a, b, ...)", (NUMBER, NUMBER), NUMBER, variadic=True)
def _max(*values: float) -> float:
    """The greatest of the arguments; null if one of them is null."""
    return max(map(_number, values))


@function("length(s)", (STRING,), NUMBER)
def _length(s: str) -> int:
    """The number of characters of a string."""
    return len(_string(s))


@function("lower(s)", (STRING,), STRING)
def _lower(s: str) -> str:
    """The string in small letters."""
    return _string(s).lower()


@function("upper(s)", (STRING,), STRING)
def _upper(s: str) -> str:
    """The string in capital letters."""
    return _string(s).upper()


@function("trim(s)", (STRING,), STRING)
def _trim(s: str) -> str:
    """The string without white space at its ends."""
    return _string(s).strip()


@function("starts_with(s, prefix)", (STRING, STRING), BOOLEAN)
def _starts_with(s: str, prefix: str) -> bool:
    """True if `s` begins with `prefix`."""
    return _string(s).startswith(prefix)


@function("contains(s, part)", (STRING, STRING), BOOLEAN)
def _contains(s: str, part: str) -> bool:
    """True if `part` occurs in `s`."""
    return _string(part) in _string(s)


@function("concat(a, b, ...)", (ANY, ANY), STRING, variadic=True)
def _concat(*values: Any) -> str:
    """The arguments as text, one after the other (at most 65,536 characters); null if one of them is null."""
    texts = [v if isinstance(v, str) else _text_of(v) for v in values]
    if sum(map(len, texts)) > MAX_TEXT:
        raise ValueError(f"text longer than {MAX_TEXT} characters")
    return "".join(texts)


@function("number(x, unit, decimal)", (ANY, STRING, STRING), NUMBER, optional=2)
def _to_number(x: Any, unit: str = "", decimal: str = ".") -> float:
    """`x` as a number: text is read as a decimal number, true is 1, false is 0. `unit` may stand behind the number
    (`number(power, 'W')` reads `230.1 W`). `decimal` is the decimal sign, `.` or `,`: `number(t, '', ',')` reads
    `21,5`."""
    if isinstance(x, str):
        if decimal not in (".", ","):
            raise ValueError("the decimal sign is neither . nor ,")
        value = spelled_number(x, (unit,), comma=decimal == ",") if len(x) <= 64 else None
        if value is None:
            raise ValueError("not a finite decimal number")
        return value
    return int(x) if isinstance(x, bool) else _number(x)


@function("is_null(x)", (ANY,), BOOLEAN, special=True)
def _is_null(x: Any) -> bool:
    """True if `x` is null (the field is absent or null); never null itself."""
    raise NotImplementedError


@function("coalesce(a, b, ...)", (ANY, ANY), ANY, variadic=True, special=True)
def _coalesce(*values: Any) -> Any:
    """The first argument that is not null; null if all are."""
    raise NotImplementedError


@function("if(condition, a, b)", (BOOLEAN, ANY, ANY), ANY, special=True)
def _if(condition: bool, a: Any, b: Any) -> Any:
    """`a` if the condition is true, `b` if it is false or null."""
    raise NotImplementedError


def _number(x: Any) -> float:
    if isinstance(x, int | float):
        return x
    raise TypeError(f"expected a number, got {type(x).__name__}")


def _string(x: Any) -> str:
    if isinstance(x, str):
        return x
    raise TypeError(f"expected a string, got {type(x).__name__}")


def _text_of(x: Any) -> str:
    if isinstance(x, bool):
        return "true" if x else "false"
    return str(_number(x))


def functions_markdown() -> str:
    """The table of all functions for the docs."""
    lines = ["| function | gives | meaning |", "|---|---|---|"]
    lines += [f"| `{f.signature}` | {f.returns.value} | {f.doc} |" for f in FUNCTIONS.values()]
    return "\n".join(lines) + "\n"
