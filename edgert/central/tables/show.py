"""Tables for people, without Spark: what is there, and the newest rows of one."""

from __future__ import annotations

import datetime as dt
import difflib
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from edgert.central.tables.query import in_brackets, is_understood, query, trouble_of
from edgert.central.tables.query import select as query_tables
from edgert.central.tables.table import TableError, join, list_tables, told, why
from edgert.core.errors import EdgertError

SINGLE: Final = ("gaps", "drops", "quarantine", "models", "alerts", "leases", "readers")
FOLDERS: Final = ("fleet", "landing")
FIRST_ROWS: Final = (
    "none yet: has the collector run? The first rows land some seconds after a flow's first window has closed"
)
_ORDER: Final = ("window_start", "received", "trained", "raised")
_LAST: Final = ("gateway", "epoch", "stream", "sequence", "flow_version", "lineage", "day")
"""Columns of landing tables that say where a row comes from: they stand behind those with results."""
_WIDEST: Final = 40
"""Characters of a value on a terminal."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table: its name under the root, rows, version of the last commit, files and their bytes."""

    name: str
    rows: int
    version: int
    files: int
    size_bytes: int


def names(root: str) -> list[str]:
    """Every table under a root: `fleet/<flow>`, `landing/<flow>`, `gaps`, ..."""
    found = [f"{folder}/{name}" for folder in FOLDERS for name in list_tables(root, folder)]
    return found + [name for name in SINGLE if DeltaTable.is_deltatable(join(root, name))]


def facts(root: str) -> tuple[list[TableFacts], list[TableError]]:
    """Facts for `edgert central tables`, and the errors of tables that cannot be read."""
    listed, wrong = [], []
    for name in names(root):
        try:
            listed.append(_facts(root, name))
        except TableError as error:
            wrong.append(error)
    return listed, wrong


def _facts(root: str, name: str) -> TableFacts:
    table = load(root, name)
    with told(join(root, name), "its files could not be listed"):
        files = pa.table(table.get_add_actions(flatten=True))
        rows = sum(n or 0 for n in files["num_records"].to_pylist())
        size = sum(files["size_bytes"].to_pylist())
        return TableFacts(name, rows, table.version(), files.num_rows, size)


def find(root: str, name: str) -> str:
    """The full name of a table; a flow's name alone means its fleet table, else its landing table.

    Raises `EdgertError` listing the tables that exist.
    """
    there = names(root)
    for candidate in (name, f"fleet/{name}", f"landing/{name}"):
        if candidate in there:
            return candidate
    near = difflib.get_close_matches(name, there, n=1)
    hint = f" (nearest: {near[0]})" if near else ""
    listed = ", ".join(there) or FIRST_ROWS
    raise EdgertError(f"table {name!r}: expected one of those in {root}{hint}: {listed}")


def find_any(root: str) -> None:
    """Raises `EdgertError` if there is no table: what works on those that are there would make its own in a place that
    was mistyped."""
    if not names(root):
        raise EdgertError(
            f"{root}: expected a folder or URI with tables, found none: has the collector run? See --root"
        )


def rows(root: str, name: str, limit: int = 20, where: str = "") -> tuple[list[str], list[list[Any]]]:
    """(columns, rows) of a table, newest windows first. `where` is an SQL condition over its columns.

    Raises `EdgertError` if there is no such table, it cannot be read, or the condition cannot be understood.
    """
    full = find(root, name)
    table = load(root, full)
    columns = [f.name for f in table.schema().fields]
    try:
        found = query(table, columns, where, [c for c in _ORDER if c in columns], limit)
    except (DeltaError, OSError, ValueError) as error:
        if where and not is_understood({"t": table}, f"SELECT * FROM t WHERE {in_brackets(where)}"):
            raise EdgertError(f"{full}: expected a condition over {', '.join(columns)}: {why(error)}") from error
        raise failed(root, {full: table}, "condition", error) from error
    if full.startswith("landing/"):
        columns.sort(key=_LAST.__contains__)
    return columns, [[row[column] for column in columns] for row in found]


def select(root: str, text: str) -> tuple[list[str], list[list[Any]]]:
    """(columns, rows) of an SQL query. Tables are named as `sql_name` has it; only those that occur are opened.

    Raises `EdgertError` for anything but a query, one that cannot be understood, or tables that cannot be read.
    """
    if not re.match(r"\s*(select|with)\b", text, re.IGNORECASE):
        raise EdgertError(f"expected a query that begins with SELECT or WITH, got {text[:40]!r}")
    tables = names(root)
    there = tables_in(text, tables)
    opened = {plain: load(root, name) for plain, name in there.items()}
    try:
        return query_tables(opened, text)
    except (DeltaError, OSError, ValueError) as error:
        if is_understood(opened, text):
            raise failed(root, {there[plain]: table for plain, table in opened.items()}, "query", error) from error
        listed = ", ".join(map(sql_name, tables))
        known = f"the tables {listed}" if tables else f"tables, of which {root} has none (did a collector run?)"
        raise EdgertError(f"expected an SQL query over {known}: {why(error)}") from error


