"""A job as a registered reader: how far its Spark streams have read the landing tables.

How far that is is read from a stream's own checkpoint, since that is what it goes on from after a crash.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyarrow import fs

from edgert.central.readers import Reach, Readers
from edgert.central.tables import Table, TableError, join, told

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)
NAME: Final = "fleet-job"
"""Of the fleet job."""
_UNREADABLE: Final = "the stream's checkpoint could not be read"


class StreamReader:
    """One per name, whose job has the lease; a stream per flow, whose checkpoint is in `folder` under the root. Raises
    `TableError` and `Conflict` for tables and register."""

    def __init__(
        self, root: str, name: str = NAME, folder: str = "fleet", wall: Callable[[], float] = time.time
    ) -> None:
        self._root = root
        self._reader = name
        self._checkpoints = folder
        self._wall = wall
        self._readers = Readers(root, wall)
        self._landing: dict[str, Table] = {}
        self._looked: dict[str, tuple[float, int]] = {}
        """Flow -> a version of its landing table, and when it was there already."""
        self._read: dict[str, int] = {}
        """Flow -> the greatest version of which its stream has read all, though no batch of it may tell."""

    def ready(self, flow: str) -> bool:
        """Before a stream starts. One that has no place, is not in the register, or was left behind there, reads the
        table from its beginning: what its checkpoint wants next may be gone. Returns whether a place was given up."""
        known = [r for r in self._readers.all() if (r.reader, r.table) == (self._reader, source(flow))]
        begun = bool(self._begun(flow))
        if begun and known and not known[0].left:
            return False
        with told(self.checkpoint(flow), "the stream's checkpoint could not be deleted"):
            filesystem, path = self._folder(flow)
            if filesystem.get_file_info(path).type == fs.FileType.Directory:
                filesystem.delete_dir(path)
        # Whatever the register says was read up to here: what this stream reads again must stay until it has.
        self._readers.begin(self._reader, source(flow))
        self._read.pop(flow, None)
        return begun

    def checkpoint(self, flow: str) -> str:
        """Where Spark keeps the place of a flow's stream."""
        return join(self._root, "_spark", self._checkpoints, flow)

    def look(self, flow: str) -> int:
        """The version of a landing table, noted: who looks for rows after this call finds all of it."""
        table = self._landing.setdefault(flow, Table(join(self._root, "landing", flow)))
        table.refresh()
        self._looked[flow] = (self._wall(), table.at())
        return table.at()

    def tell(self, queries: Mapping[str, StreamingQuery]) -> set[str]:
        """Register how far running streams are. Returns the flows that were left behind: they must begin anew. One
        whose table or checkpoint cannot be read keeps its row as it is, and the others are told."""
        reaches: dict[str, Reach | None] = {}
        for flow, query in queries.items():
            since, version = self._looked.get(flow, (float("inf"), 0))
            if _found_nothing(query, since):
                self._read[flow] = version
            try:
                self.look(flow)
                reaches[flow] = self._reach(flow)
            except TableError as error:
                log.warning("%s: the register was not told how far %s is: %s", self._reader, source(flow), error)
        return self._register(reaches)

    def tell_end(self, flow: str, version: int) -> None:
        """Register that a stream, which ended by itself, has read all of a version that was there before it began."""
        self._read[flow] = version
        self._register({flow: self._reach(flow)})

    def _register(self, reaches: Mapping[str, Reach | None]) -> set[str]:
        known = {source(flow): reach for flow, reach in reaches.items() if reach is not None}
        left = self._readers.tell(self._reader, known) if known else set()
        return {flow for flow in reaches if source(flow) in left}

    def _reach(self, flow: str) -> Reach | None:
        """How far the stream is, by its checkpoint and by what it looked for and did not find."""
        place = self._place(flow)
        return place and Reach(place.log, max(place.rows, self._read.get(flow, 0)))

    def _place(self, flow: str) -> Reach | None:
        """What a stream needs that goes on from its checkpoint (None: it has not got one yet).

        It makes the frame of its last batch once more, and runs it unless it was committed.
        """
        begun = self._begun(flow)
        if not begun:
            return None
        with told(self.checkpoint(flow), _UNREADABLE):
            filesystem, path = self._folder(flow)
            ended = _numbers(filesystem, f"{path}/commits")

            def at(batch: int) -> Reach:
                with filesystem.open_input_stream(f"{path}/offsets/{batch}") as file:
                    return position(file.read().decode())

            last_but_one = at(begun[max(0, len(begun) - 2)])
            return Reach(last_but_one.log, at(begun[-1]).rows if begun[-1] in ended else last_but_one.rows)

    def _begun(self, flow: str) -> list[int]:
        """The batches in a stream's checkpoint, ended or not."""
        with told(self.checkpoint(flow), _UNREADABLE):
            filesystem, path = self._folder(flow)
            return _numbers(filesystem, f"{path}/offsets")

    def _folder(self, flow: str) -> tuple[fs.FileSystem, str]:
        uri = self.checkpoint(flow)
        return fs.FileSystem.from_uri(uri) if "://" in uri else (fs.LocalFileSystem(), uri)


def position(offsets: str) -> Reach:
    """What a stream at an offset of Delta's source needs. `offsets` is a file of its checkpoint, whose last line is
    that of its one source."""
    offset = json.loads(offsets.strip().splitlines()[-1])
    version = int(offset["reservoirVersion"])
    if offset["isStartingVersion"]:
        # It reads the whole table as of a version, and of its files some may be still to be read.
        return Reach(version, 0)
    read = max(0, version - 1)
    return Reach(read, read)


def _found_nothing(query: StreamingQuery, since: float) -> bool:
    """Whether a stream looked for rows after a moment, and there were none that it did not have."""
    progress = query.lastProgress
    if progress is None or progress.sources[0].startOffset != progress.sources[0].endOffset:
        return False
    return dt.datetime.fromisoformat(progress.timestamp).timestamp() > since


def _numbers(filesystem: fs.FileSystem, folder: str) -> list[int]:
    found = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return sorted(int(info.base_name) for info in found if info.base_name.isdigit())


def source(flow: str) -> str:
    """The name of the table that a flow's streams read."""
    return f"landing/{flow}"
