"""The door to small files: written whole or not at all, across a power cut too, and for their owner alone."""

from __future__ import annotations

import codecs
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from edgert.core.errors import EdgertError

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644


class FileError(EdgertError):
    """A file cannot be read or written. The message names it, and is for people of this machine only."""


def write(path: Path, content: bytes, mode: int = PRIVATE, group: int | None = None) -> None:
    """Writes or replaces a file, durably. It has `mode` from its first byte on, and members of `group` read it, too.
    Raises `EdgertError`."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            if group is not None:
                os.fchown(descriptor, -1, group)
                mode |= 0o040
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        part.replace(path)
        sync(path.parent)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from error


def sync(folder: Path) -> None:
    """Has the folder's names on the disk: else a power cut brings the file back that was replaced. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system without it, as a share of another machine
            raise
    finally:
        os.close(descriptor)


def read(path: str | Path, what: str = "a readable file") -> bytes:
    """The content of a text file, without a byte-order mark. Raises `EdgertError` with `what` it should be."""
    try:
        return Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise FileError(f"{path}: expected {what}: {error.strerror or error}") from error


def folder(path: Path) -> None:
    """Makes a folder that only its owner enters, if it is not there. Raises `EdgertError`."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{path}: expected a folder, or none yet: {error.strerror or error}") from error


def own_folder(path: Path) -> None:
    """Makes a folder, if it is not there, and sees that no other user can put something into it or in its place. Raises
    `EdgertError`."""
    folder(path)
    try:
        real = path.resolve(strict=True)
        for each in (real, *real.parents):
            found = each.stat()
            others = stat.S_IWOTH | (0 if found.st_gid in (0, os.getegid()) else stat.S_IWGRP)
            written = found.st_mode & others and (each == real or not found.st_mode & stat.S_ISVTX)
            if written or found.st_uid not in ((os.geteuid(),) if each == real else (0, os.geteuid())):
                raise EdgertError(
                    f"{path}: expected a folder that only user {os.geteuid()} can change, got {each} of user "
                    f"{found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}: give another folder"
                )
    except OSError as error:
        raise EdgertError(f"{path}: {error.strerror or error}") from error


def open_own(path: Path, flags: int) -> int:
    """Opens a plain file of this user; a new one is private. Raises `OSError`, for a link, a pipe, and a file that
    another user owns or may write, too."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, PRIVATE)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & stat.S_IWOTH:
        return descriptor
    os.close(descriptor)
    raise PermissionError(
        errno.EPERM, f"expected a plain file of user {os.geteuid()}, got mode {found.st_mode:o} of user {found.st_uid}"
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One program at a time works in the folder `path`. Raises `EdgertError` if another one does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise EdgertError(f"{path}: expected a folder made by `edgert fleet ca init`: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise EdgertError(f"{path}: another program works with this CA; try again when it has ended") from error
        yield
    finally:
        os.close(descriptor)