def version(root: str, name: str) -> int:
    """The number of a table's last commit. Raises `TableError`."""
    return load(root, name).version()


def sql_name(name: str) -> str:
    """A table's name where SQL wants a plain one: `fleet/city-air` is `fleet_city_air`."""
    return re.sub(r"\W", "_", name)


def tables_in(text: str, tables: Sequence[str]) -> dict[str, str]:
    """Tables, of `tables`, that occur in an SQL text, by their names there (and some whose name is that of a column).
    Raises `EdgertError` for a name that two of them have."""
    words = set(re.findall(r"\w+", text))
    found: dict[str, str] = {}
    for name in tables:
        plain = sql_name(name)
        if plain in words and found.setdefault(plain, name) != name:
            raise EdgertError(
                f"{plain}: expected the SQL name of one table, got that of {found[plain]} and of {name}; each of them "
                "is read by its own name: `edgert central show`"
            )
    return found


def print_table(columns: Sequence[str], table: Sequence[Sequence[Any]], *, as_json: bool = False) -> None:
    """Prints rows as JSON or as text that fits the terminal; whole values where standard output is none."""
    if as_json and not table:
        return  # an empty line is no JSON
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    print(json_lines(columns, table) if as_json else text_table(columns, table, width))


def text_table(columns: Sequence[str], table: Sequence[Sequence[Any]], width: int = 0) -> str:
    """Aligned text: numbers to the right, all else to the left. With a `width` in characters, long values are cut, and
    a wider table comes in blocks of columns, one below the other, each with the numbers of its rows."""
    head, rows = ["#", *columns], [[number, *row] for number, row in enumerate(table, 1)]
    cells = [[_cell(v, _WIDEST if width else None) for v in row] for row in rows]
    widths = [max([len(c), *(len(row[i]) for row in cells)]) for i, c in enumerate(head)]
    numeric = [any(_is_number(row[i]) for row in rows) for i in range(len(head))]

    def line(values: Sequence[str], shown: Sequence[int]) -> str:
        parts = [values[i].rjust(widths[i]) if numeric[i] else values[i].ljust(widths[i]) for i in shown]
        return "  ".join(parts).rstrip()

    whole = list(range(1, len(head)))
    fits = not width or _room(widths[1:]) <= width
    return "\n\n".join(
        "\n".join(line(values, shown) for values in (head, ["-" * w for w in widths], *cells))
        for shown in ([whole] if fits else _blocks(widths, width))
    )


def _room(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _blocks(widths: Sequence[int], width: int) -> list[list[int]]:
    """Columns, by their numbers, in blocks that fit `width` where one column does; each begins with the first."""
    blocks = [[0]]
    for column in range(1, len(widths)):
        if len(blocks[-1]) > 1 and _room([widths[i] for i in (*blocks[-1], column)]) > width:
            blocks.append([0])
        blocks[-1].append(column)
    return blocks


def json_lines(columns: Sequence[str], table: Sequence[Sequence[Any]]) -> str:
    """One JSON object per row and line; times as ISO 8601."""
    return "\n".join(json.dumps(dict(zip(columns, row, strict=True)), default=_plain) for row in table)


def load(root: str, name: str) -> DeltaTable:
    """The table as it is now. Raises `TableError`."""
    try:
        return DeltaTable(join(root, name))
    except (DeltaError, OSError) as error:
        raise _unreadable(join(root, name), error) from error


def _unreadable(uri: str, error: Exception) -> TableError:
    hint = "what of it is gone or damaged has to come back from a copy"
    return TableError(f"{uri}: expected a Delta table that can be read: {why(error)[:500]}; {hint}")


def failed(root: str, tables: Mapping[str, DeltaTable], what: str, error: Exception) -> EdgertError:
    """Why a condition or query over tables was not answered that is one. A table is said to be damaged only if it
    cannot be read without it: who believes that puts back an older copy, which lacks results."""
    for name, table in tables.items():
        if trouble := trouble_of(table):
            return _unreadable(join(root, name), trouble)
    sound = f"; all of {', '.join(tables)} can be read" if tables else ""
    return EdgertError(f"expected a {what} that can be answered: {why(error)[:500]}{sound}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any, most: int | None) -> str:
    """A value as text, of at most so many characters."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(_plain(value)) if not isinstance(value, str | int) else str(value)
    text = "".join(c if c.isprintable() else "·" for c in text)
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ", timespec="auto").replace("+00:00", "Z")
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value)
