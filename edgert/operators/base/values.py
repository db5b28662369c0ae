"""Values that rows may hold: those that a checkpoint, a link between slots and a result can carry. Values of an
operator of another package are converted where that is possible (a scalar of numpy); any other value costs its row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

from edgert.core.batch import Row
from edgert.core.errors import show
from edgert.core.packing import within_64_bits

HELD: Final = "a boolean, a number, text, bytes, a list or dict of such, or None"
LEAST: Final = -(2**63)
BEYOND: Final = 2**64
"""From one to before the other are the integers of MessagePack; what is none of these becomes a float."""
DEEPEST: Final = 256
"""Lists and dicts within each other."""
_SURE: Final = frozenset((float, bool, bytes, type(None)))
_BARE: Final[Mapping[type, Callable[[Any], Any]]] = {
    int: int.__int__, float: float.__float__, str: str.__str__, bytes: bytes,
}  # fmt: skip
"""Conversions of subclasses to these types: a member of an enumeration, a `numpy.float64`."""


class UnusableValues(dict[str, tuple[int, Any]]):
    """The number of values by field that were neither null nor usable by the operator, and the newest."""

    def note(self, field: str, value: object) -> None:
        self[field] = self.get(field, (0, None))[0] + 1, value


def plain_rows(rows: list[Any], faults: list[tuple[Any, BaseException]]) -> list[Row]:
    """Rows, of `rows`, that hold what rows may hold, or can be made to: `rows` itself if all do. None is changed, since
    others may have it too. The rest goes to `faults`, with what is wrong."""
    kept: list[Row] | None = None
    for at, row in enumerate(rows):
        if type(row) is dict:
            for name, value in row.items():
                kind = type(value)
                if not (
                    (kind in _SURE or (kind is str and value.isascii()) or (kind is int and LEAST <= value < BEYOND))
                    and type(name) is str and name.isascii()
                ):  # fmt: skip
                    break
            else:  # all values are; what every row must have is looked at below
                if type(row.get("source")) is str and type(time := row.get("time")) is float and isfinite(time):
                    if kept is not None:
                        kept.append(row)
                    continue
        try:
            made = _row(row)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - somebody else's value may raise anything when it is asked
            faults.append((row, error))
            made = None
        if kept is None and made is not row:
            kept = rows[:at]
        if kept is not None and made is not None:
            kept.append(made)
    return rows if kept is None else kept


def _row(row: Any) -> Row:
    """`row` itself, or a copy that can be carried. Raises TypeError for one of which none can be made."""
    if not isinstance(row, Mapping):
        raise TypeError(f"expected a row (a dict), got {_kind(row)}")
    made: Row = {}
    for name, value in row.items():
        if not isinstance(name, str):
            raise TypeError(f"expected text as name of a field, got {_kind(name)}")
        made[_value(name, "the name of a field")] = _value(value, name)
    time, source = made.get("time"), made.get("source")
    if isinstance(time, bool) or not isinstance(time, int | float) or not isfinite(time):
        raise TypeError(f"time: expected seconds since the epoch, a finite number, got {show(time)}")
    if not isinstance(source, str):
        raise TypeError(f"source: expected the device's name, text, got {show(source)}")
    return row if type(row) is dict and _same(row, made) else made


def _value(value: Any, field: str, depth: int = 0) -> Any:
    """`value` itself, or what can be carried in its place."""
    kind = type(value)
    if kind in _SURE:
        return value
    if kind is int:
        return within_64_bits(value)
    if kind is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise TypeError(f"{field}: expected text that UTF-8 can carry, got half a surrogate pair") from None
        return value
    if depth >= DEEPEST:
        raise TypeError(f"{field}: expected at most {DEEPEST} lists or dicts within each other, got more")
    if isinstance(value, list | tuple):
        items = [_value(item, field, depth + 1) for item in value]
        same = kind in (list, tuple) and all(a is b for a, b in zip(items, value, strict=True))
        return value if same else items
    if isinstance(value, dict):
        made = {_key(key, field): _value(item, field, depth + 1) for key, item in value.items()}
        return value if kind is dict and _same(value, made) else made
    for plain, bare in _BARE.items():
        if isinstance(value, plain):
            return _value(bare(value), field, depth + 1)
    if getattr(value, "ndim", None) == 0 and callable(getattr(value, "item", None)):
        item = value.item()
        if type(item) in _SURE or type(item) in _BARE:
            return _value(item, field, depth + 1)
    raise TypeError(f"{field}: expected {HELD}, got {_kind(value)}")


def _key(key: Any, field: str) -> Any:
    if isinstance(key, bool) or not isinstance(key, str | int | float):
        raise TypeError(f"{field}: expected text or numbers as keys, got {_kind(key)}")
    return _value(key, field)


def _same(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    """True if both hold the very same keys and values."""
    pairs = zip(one.items(), other.items(), strict=False)
    return len(one) == len(other) and all(a is c and b is d for (a, b), (c, d) in pairs)


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
