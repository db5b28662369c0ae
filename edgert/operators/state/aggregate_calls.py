"""Aggregates of a window, as a document names them: `mean_t = "mean(temperature)"`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Literal, cast

from edgert.core.errors import show
from edgert.core.results.result_schema import FINALS, RESERVED_COLUMNS
from edgert.expr.tree import check_field_name
from edgert.install_hint import command

AggregateFunction = Literal["count", "sum", "mean", "variance", "min", "max", "distinct", "distinct_set", "quantiles"]
FUNCTIONS: Mapping[AggregateFunction, str] = {
    "count": "Rows, or with a field the rows in which it has a value.",
    "sum": "Sum of a numeric field.",
    "mean": "Arithmetic mean of a numeric field.",
    "variance": "Sample variance (n - 1) of a numeric field; null below two values.",
    "min": "Smallest value of a numeric field.",
    "max": "Greatest value of a numeric field.",
    "distinct": "How many different values, estimated (HLL).",
    "distinct_set": "The same of a set that can be intersected and subtracted later (theta).",
    "quantiles": "5 %, 50 % and 95 % quantile of a numeric field, estimated (KLL).",
}
SKETCHES: Final[Mapping[str, str]] = {"distinct": "hll", "distinct_set": "theta", "quantiles": "kll"}
"""Aggregate -> its kind of sketch. All other aggregates have a fixed few slots."""
_BARE = re.compile(r"[^\W\d][\w.]*")
"""A field without backticks: all that an expression takes so, and `a.0.b`."""
COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
RESERVED = RESERVED_COLUMNS | {"time", "source"}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One named aggregate of a window, as written: `mean_t = "mean(temperature)"`."""

    name: str
    function: AggregateFunction
    field: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields that it gives to a window's result."""
        return tuple(self.name + suffix for suffix, kind in FINALS[self.function] if kind != "binary")


def parse_aggregate(name: str, text: str) -> Aggregate:
    """Raises `ValueError` ("expected ..., got ...")."""
    function, _, rest = (part.strip() for part in text.partition("("))
    known = ", ".join(FUNCTIONS)
    if not rest.endswith(")"):
        raise ValueError(f"expected function(field) with one of {known}, got {show(text)}")
    if function not in FUNCTIONS:
        raise ValueError(f"expected one of {known}, got {show(function)}")
    written = rest[:-1].strip()
    if not written and function != "count":
        raise ValueError(f"expected {function}(field), got {show(text)}")
    column = _field(function, written) if written else None
    if function in SKETCHES and find_spec("datasketches") is None:
        raise ValueError(f"expected the package datasketches for {function}; install it with: {command('sketches')}")
    return Aggregate(name, cast(AggregateFunction, function), column)


def _field(function: str, written: str) -> str:
    """The name of a field as it is written in the brackets, bare or in backticks."""
    if _BARE.fullmatch(written):
        return written
    name = written.strip("'\"`")
    if len(written) > 1 and written[0] == written[-1] == "`":
        check_field_name(written[1:-1])
        return written[1:-1]
    begins = _BARE.match(name)
    odd = name[begins.end() if begins else 0 :][:1]
    if not odd:
        raise ValueError(f"expected {function}({show(name)[1:-1] or 'field'}), got {show(f'{function}({written})')}")
    raise ValueError(
        f"expected the name of a field, in backticks as there is {show(odd)} in it: "
        f"{function}(`{show(name)[1:-1]}`), got {show(f'{function}({written})')}"
    )


def aggregate_named(name: str, text: str) -> Aggregate:
    """Works as `parse_aggregate`, if `name` can be that of a column, too."""
    if not COLUMN.fullmatch(name) or "__" in name or name in RESERVED:
        raise ValueError(f"expected a column name (letters, digits, single _; not a reserved one), got {show(name)}")
    return parse_aggregate(name, text)


def all_aggregates(parsed: Mapping[str, Aggregate]) -> tuple[Aggregate, ...]:
    """All aggregates of one window. Raises `ValueError` if there are none."""
    if not parsed:
        raise ValueError('expected at least one aggregate, for instance { n = "count()" }, got none')
    return tuple(parsed.values())
