"""The key of a row: one value per key field, each in the type that its table column has.

`1`, `1.0` and `True` are one key to a dict; so a value of another type is converted before it is looked up, or the row
is counted as one with a bad key. Otherwise whoever comes first would decide what a key looks like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from edgert.flow.spec import ANY


class BadKey(Exception):
    """A value that has no form in the type of its key field."""


def _long(value: Any) -> int:
    number = int(value)
    if isinstance(value, float) and number != value:
        raise ValueError("would be cut")
    if not -(2**63) <= number < 2**63:
        raise ValueError("beyond 64 bits")
    return number


def _double(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("NaN never equals itself")
    return number + 0.0  # no -0.0


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("would be guessed")
    return value


AS_KEY: Final[Mapping[str, Callable[[Any], Any]]] = {
    "string": str,
    "double": _double,
    "long": _long,
    "boolean": _boolean,
}
_AS_IT_IS: Final = {
    "string": "type({k}) is str",
    "double": "type({k}) is float and {k} - {k} == 0.0",
    "long": f"type({{k}}) is int and {-(2**63)} <= {{k}} < {2**63}",
    "boolean": "type({k}) is bool",
}
"""Which values are of the type already."""


def _converter(kind: str) -> Callable[[Any], Any]:
    convert = AS_KEY[kind]

    def as_key(value: Any) -> Any:
        try:
            return convert(value)
        except (ValueError, TypeError, OverflowError):
            raise BadKey from None

    return as_key


CONSTANTS: Final[Mapping[str, Any]] = {"BadKey": BadKey} | {f"as_{kind}": _converter(kind) for kind in AS_KEY}
"""Constants of the lines below."""


def key_source(keys: Sequence[tuple[str, str]]) -> list[str]:
    """Lines that make `key` of k0, k1, ..., the values of the key fields; for a bad one they raise `BadKey`."""
    lines = []
    for number, (name, kind) in enumerate(keys):
        if _may_fail(name, kind):
            k = f"k{number}"
            lines.append(f"if {k} is not None and not ({_AS_IT_IS[kind].format(k=k)}):")
            lines.append(f"    {k} = as_{kind}({k})")
    parts = [f"k{number}" for number in range(len(keys))]
    key = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
    return [*lines, f"key = {key}"]


def may_fail(keys: Sequence[tuple[str, str]]) -> bool:
    """True if the lines of `key_source` may raise `BadKey`."""
    return any(_may_fail(name, kind) for name, kind in keys)


def _may_fail(name: str, kind: str) -> bool:
    return kind != ANY and (name != "source" or kind != "string")  # a row's source is a string
