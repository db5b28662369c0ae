"""Common parts of operators that name fields: checks of parameters, and keys as they come back from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from edgert.core.batch import Row
from edgert.expr.tree import check_field_name


def field_name(name: str) -> str:
    """`name`, if it can be that of a field. Raises ValueError ("expected ..., got ...")."""
    check_field_name(name)
    return name


def field_names(names: Sequence[str]) -> tuple[str, ...]:
    """At least one name, each once. Raises ValueError."""
    if not names:
        raise ValueError("expected at least one field, got none")
    twice = next((n for n in names if list(names).count(n) > 1), None)
    if twice is not None:
        raise ValueError(f"expected each field once, got {twice} twice")
    return tuple(names)


def new_field(name: str) -> str:
    """The name of a field that an operator adds. Raises ValueError."""
    if name in ("time", "source"):
        raise ValueError(f"expected a field other than time and source (they belong to the row), got {name}")
    return field_name(name)


def key_reader(names: Sequence[str]) -> Callable[[Row], Any]:
    """A function from a row to its key: the value of one field, a tuple of several, None of none. Absent is null."""
    if not names:
        return lambda row: None
    quick = itemgetter(*names)

    def key_of(row: Row) -> Any:
        try:
            return quick(row)
        except KeyError:
            found = tuple(map(row.get, names))
            return found if len(found) > 1 else found[0]

    return key_of


def hashable(key: Any) -> Any:
    """A key of several fields, which a checkpoint gives back as a list."""
    return tuple(key) if isinstance(key, list) else key
