"""Checks of a result before it may land, pure: of schemas and of rows.

One wrong value in a landing table would spoil every query over it for ever, so each value is looked at here, once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from edgert.core.errors import PayloadError, show
from edgert.core.results.result_schema import (
    HLL_LG_K,
    KLL_K,
    MOST_COUNT,
    THETA_LG_K,
    Schema,
    row_columns,
    schema_untrusted,
)
from edgert.core.results.results import INT64, MOST_DAYS, RowsBatch, day_of

LATEST_S: Final = 9_223_372_036.0
"""2262-04-11: past it times cannot be told in ns, as some readers of the tables do."""
_LONGEST_TEXT: Final = 65_536
MOST_REFUSED: Final = 100
"""Rows of a batch that are kept in quarantine one by one."""


@dataclass(slots=True)
class CheckedRows:
    """The rows of a batch that may land, as columns (window bounds in µs since the epoch), and those that may not."""

    columns: dict[str, list[Any]]
    count: int
    refused: list[tuple[Any, str]] = field(default_factory=list)
    """(row as it came, reason)."""
    days: list[int] = field(default_factory=list)
    """Days in which the windows of the rows begin, counted from 1970; one for each row."""


def fits(table: Schema, new: Schema) -> bool:
    """True if rows of `new` have the windows and the keys of a table's rows: others cannot be merged with them."""
    return table.window_s == new.window_s and sorted(table.keys) == sorted(new.keys)


def unite(table: Schema | None, new: Schema) -> Schema:
    """The schema of a table after rows of `new` came to those of `table`. Raises `PayloadError` if they do not fit.

    New aggregates evolve a table. Other keys or another window would make rows that cannot be merged.
    """
    if table is None:
        return new
    if table.window_s != new.window_s:
        raise PayloadError(f"window: expected {table.window_s:g} s like the table's rows, got {new.window_s:g} s")
    if sorted(table.keys) != sorted(new.keys):
        raise PayloadError(f"keys: expected {_show(table.keys)} like the table's rows, got {_show(new.keys)}")
    kinds = dict(table.aggregates)
    for name, kind in new.aggregates:
        if kinds.get(name, kind) != kind:
            raise PayloadError(f"aggregate {name}: expected {kinds[name]} like the table's rows, got {kind}")
    added = tuple(a for a in new.aggregates if a[0] not in kinds)
    if not added:
        return table
    return schema_untrusted(Schema(table.window_s, table.keys, table.aggregates + added).plain())


def _show(pairs: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in sorted(pairs)) or "none"


def check_rows(batch: RowsBatch, schema: Schema, first_s: float = 0.0) -> CheckedRows:
    """Sort the rows of a batch into those that may land and those that may not, as windows that begin before `first_s`
    (s since the epoch).

    Raises `PayloadError` if its columns are not those of its epoch's schema, in their order, if more than
    `MOST_REFUSED` rows are refused, or if the others are of more than `MOST_DAYS` days: no gateway sends such a batch,
    so it is kept as one.
    """
    names = row_columns(schema)
    if tuple(batch.columns) != names:
        raise PayloadError(f"columns: expected {', '.join(names)}, got {show(list(batch.columns), 300)}")
    check = _row_check(schema, first_s)
    good: list[Sequence[Any]] = []
    refused: list[tuple[Any, str]] = []
    for row in batch.rows:
        reason = check(row)
        if reason is None:
            good.append(row)
        else:
            refused.append((row, reason))
            if len(refused) > MOST_REFUSED:
                raise PayloadError(
                    f"rows: expected at most {MOST_REFUSED} that are refused, got more; the first: {refused[0][1]}"
                )
    days = [day_of(row[0]) for row in good]
    if len(set(days)) > MOST_DAYS:
        raise PayloadError(f"rows: expected windows of at most {MOST_DAYS} days, got {len(set(days))} days")
    columns = {name: [row[i] for row in good] for i, name in enumerate(names)}
    for name in names[:2]:
        columns[name] = [round(bound * 1e6) for bound in columns[name]]
    return CheckedRows(columns, len(good), refused, days)


def _row_check(schema: Schema, first_s: float) -> Callable[[Any], str | None]:
    names = row_columns(schema)
    parts: list[_Part] = [(_is_time, "a time in seconds")] * 2
    parts += [(_KEY_CHECKS[kind], f"{kind} or null") for _, kind in schema.keys]
    for _, kind in schema.aggregates:
        parts += _PARTIALS[kind]
    whole = [(i, is_good) for i, (is_good, _) in enumerate(parts)]

    def check(row: Any) -> str | None:
        if not isinstance(row, list) or len(row) != len(names):
            return f"row: expected {len(names)} values, got {show(row)}"
        for i, is_good in whole:
            if not is_good(row[i]):
                return f"{names[i]}: expected {parts[i][1]}, got {show(row[i])}"
        if row[0] < first_s:
            return (
                f"window_start: expected at least {first_s:.0f} (what was before is gone by retention), got {row[0]!r}"
            )
        if row[1] <= row[0]:
            return f"window_end: expected more than window_start ({row[0]!r}), got {row[1]!r}"
        return None

    return check


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)


def _is_time(value: Any) -> bool:
    return _is_number(value) and 0 <= value < LATEST_S


def _is_long(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in INT64


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_COUNT


def _is_double_or_null(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_square_sum_or_null(value: Any) -> bool:
    return value is None or (_is_number(value) and value >= 0)


_KEY_CHECKS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda v: v is None or (isinstance(v, str) and len(v) <= _LONGEST_TEXT),
    "double": _is_double_or_null,
    "long": lambda v: v is None or _is_long(v),
    "boolean": lambda v: v is None or isinstance(v, bool),
}


def _is_sketch_or_null(of: str) -> Callable[[Any], bool]:
    """Returns the check of a sketch column. It needs numpy, which only tables with sketches have to load."""

    def check(value: Any) -> bool:
        if value is None:
            return True
        from edgert.central.landing.sketch_checks import CHECKS

        return isinstance(value, bytes) and CHECKS[of](value)

    return check


_Part = tuple[Callable[[Any], bool], str]
_COUNT: Final[_Part] = (_is_count, f"a count from 0 to {MOST_COUNT}")
_NUMBER: Final[_Part] = (_is_double_or_null, "a finite number or null")
_PARTIALS: Final[Mapping[str, list[_Part]]] = {
    "count": [_COUNT],
    "sum": [_NUMBER],
    "min": [_NUMBER],
    "max": [_NUMBER],
    "mean": [_COUNT, _NUMBER],
    "variance": [_COUNT, _NUMBER, (_is_square_sum_or_null, "a sum of squares of at least 0 or null")],
    **{
        of: [(_is_sketch_or_null(of), f"the bytes of {kind} or null")]
        for of, kind in (
            ("distinct", f"an HLL_4 sketch of lgK {HLL_LG_K}"),
            ("distinct_set", f"an ordered theta sketch of at most {2**THETA_LG_K} hashes"),
            ("quantiles", f"a KLL sketch of at most {MOST_COUNT} finite doubles of k {KLL_K}"),
        )
    },
}
"""Aggregate -> check and description of each of its columns."""
