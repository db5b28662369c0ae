"""Children of the demo, and rows of its tables."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
from pathlib import Path
from typing import Any


def missing() -> str:
    modules = [name for name in ("amqtt", "rich", "pyspark", "deltalake") if importlib.util.find_spec(name) is None]
    return ", ".join(modules + ([] if shutil.which("java") else ["java"]))


def fleet_rows(data: Path) -> list[dict[str, Any]]:
    from edgert.central.tables import show
    from edgert.core.errors import EdgertError

    try:
        columns, rows = show.rows(str(data / "tables"), "fleet/machine", limit=100_000)
    except EdgertError:
        return []
    return [dict(zip(columns, row, strict=True)) for row in rows]


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == pid:
                found.append(int(stat.parent.name))
    return found


def windows_are_whole(rows: list[dict[str, Any]]) -> None:
    """No window stands in the table twice, and none has more values than one a second."""
    keys = [(row["window_start"], row["source"], row["quantity"]) for row in rows]
    assert len(set(keys)) == len(keys), "a window stands in the table twice"
    assert max(row["n"] for row in rows) <= 11, "more values in a window of 10 s than one a second"
