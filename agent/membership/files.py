"""The agent's files: the fleet's keys and the restart epoch (the door to the disk)."""

from __future__ import annotations

import codecs
import os
import stat
from pathlib import Path
from typing import Final

from edgert.boards.files import sync
from edgert.boards.revocation import revoked_names_untrusted
from edgert.core.errors import EdgertError
from edgert.core.text.key_lines import KeyFileError, parse_keys

EPOCH_FILE: Final = "agent.epoch"
MAX_KEY_FILE: Final = 65_536


def read_keys(path: Path) -> list[bytes]:
    """The keys in a key file. Raises `KeyFileError` where it cannot be read, or others may read it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(MAX_KEY_FILE).removeprefix(codecs.BOM_UTF8).decode("ascii", "replace")
    except OSError as error:
        raise KeyFileError(
            f"agent.key_file {path}: expected the fleet's key file: {error.strerror or error}; make one with: "
            "edgert fleet key FILE, and copy it to the other boards of the fleet"
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and not _is_credential(path):
        raise KeyFileError(
            f"agent.key_file {path}: expected a file that only its owner may read; run: chmod 600 {path}"
        )
    return parse_keys(text, f"agent.key_file {path}")


def _is_credential(path: Path) -> bool:
    """A file that systemd handed to this service alone. The access list that says so shows in the mode of the group."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "")
    return folder != "" and path.parent == Path(folder)


def read_revoked(path: Path) -> frozenset[str]:
    """The boards that a list of revoked certificates names. Raises `EdgertError` where it cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise EdgertError(
            f"agent.crl_file {path}: expected the fleet's list of revoked certificates: {error.strerror or error}"
        ) from error
    return revoked_names_untrusted(content, f"agent.crl_file {path}")


def stamp(path: Path) -> tuple[int, int, int]:
    """Values that change when a file is written or replaced; zeros where there is none."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_mtime_ns, status.st_size, status.st_ino


def next_epoch(folder: Path, wall: float) -> int:
    """The restart epoch of this start: greater than the stored one, and no less than the wall clock's seconds, so that
    a lost file does no harm where the clock is right. Stores it. Raises `EdgertError` where that fails."""
    path = folder / EPOCH_FILE
    try:
        stored = int(path.read_text(encoding="ascii")[:20])
    except (OSError, ValueError):
        stored = 0
    epoch = max(stored + 1, int(wall))
    store_epoch(folder, epoch)
    return epoch


def store_epoch(folder: Path, epoch: int) -> None:
    """Replace the stored epoch, durably."""
    path = folder / EPOCH_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, f"{epoch}\n")
    except OSError as error:
        raise EdgertError(f"{path}: the restart epoch cannot be stored: {error.strerror or error}") from error


def replace_file(path: Path, text: str) -> None:
    """Replaces the content of a file, durably. Raises `OSError`."""
    temporary = path.with_suffix(".new")
    with temporary.open("w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync(path.parent)
