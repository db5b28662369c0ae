"""The schema of shipped results: the columns of a contribution and of a row of the fleet table, and how sketches are
sized."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from edgert.core.errors import PayloadError, show
from edgert.core.plain import is_texts

KEY_TYPES: Final = ("string", "double", "long", "boolean")
AGGREGATES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "count": (("", "long"),),
    "sum": (("", "double"),),
    "min": (("", "double"),),
    "max": (("", "double"),),
    "mean": (("__count", "long"), ("__sum", "double")),
    "variance": (("__count", "long"), ("__mean", "double"), ("__m2", "double")),
    "distinct": (("__hll", "binary"),),
    "distinct_set": (("__theta", "binary"),),
    "quantiles": (("__kll", "binary"),),
}
"""Aggregate -> its partial columns as (suffix of the aggregate's name, type). Binary: DataSketches bytes or null."""
QUANTILES: Final[Mapping[str, float]] = {"__p05": 0.05, "__p50": 0.5, "__p95": 0.95}
"""Suffix of the column -> rank. Nearer to 0 or 1 a sketch of this size is too rough."""
FINALS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "count": (("", "long"),),
    **dict.fromkeys(("sum", "min", "max", "mean", "variance"), (("", "double"),)),
    "distinct": (("", "long"), ("__hll", "binary")),
    "distinct_set": (("", "long"), ("__theta", "binary")),
    "quantiles": (*((suffix, "double") for suffix in QUANTILES), ("__kll", "binary")),
}
"""Aggregate -> its columns in the fleet table, as above. A window's own result has all but the binary ones."""
HLL_LG_K: Final = 12
THETA_LG_K: Final = 12
KLL_K: Final = 200
"""Sizes of the sketches, common to all, so that any two merge without losing accuracy: standard errors of 1.6 %, ranks
wrong by 1.3 % at most with 99 % confidence; 2.1, 33 and some 5 kB."""
MOST_COUNT: Final = 2**40
"""More than any gateway counts in a year. The fleet job adds counts up, in 64 bits: an absurd one would stop it."""
WINDOW_COLUMNS: Final = ("window_start", "window_end")
RESERVED_COLUMNS: Final = frozenset(
    (*WINDOW_COLUMNS, "gateway", "epoch", "stream", "sequence", "flow_version", "lineage", "day", "gateways")
)
"""Names that the tables use themselves: neither a key nor an aggregate may have one (whatever the case)."""
COLUMN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_MAX_COLUMNS: Final = 512


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of an epoch's rows: window size in seconds, (key, type) and (aggregate's name, kind)."""

    window_s: float
    keys: tuple[tuple[str, str], ...]
    aggregates: tuple[tuple[str, str], ...]

    def plain(self) -> dict[str, Any]:
        """The schema as JSON types, as sent and as stored in the landing table."""
        return {
            "window_s": self.window_s,
            "keys": [list(k) for k in self.keys],
            "aggregates": [list(a) for a in self.aggregates],
        }


def partial_columns(schema: Schema) -> tuple[tuple[str, str], ...]:
    """(name, type) of the partial columns, in the order in which they stand in a rows batch after the keys."""
    return tuple((name + suffix, kind) for name, how in schema.aggregates for suffix, kind in AGGREGATES[how])


def final_columns(schema: Schema) -> tuple[tuple[str, str], ...]:
    """(name, type) of the aggregates' columns in the fleet table."""
    return tuple((name + suffix, kind) for name, how in schema.aggregates for suffix, kind in FINALS[how])


def row_columns(schema: Schema) -> tuple[str, ...]:
    """The columns of a rows batch: the window's bounds, the keys, the partial columns."""
    return (*WINDOW_COLUMNS, *(k for k, _ in schema.keys), *(c for c, _ in partial_columns(schema)))


def schema_untrusted(plain: object) -> Schema:
    """Read a schema from its plain form. Raises `PayloadError`; the names are safe as columns of a table."""
    if not isinstance(plain, dict):
        raise PayloadError(f"schema: expected a map, got {show(plain)}")
    window_s = plain.get("window_s")
    if isinstance(window_s, bool) or not isinstance(window_s, int | float) or not 0 < window_s <= 1e10:
        raise PayloadError(f"schema.window_s: expected seconds greater than 0, got {show(window_s)}")
    keys = _pairs(plain.get("keys"), "keys", KEY_TYPES)
    aggregates = _pairs(plain.get("aggregates"), "aggregates", tuple(AGGREGATES))
    schema = Schema(float(window_s), keys, aggregates)
    _check_names(schema)
    return schema


def _check_names(schema: Schema) -> None:
    """Columns of a table are told apart whatever their case, so `n` and `N` are one name."""
    names = [n for n, _ in (*schema.keys, *schema.aggregates)]
    seen = set(RESERVED_COLUMNS)
    for name in names:
        if not COLUMN_NAME.fullmatch(name):
            raise PayloadError(f"schema: expected letters, digits and _ as the name of a column, got {show(name)}")
    partials = [c for c, _ in partial_columns(schema)]
    finals = [c for c, _ in final_columns(schema)]
    for group in (dict.fromkeys([k for k, _ in schema.keys]), dict.fromkeys(partials + finals)):
        for name in group:
            if name.lower() in seen:
                raise PayloadError(f"schema: expected a name that is not taken yet, got {show(name)}")
            seen.add(name.lower())
    if any(len(n) != len(set(n)) for n in (names, partials, finals)) or len(seen) > _MAX_COLUMNS:
        raise PayloadError(f"schema: expected at most {_MAX_COLUMNS} different names, got {show(names)}")


def _pairs(plain: object, where: str, allowed: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    if not isinstance(plain, list):
        raise PayloadError(f"schema.{where}: expected a list of pairs, got {show(plain)}")
    for pair in plain:
        if not (is_texts(pair) and len(pair) == 2 and pair[1] in allowed):
            raise PayloadError(f"schema.{where}: expected [name, {' | '.join(allowed)}], got {show(pair)}")
    return tuple((name, kind) for name, kind in plain)
