"""Commits of tables in folders of this machine, brought to the disk: what is acknowledged has to outlive a power cut.

`deltalake` leaves it to the kernel when what it wrote gets there, half a minute later perhaps. An object store has what
it has confirmed, so nothing is done there. Whatever is gone meanwhile, by upkeep, is not needed any more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote

_LOG: Final = "_delta_log"
_CHECKPOINT: Final = ".checkpoint.parquet"
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
        first = self._done + 1 or _newest_checkpoint(self._folder, version)
        for number in range(first, version + 1):
            sync_commit(self._folder, number)
        self._done = version


def folder_of(uri: str) -> Path | None:
    """Of a table on this machine; None: it lies in a store."""
    path = uri.removeprefix("file://")
    return None if "://" in path else Path(path)


def sync_commit(folder: Path, version: int) -> None:
    """The files that one commit added, then the commit, so that it never names what is not there; and their folders."""
    log = folder / _LOG
    entry = log / f"{version:020}.json"
    with suppress(FileNotFoundError):
        files = [folder / path for path in _added(entry)]
        _sync_files(files)
        above = (folder.parent, folder.parent.parent) if version == 0 else ()
        _sync_files([entry, *{file.parent for file in files}, folder, log, *above])
    sync_checkpoint(folder, version)


def sync_checkpoint(folder: Path, version: int) -> None:
    """The checkpoint of a version, if there is one."""
    log = folder / _LOG
    checkpoint = log / f"{version:020}{_CHECKPOINT}"
    if checkpoint.exists():
        _sync_files([checkpoint, log / "_last_checkpoint", log])


def _added(entry: Path) -> Iterator[str]:
    for line in entry.read_text(encoding="utf-8").splitlines():
        add = json.loads(line).get("add")
        if add:
            yield unquote(add["path"])


def _newest_checkpoint(folder: Path, version: int) -> int:
    names = [name.removesuffix(_CHECKPOINT) for name in os.listdir(folder / _LOG) if name.endswith(_CHECKPOINT)]
    return max((int(name) for name in names if name.isdigit() and int(name) <= version), default=0)


def _sync_files(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            opened = os.open(path, os.O_RDONLY)
            try:
                sync(opened)
            finally:
                os.close(opened)
