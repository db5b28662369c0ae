"""The key of a row: one value per key field, each in the type that its table column has.

`1`, `1.0` and `True` are one key to a dict; so a value of another type is converted before it is looked up, or the row
is counted as one with a bad key. Otherwise whoever comes first would decide what a key looks like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final


class BadKey(Exception):
    """A value that has no form in the type of its key field."""


def _long(value: Any) -> int:
    number = int(value)
    if isinstance(value, float) and number != value:
        raise ValueError("would be cut")
    return number


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("would be guessed")
    return value


AS_KEY: Final[Mapping[str, Callable[[Any], Any]]] = {
    "string": str,
    "double": lambda value: float(value) + 0.0,  # no -0.0
    "long": _long,
    "boolean": _boolean,
}
_TYPES: Final = {"string": "str", "double": "float", "long": "int", "boolean": "bool"}


def _converter(kind: str) -> Callable[[Any], Any]:
    convert = AS_KEY[kind]

    def as_key(value: Any) -> Any:
        try:
            return convert(value)
        except (ValueError, TypeError, OverflowError):
            raise BadKey from None

    return as_key


CONSTANTS: Final[Mapping[str, Any]] = {"BadKey": BadKey} | {f"as_{kind}": _converter(kind) for kind in AS_KEY}
"""What the lines below name."""


def key_source(keys: Sequence[tuple[str, str]]) -> list[str]:
    """Lines that make `key` of k0, k1, ..., the values of the key fields; for a bad one they raise `BadKey`."""
    lines = []
    for number, (name, kind) in enumerate(keys):
        if name != "source" or kind != "string":  # a row's source is a string
            lines.append(f"if type(k{number}) is not {_TYPES[kind]} and k{number} is not None:")
            lines.append(f"    k{number} = as_{kind}(k{number})")
    parts = [f"k{number}" for number in range(len(keys))]
    key = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
    return [*lines, f"key = {key}"]
