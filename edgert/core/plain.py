"""Values that JSON and MessagePack can both hold: what documents may consist of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from edgert.core.errors import Problem, show


def not_plain(value: Any, path: str = "") -> Iterator[Problem]:
    """Where `value` holds something else: TOML has dates and times, and any length of integer."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not is_text(key):
                yield Problem(path, "names of UTF-8 text", show(key))
            yield from not_plain(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from not_plain(item, f"{path}[{at}]")
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            yield Problem(path, "an integer of 64 bits (or a decimal number: 1e30)", show(value))
    elif isinstance(value, str):
        if not is_text(value):
            yield Problem(path, "text that UTF-8 can carry (half a surrogate pair it cannot)", show(value))
    elif value is not None and not isinstance(value, float):
        yield Problem(path, "a string, a number, true, false, a list or a table", show(value))


def is_text(value: Any) -> TypeGuard[str]:
    """True for a string that UTF-8 can carry: half a surrogate pair it cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_integer(value: Any) -> TypeGuard[int]:
    """True for an integer; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_texts(value: Any) -> TypeGuard[list[str]]:
    """True for a list of strings."""
    return isinstance(value, list) and all(isinstance(v, str) for v in value)
