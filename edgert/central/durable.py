"""Commits of tables in folders of this machine, brought to the disk: what is acknowledged has to outlive a power cut.

`deltalake` leaves it to the kernel when what it wrote gets there, half a minute later perhaps. An object store has what
it has confirmed, so nothing is done there. Whatever is gone meanwhile, by upkeep, is not needed any more.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote

_LOG: Final = "_delta_log"
_CHECKPOINT: Final = ".checkpoint.parquet"
WRITTEN_OUT_S: Final = 600.0
"""The kernel leaves nothing that is older to a power cut: by default it writes out what is 30 s old."""
sync = os.fsync


class Durable:
    """One table, and up to which commit it is on the disk."""

    def __init__(self, uri: str) -> None:
        self._folder = folder_of(uri)
        self._done = -1
        """Unknown at first: who made the last commits may have died before he came to this."""

    def reach(self, version: int) -> None:
        """Bring all commits up to `version` to the disk, but for those that were there before. Raises `OSError`."""
        if self._folder is None or version <= self._done:
            return
        first = self._done + 1 or _first_young(self._folder, version)
        folders: set[Path] = set()
        for number in range(first, version + 1):
            folders |= _sync_files_of(self._folder, number)
        _sync(folders)
        self._done = version


def folder_of(uri: str) -> Path | None:
    """Of a table on this machine; None: it lies in a store."""
    path = uri.removeprefix("file://")
    return None if "://" in path else Path(path)


def sync_commit(folder: Path, version: int) -> None:
    """Bring one commit of a table to the disk. Raises `OSError`."""
    _sync(_sync_files_of(folder, version))


def _sync_files_of(folder: Path, version: int) -> set[Path]:
    """The files that a commit added, then the commit, so that it does not name what is not there. Returns their
    folders."""
    log = folder / _LOG
    entry = log / f"{version:020}.json"
    folders = {folder, log, *((folder.parent, folder.parent.parent) if version == 0 else ())}
    with suppress(FileNotFoundError):
        files = [folder / path for path in _added(entry)]
        _sync([*files, entry])
        folders |= {file.parent for file in files}
    sync_checkpoint(folder, version)
    return folders


def sync_checkpoint(folder: Path, version: int) -> None:
    """The checkpoint of a version, if there is one."""
    log = folder / _LOG
    checkpoint = log / f"{version:020}{_CHECKPOINT}"
    if checkpoint.exists():
        _sync([checkpoint, log / "_last_checkpoint", log])


def _added(entry: Path) -> Iterator[str]:
    for line in entry.read_text(encoding="utf-8").splitlines():
        add = json.loads(line).get("add")
        if add:
            yield unquote(add["path"])


def _first_young(folder: Path, version: int) -> int:
    """The first of the last commits that the kernel may not have written out yet."""
    since = time.time() - WRITTEN_OUT_S
    with suppress(FileNotFoundError):
        while version >= 0 and (folder / _LOG / f"{version:020}.json").stat().st_mtime >= since:
            version -= 1
    return version + 1


def _sync(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(FileNotFoundError, PermissionError):  # a folder above the root may be nobody's to open
            opened = os.open(path, os.O_RDONLY)
            try:
                sync(opened)
            finally:
                os.close(opened)
