"""SQL over a Delta table by `deltalake`'s own reader, the only way that tables are read here without Spark.

Not by a pyarrow dataset: that one reads through a file system object of Python, whose last reference may be dropped by
a thread of Arrow's while the interpreter ends, which aborts the process (SIGABRT) after all its work was done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError


def query(
    table: DeltaTable, columns: Sequence[str] = (), where: str = "", order: Sequence[str] = (), limit: int | None = None
) -> list[dict[str, Any]]:
    """Some columns (none named: all) of the rows of a table for which an SQL condition holds; its name there is t.

    `order` has names of columns, greatest value first, nulls last. Raises what `deltalake` raises for a table that
    cannot be read or a condition that it does not understand.
    """
    text = _text(columns, where)
    if order:
        text += " ORDER BY " + ", ".join(f"{quoted(column)} DESC NULLS LAST" for column in order)
    if limit is not None:
        text += f" LIMIT {int(limit)}"
    found: list[dict[str, Any]] = pa.table(QueryBuilder().register("t", table).execute(text)).to_pylist()
    return found


def batches(table: DeltaTable, columns: Sequence[str], where: str) -> Iterator[pa.RecordBatch]:
    """Works as `query`, for more rows than there may be room for at once."""
    found = QueryBuilder().register("t", table).execute(_text(columns, where))
    yield from pa.RecordBatchReader.from_stream(found)


def _text(columns: Sequence[str], where: str) -> str:
    condition = f" WHERE {in_brackets(where)}" if where else ""
    return f"SELECT {', '.join(map(quoted, columns)) or '*'} FROM t{condition}"


def in_brackets(condition: str) -> str:
    """A condition from outside as one expression: what follows it is not taken for a part of it, nor ends in its
    comment."""
    return f"({condition}\n)"


def select(tables: Mapping[str, DeltaTable], text: str) -> tuple[list[str], list[list[Any]]]:
    """(columns, rows) of a query over several tables by name; of columns that are called alike the second has `_2`
    behind its name. Raises what `deltalake` raises for a query that it does not understand."""
    builder = QueryBuilder()
    for name, table in tables.items():
        builder = builder.register(name, table)
    found = pa.table(builder.execute(text))
    names: list[str] = []
    for name in found.column_names:
        number = 1
        while (unique := f"{name}_{number}" if number > 1 else name) in names:
            number += 1
        names.append(unique)
    return names, list(map(list, zip(*(column.to_pylist() for column in found.columns), strict=True)))


def is_understood(tables: Mapping[str, DeltaTable], text: str) -> bool:
    """True if it is a query over these tables. It may still fail on values, such as a text that is no number."""
    builder = QueryBuilder()
    for name, table in tables.items():
        builder = builder.register(name, table)
    try:
        pa.table(builder.execute(f"EXPLAIN {text}"))
    except (DeltaError, OSError, ValueError):
        return False
    return True


def trouble_of(table: DeltaTable) -> Exception | None:
    """Why not all of its rows can be read; None if they can. Takes as long as to read them."""
    try:
        for _ in batches(table, (), ""):
            pass
    except (DeltaError, OSError, ValueError) as error:
        return error
    return None


def literal(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def quoted(column: str) -> str:
    """A column's name as SQL has it."""
    return '"' + column.replace('"', '""') + '"'
