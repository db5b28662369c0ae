"""The fleet job as a registered reader: how far its Spark streams have read the landing tables."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyarrow import fs

from edgert.central.readers import Reach, Readers
from edgert.central.tables import Table, join, told

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

NAME: Final = "fleet-job"


class StreamReader:
    """One per job, which has the lease. Raises `TableError` and `Conflict` for tables and register."""

    def __init__(self, root: str, wall: Callable[[], float] = time.time) -> None:
        self._root = root
        self._wall = wall
        self._readers = Readers(root, wall)
        self._landing: dict[str, Table] = {}
        self._looked: dict[str, tuple[float, int]] = {}
        """Flow -> a version of its landing table, and when it was there already."""

    def ready(self, flow: str) -> bool:
        """Before a stream starts. Who is not in the register, or was left behind there, reads the table from its
        beginning: what its checkpoint wants next may be gone. Returns whether that is so."""
        known = [r for r in self._readers.all() if (r.reader, r.table) == (NAME, _name(flow))]
        if known and not known[0].left:
            return False
        folder = self.checkpoint(flow)
        with told(folder, "the stream's checkpoint could not be deleted"):
            filesystem, path = fs.FileSystem.from_uri(folder) if "://" in folder else (fs.LocalFileSystem(), folder)
            existed: bool = filesystem.get_file_info(path).type == fs.FileType.Directory
            if existed:
                filesystem.delete_dir(path)
        self._readers.begin(NAME, _name(flow))
        return existed

    def checkpoint(self, flow: str) -> str:
        """Where Spark keeps the place of a flow's stream."""
        return join(self._root, "_spark", "fleet", flow)

    def look(self, flow: str) -> int:
        """The version of a landing table, noted: who looks for rows after this call finds all of it."""
        table = self._landing.setdefault(flow, Table(join(self._root, "landing", flow)))
        table.refresh()
        self._looked[flow] = (self._wall(), table.at())
        return table.at()

    def tell(self, queries: Mapping[str, StreamingQuery]) -> set[str]:
        """Register how far running streams are. Returns the flows that were left behind: they must begin anew."""
        reaches = {}
        for flow, query in queries.items():
            progress = query.lastProgress
            if progress is not None:
                # The end of a batch under way would be too far: Spark may have to repeat it.
                start = position(progress.sources[0].startOffset)
                if start is not None:
                    since, version = self._looked.get(flow, (float("inf"), 0))
                    idle = progress.sources[0].startOffset == progress.sources[0].endOffset
                    looked = dt.datetime.fromisoformat(progress.timestamp).timestamp()
                    reaches[flow] = Reach(start, max(start, version) if idle and looked > since else start)
            self.look(flow)
        return self._register(reaches)

    def tell_end(self, flow: str, query: StreamingQuery, version: int) -> None:
        """Register that a stream, which ended by itself, has read all of a version that was there before it began."""
        progress = query.lastProgress
        end = position(progress.sources[0].endOffset) if progress is not None else None
        if end is not None:
            self._register({flow: Reach(end, max(end, version))})

    def _register(self, reaches: Mapping[str, Reach]) -> set[str]:
        left = self._readers.tell(NAME, {_name(flow): reach for flow, reach in reaches.items()}) if reaches else set()
        return {flow for flow in reaches if _name(flow) in left}


def position(offset: str | None) -> int | None:
    """The version up to which a stream at an offset of Delta's source needs no commit any more (None: it has none)."""
    plain = json.loads(offset) if offset else None
    if plain is None:
        return None
    version = int(plain["reservoirVersion"])
    # At its start a stream reads the whole table as of a version; later, the commits from one on.
    return version if plain["isStartingVersion"] else max(0, version - 1)


def _name(flow: str) -> str:
    return f"landing/{flow}"
