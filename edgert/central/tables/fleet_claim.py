"""The claim of one fleet on the tables under a root, written by the first collector.

Leases of partitions, names of gateways and of tables say nothing of a fleet: of two under one root each would keep the
other from being heard, and gateways of one name would be taken for one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from edgert.central.tables.table import TIME, Table, TableError, join
from edgert.core.errors import EdgertError

_TABLE: Final = "owner"
_APPLICATION: Final = "edgert.owner"


class AnothersRoot(EdgertError):
    """The tables under a root are another fleet's."""


def claim(root: str, fleet: str, wall: Callable[[], float] = time.time) -> None:
    """Make sure that a root is a fleet's, for good if it is no fleet's yet. Raises `AnothersRoot`, and `TableError` and
    `CommitConflict` as `Table` does."""
    table = Table(join(root, _TABLE), partition_by="fleet")

    def look_or_write() -> str:
        for row in table.read(["fleet"], "true"):
            return str(row["fleet"])
        since = pa.array([round(wall() * 1e6)], TIME)
        table.append(pa.table({"fleet": [fleet], "since": since}), {_APPLICATION: 1})
        return fleet

    try:
        owner = table.decide(look_or_write)
    except TableError as error:
        folder = join(root, _TABLE)
        raise TableError(
            f"{error}; {folder} says whose the tables in {root} are: if they are those of fleet {fleet}, remove it, and"
            " start again",
            folder,
        ) from error
    if owner != fleet:
        raise AnothersRoot(
            f"tables in {root}: expected those of fleet {fleet}, got those of fleet {owner}; each has a root of its own"
        )
