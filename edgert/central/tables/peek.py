"""The newest rows of a fleet table, cheaply enough to ask every two seconds: no Spark, only the newest files."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from edgert.central.tables.query import literal, query

Newest = tuple[tuple[str, ...], list[tuple[Any, ...]], int, int]
"""Columns, rows (newest window first), rows in the whole table, version of the table."""


def newest_rows(uri: str, limit: int, wall: Callable[[], float] = time.time) -> Newest | None:
    """At most `limit` rows, of windows that have begun if there are such; None while there is no table. Raises
    `OSError` or `DeltaError` if it is unreadable."""
    if not DeltaTable.is_deltatable(uri):
        return None
    table = DeltaTable(uri)
    columns = tuple(field.name for field in table.schema().fields)
    files = pa.table(table.get_add_actions(flatten=True))
    total = int(pc.sum(files["num_records"]).as_py() or 0)
    if not total:
        return columns, [], 0, table.version()
    where = ""
    if "max.window_start" in files.column_names:
        now = dt.datetime.fromtimestamp(wall(), dt.UTC)
        starts = files["max.window_start"].drop_null()
        # Windows that a clock which was ahead has made would be all that is shown, for years.
        right = starts.filter(pc.less_equal(starts, pa.scalar(now, starts.type)))
        newest = pc.max(right if len(right) else starts).as_py()
        where = f"window_start >= {literal(newest.isoformat())}" if newest else ""
        where += f" AND window_start <= {literal(now.isoformat())}" if len(right) else ""
    found = query(table, columns, where, ["window_start"], limit)
    return columns, [tuple(row[column] for column in columns) for row in found], total, table.version()
