"""A job as a registered reader: how far its Spark streams have read the landing tables.

How far that is is read from a stream's own checkpoint, since that is what it goes on from after a crash. A version says
little by itself: of a landing table that was put back from an older copy the same numbers are given again, and what is
new would be taken for read. So beside the checkpoint stands which commit it was.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyarrow import fs

from edgert.central.tables.readers import FLEET_JOB, Reach, Readers
from edgert.central.tables.table import Table, TableError, join, told
from edgert.core.errors import EdgertError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)
_UNREADABLE: Final = "the stream's checkpoint could not be read"
_COMMIT: Final = "landing-commit.json"
"""In a stream's checkpoint, where Spark does not look."""
_GONE: Final = "gone"
_NONE: Final = "none"


class Torn(EdgertError):
    """A checkpoint has a file that says nothing, as a power cut leaves it: no stream goes on from there."""


class StreamReader:
    """One per name, whose job has the lease; a stream per flow, whose checkpoint is in `folder` under the root. Raises
    `TableError` and `CommitConflict` for tables and register."""

    def __init__(
        self, root: str, name: str = FLEET_JOB, folder: str = "fleet", wall: Callable[[], float] = time.time
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

    def ready(self, flow: str, anew: str = "") -> str:
        """Before a stream starts. One that has no position, is not in the register or was left behind there, or whose
        position is none any more, reads the table from its beginning; so does one that is to begin `anew` for another
        reason. Returns why a position was given up, in words ("": none was)."""
        known = [r for r in self._readers.all() if (r.reader, r.table) == (self._reader, source(flow))]
        why = ""
        if self._begun(flow):
            self.look(flow)
            # What the checkpoint wants next may be gone.
            why = "not registered any more" if not known or known[0].left else anew or self._lost(flow)
            if not why:
                return ""
        with told(self.checkpoint(flow), "the stream's checkpoint could not be deleted"):
            filesystem, path = opened(self.checkpoint(flow))
            if filesystem.get_file_info(path).type == fs.FileType.Directory:
                filesystem.delete_dir(path)
        # Whatever the register says was read up to here: what this stream reads again must stay until it has.
        self._readers.begin(self._reader, source(flow))
        self._read.pop(flow, None)
        return why

    def checkpoint(self, flow: str) -> str:
        """Where Spark keeps the position of a flow's stream."""
        return join(self._root, "_spark", self._checkpoints, flow)

    def read_version(self, flow: str) -> int:
        """The newest version of a landing table of which the stream has read all rows (-1: of none). It changes
        nothing, so others than the job may ask."""
        self.look(flow)
        with told(self.checkpoint(flow), _UNREADABLE):
            filesystem, path = opened(self.checkpoint(flow))
            ended = _numbers(filesystem, f"{path}/commits")
            if not ended or self._lost(flow):
                return -1
            offset = _offset(_text(filesystem, f"{path}/offsets/{ended[-1]}"))
        return -1 if offset["isStartingVersion"] else int(offset["reservoirVersion"]) - 1

    def look(self, flow: str) -> int:
        """The version of a landing table, noted: who looks for rows after this call finds all of it."""
        table = self._landing.setdefault(flow, Table(join(self._root, "landing", flow)))
        table.refresh()
        self._looked[flow] = (self._wall(), table.at())
        return table.at()

    def tell(self, queries: Mapping[str, StreamingQuery]) -> set[str]:
        """Register how far running streams are. Returns the flows that must begin anew: they were left behind, or have
        no position any more. One whose table or checkpoint cannot be read keeps its row as it is, and the others are
        told."""
        lost: set[str] = set()
        reaches: dict[str, Reach | None] = {}
        for flow, query in queries.items():
            since, version = self._looked.get(flow, (float("inf"), 0))
            if _found_nothing(query, since):
                self._read[flow] = version
            try:
                self.look(flow)
                if self._lost(flow):
                    self.look(flow)  # it may have read what landed after the first look
                if why := self._lost(flow):
                    log.warning("%s: %s: %s", self._reader, source(flow), why)
                    lost.add(flow)
                else:
                    reaches[flow] = self._reach(flow)
            except TableError as error:
                log.warning("%s: the register was not told how far %s is: %s", self._reader, source(flow), error)
        return lost | self._register(reaches)

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
        position = self._position(flow)
        if position is None:
            return None
        self._keep_commit(flow, _newest(position))
        return Reach(position.log, max(position.rows, self._read.get(flow, 0)))

    def _position(self, flow: str) -> Reach | None:
        """The versions that a stream needs which goes on from its checkpoint (None: it has none yet). It makes the
        frame of its last batch once more, and runs it unless it was committed.

        It makes the frame of its last batch once more, and runs it unless it was committed.
        """
        begun = self._begun(flow)
        if not begun:
            return None
        texts: list[str] = []
        with told(self.checkpoint(flow), _UNREADABLE):
            filesystem, path = opened(self.checkpoint(flow))
            ended = _numbers(filesystem, f"{path}/commits")
            if filesystem.get_file_info(f"{path}/metadata").size == 0:
                raise Torn(f"{path}/metadata: expected the stream's name, found nothing")
            for batch in begun[-2:]:
                texts.append(_text(filesystem, f"{path}/offsets/{batch}"))
            if ended and not _text(filesystem, f"{path}/commits/{ended[-1]}").strip():
                raise Torn(f"{path}/commits/{ended[-1]}: expected a batch, found nothing")
        try:
            last_but_one, last = position(texts[0]), position(texts[-1])
        except (ValueError, LookupError, TypeError) as error:
            raise Torn(f"{path}/offsets: expected positions in a table: {error!r}") from error
        return Reach(last_but_one.log, last.rows if begun[-1] in ended else last_but_one.rows)

    def _lost(self, flow: str) -> str:
        """Why a stream cannot go on from its checkpoint, as of the last look at its table ("": it can)."""
        try:
            position = self._position(flow)
        except Torn as error:
            return f"its checkpoint is torn ({error})"
        if position is None:
            return ""
        kept = self._kept(flow)
        same = kept is None or self._commit(flow, kept["version"]) in (_GONE, kept["commit"])
        if (
            same
            and _newest(position) <= self._landing[flow].at()
            and self._table_of(flow) in ("", self._landing[flow].id())
        ):
            return ""
        return "its table was removed or put back from an older copy"

    def _table_of(self, flow: str) -> str:
        """Delta's id of the table that a stream reads ("": its checkpoint does not say)."""
        with told(self.checkpoint(flow), _UNREADABLE):
            filesystem, path = opened(self.checkpoint(flow))
            return str(_offset(_text(filesystem, f"{path}/offsets/{self._begun(flow)[-1]}")).get("reservoirId", ""))

    def _commit(self, flow: str, version: int) -> str:
        """An identifier of a landing table's commit, different from any other of its number (`_GONE`: the log begins
        later by now; `_NONE`: there is none yet)."""
        folder = join(self._root, "landing", flow, "_delta_log")
        with told(folder, "a commit could not be read"):
            filesystem, path = opened(folder)
            entry = f"{path}/{version:020}.json"
            if filesystem.get_file_info(entry).type == fs.FileType.File:
                return hashlib.blake2s(_text(filesystem, entry).encode()).hexdigest()
            found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
            numbers = [int(info.base_name[:20]) for info in found if info.base_name[:20].isdigit()]
            return _GONE if max(numbers, default=-1) > version else _NONE

    def _kept(self, flow: str) -> dict[str, Any] | None:
        """Which commit of the landing table the stream had read when it last told (None: not known)."""
        with told(self.checkpoint(flow), _UNREADABLE):
            filesystem, path = opened(f"{self.checkpoint(flow)}/{_COMMIT}")
            if filesystem.get_file_info(path).type != fs.FileType.File:
                return None
            try:
                kept = json.loads(_text(filesystem, path))
                return {"version": int(kept["version"]), "commit": str(kept["commit"])}
            except (ValueError, LookupError, TypeError):
                return None  # torn

    def _keep_commit(self, flow: str, version: int) -> None:
        kept = self._kept(flow)
        if kept is not None and kept["version"] == version:
            return
        commit = self._commit(flow, version)
        if commit in (_GONE, _NONE):
            return
        with told(self.checkpoint(flow), "the stream's position could not be noted"):
            filesystem, path = opened(f"{self.checkpoint(flow)}/{_COMMIT}")
            with filesystem.open_output_stream(path) as file:
                file.write(json.dumps({"version": version, "commit": commit}).encode())

    def _begun(self, flow: str) -> list[int]:
        """The batches in a stream's checkpoint, ended or not."""
        with told(self.checkpoint(flow), _UNREADABLE):
            filesystem, path = opened(self.checkpoint(flow))
            return _numbers(filesystem, f"{path}/offsets")


def position(offsets: str) -> Reach:
    """The versions that a stream at an offset of Delta's source needs. `offsets` is a file of its checkpoint, whose
    last line is that of its one source."""
    offset = _offset(offsets)
    version = int(offset["reservoirVersion"])
    if offset["isStartingVersion"]:
        # It reads the whole table as of a version, and of its files some may be still to be read.
        return Reach(version, 0)
    read = max(0, version - 1)
    return Reach(read, read)


def _offset(offsets: str) -> dict[str, Any]:
    offset: dict[str, Any] = json.loads(offsets.strip().splitlines()[-1])
    return offset


def _newest(position: Reach) -> int:
    """The newest version that is needed, or was read."""
    return max(position.log, position.rows)


def opened(uri: str) -> tuple[fs.FileSystem, str]:
    """The filesystem of a folder or URI, and the path in it."""
    return fs.FileSystem.from_uri(uri) if "://" in uri else (fs.LocalFileSystem(), uri)


def _text(filesystem: fs.FileSystem, path: str) -> str:
    with filesystem.open_input_stream(path) as file:
        return str(file.read().decode(errors="replace"))


def _found_nothing(query: StreamingQuery, since: float) -> bool:
    """True if a stream looked for rows after a moment, and there were none that it did not have."""
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
