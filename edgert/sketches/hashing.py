"""A value of a row as 64 bits, the same on every machine and in every process."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from xxhash import xxh3_64_intdigest

_DOUBLE: Final = Struct("<d").pack
_KINDS: Final = 4
"""Seeds are spread over the kinds of value, so that "1", 1 and true are three values."""


def hash_of(value: Any, seed: int = 0) -> int | None:
    """64 bits of a string, number, boolean or a tuple of them; None for what is no value (null, NaN, a list).

    Numbers that are equal have one hash, as `1` and `1.0` are one value to an expression.
    """
    kind = type(value)
    if kind is str:
        return int(xxh3_64_intdigest(value.encode("utf-8", "surrogatepass"), seed * _KINDS))
    if kind is float or kind is int:
        return _of_number(value, seed * _KINDS + 1) if value == value else None
    if kind is bool:
        return int(xxh3_64_intdigest(b"\1" if value else b"\0", seed * _KINDS + 2))
    if kind is tuple:
        parts = [hash_of(part, seed) for part in value]
        if all(part is None for part in parts):
            return None
        joined = b"".join([b"-" if part is None else b"+" + part.to_bytes(8, "little") for part in parts])
        return int(xxh3_64_intdigest(joined, seed * _KINDS + 3))
    return None


def _of_number(value: float, seed: int) -> int:
    try:
        double = float(value)
    except OverflowError:
        double = 0.0
    # + 0.0: there is one zero; an integer that no double equals is told by its digits
    return int(xxh3_64_intdigest(_DOUBLE(double + 0.0) if double == value else b"%d" % value, seed))
