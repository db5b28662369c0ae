"""The packed form of rows: the names of the fields once for each run of rows that have the same ones.

It stands in checkpoints in the database, and in batches on links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgert.core.batch import Row


def pack_rows(rows: Sequence[Row]) -> list[Any]:
    """Runs of rows with the same fields: [[names, [values, ...]], ...], order kept."""
    runs: list[Any] = []
    names: tuple[str, ...] | None = None
    for row in rows:
        if tuple(row) != names:
            names = tuple(row)
            runs.append([names, []])
        runs[-1][1].append(list(row.values()))
    return runs


def unpack_rows(runs: Sequence[Any]) -> list[Row]:
    """The rows that `pack_rows` packed."""
    return [dict(zip(names, values, strict=True)) for names, rows in runs for values in rows]
