"""Commits of tables in folders of this machine, brought to the disk: what is acknowledged has to outlive a power cut.

`deltalake` leaves it to the kernel when what it wrote gets there, half a minute later perhaps. An object store has what
it has confirmed, so nothing is done there. Whatever is gone meanwhile, by upkeep, is not needed any more; but what a
commit added, and none removed since, must be there in full: the power may have failed before anybody came to this.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

_LOG: Final = "_delta_log"
_CHECKPOINT: Final = ".checkpoint.parquet"
_LOCAL: Final = "file://"
_MANY: Final = 64
"""Commits since the last look: of more, those that are long since on the disk are left out."""
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
        """Bring all commits up to `version` to the disk, but for those that were there before. Raises `OSError`, also
        if one of them names a file that is not there in full."""
        if self._folder is None or version <= self._done:
            return
        first = self._done + 1
        if self._done < 0 or version - self._done > _MANY:
            first = max(first, _first_young(self._folder, version))
        sync_commits(self._folder, range(first, version + 1))
        self._done = version


def folder_of(uri: str) -> Path | None:
    """Returns the folder of a table on this machine; None for a table in an object store."""
    if uri.startswith(_LOCAL):
        return Path(unquote(uri.removeprefix(_LOCAL)))
    return None if "://" in uri else Path(uri)


def torn_commit(uri: str) -> str:
    """Names the newest commit of a table that is no list of actions, as `; FILE is ...`; empty without one."""
    folder = folder_of(uri)
    if folder is None or not (folder / _LOG).is_dir():
        return ""
    for entry in sorted((folder / _LOG).glob("*.json"), reverse=True)[:_MANY]:
        try:
            if [*_actions(entry)]:
                continue
            fault = "is empty"
        except (OSError, ValueError) as error:
            fault = f"is damaged ({error})"
        return f"; {entry} {fault}: put it back from a copy"
    return ""


def sync_commits(folder: Path, versions: Iterable[int]) -> None:
    """Brings to the disk for each commit the files that it added, then the commit, so that it does not name what is not
    there; then their folders. Raises `OSError`."""
    log = folder / _LOG
    folders: set[Path] = {folder, log}
    added: dict[str, tuple[int, int]] = {}
    """Path -> (size, commit), of what no later one of the commits removed. Not of a commit that has no identifier and
    takes nothing's place: it was not acknowledged."""
    for version in versions:
        if version == 0:
            folders |= {folder.parent, folder.parent.parent}
        entry = log / f"{version:020}.json"
        with suppress(FileNotFoundError):
            actions = list(_actions(entry))
            owed = any("txn" in action or "remove" in action for action in actions)
            for action in actions:
                if remove := action.get("remove"):
                    added.pop(unquote(remove["path"]), None)
                elif add := action.get("add"):
                    path = unquote(add["path"])
                    if owed:
                        added[path] = (add["size"], version)
                    _sync([folder / path])
                    folders.add((folder / path).parent)
            _sync([entry])
        sync_checkpoint(folder, version)
    _check(folder, added)
    _sync(folders)


def sync_checkpoint(folder: Path, version: int) -> None:
    """The checkpoint of a version, if there is one."""
    log = folder / _LOG
    checkpoint = log / f"{version:020}{_CHECKPOINT}"
    if checkpoint.exists():
        _sync([checkpoint, log / "_last_checkpoint", log])


def _check(folder: Path, added: Mapping[str, tuple[int, int]]) -> None:
    """Raises `OSError` for the first file that has less than its commit says."""
    for path, (size, version) in added.items():
        try:
            has = (folder / path).stat().st_size
        except FileNotFoundError:
            has = 0
        if has < size and (folder / _LOG / f"{version:020}.json").exists():  # else upkeep took both meanwhile
            raise OSError(
                f"{path}: expected {size} bytes, as commit {version} says, got {has} (did the power fail?): put the "
                f"file back, or take what is numbered {version} and later, and _last_checkpoint, out of {_LOG}: "
                "gateways send again what was not acknowledged, and say in gaps what was"
            )


def _actions(entry: Path) -> Iterator[Mapping[str, Any]]:
    for line in entry.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def _first_young(folder: Path, version: int) -> int:
    """The first of the last commits that may not have been written out when the newest was made: no writer may have
    come to this since, and a machine may have been without power for long."""
    since = 0.0
    with suppress(FileNotFoundError):
        while version >= 0 and (written := (folder / _LOG / f"{version:020}.json").stat().st_mtime) >= since:
            since = since or written - WRITTEN_OUT_S
            version -= 1
    return version + 1


def _sync(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            opened = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        except PermissionError:
            if path.is_dir():
                continue  # one above the root may be closed to this user
            raise
        try:
            sync(opened)
        finally:
            os.close(opened)
