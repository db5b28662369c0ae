"""The agent's files: the fleet's keys, the restart epoch, and hellos that were taken (the door to the disk)."""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
import stat
import zlib
from pathlib import Path
from typing import Final

from edgert.boards.files import sync, write
from edgert.core.errors import EdgertError
from edgert.core.text.key_lines import KeyFileError, parse_keys

log = logging.getLogger(__name__)
EPOCH_FILE: Final = "agent.epoch"
HELLO_FILE: Final = "agent.hellos"
MAX_KEY_FILE: Final = 65_536
MAX_SENDERS: Final = 4_096


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


def read_identity(certificate: Path, key: Path) -> tuple[bytes, bytes]:
    """The certificate of this board, with that of its CA, and its key. Raises `EdgertError`."""
    try:
        return certificate.read_bytes(), key.read_bytes()
    except OSError as error:
        raise EdgertError(
            f"agent.certificate {certificate}, agent.private_key {key}: expected this board's certificate and its key:"
            f" {error.strerror or error}"
        ) from error


def read_revoked(path: Path) -> frozenset[str]:
    """The boards that a list of revoked certificates names. Raises `EdgertError` where it cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise EdgertError(
            f"agent.crl_file {path}: expected the fleet's list of revoked certificates: {error.strerror or error}"
        ) from error
    from edgert.boards.revocation import revoked_names_untrusted  # needs `cryptography`, a simulation does not

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


class HelloMemory:
    """The newest hello for an address of this agent of each of the last `MAX_SENDERS` senders. It names no start of the
    agent, so a restart must not forget it."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: that of the file, which is begun anew where it is damaged; None: nothing outlives the process."""
        self.newest: dict[str, tuple[int, int]] = {}
        """Sender -> its epoch and counter."""
        self._path = path = folder and folder / HELLO_FILE
        self._stored = b""
        self._storing = asyncio.Lock()
        if path is not None and path.exists():
            try:
                self.newest = _parsed(path.read_bytes())
            except (OSError, ValueError) as error:
                log.warning("%s: expected what this agent wrote: %s; it is begun anew", path, error)

    async def keep(self, sender: str, epoch: int, counter: int) -> None:
        """Stores a hello, before it is answered. Raises `EdgertError`."""
        self.newest[sender] = max(self.newest.pop(sender, (0, 0)), (epoch, counter))
        if len(self.newest) > MAX_SENDERS:
            del self.newest[next(iter(self.newest))]
        if self._path is None:
            return
        async with self._storing:
            content = _packed(self.newest)
            if content == self._stored:
                return
            try:
                await asyncio.to_thread(write, self._path, content)
            except EdgertError as error:
                log.warning("the hello of %s is not answered: %s", sender, error)
                raise
            self._stored = content


def _packed(newest: dict[str, tuple[int, int]]) -> bytes:
    lines = "".join(f"{name} {epoch} {counter}\n" for name, (epoch, counter) in newest.items()).encode()
    return b"%08x\n" % zlib.crc32(lines) + lines


def _parsed(content: bytes) -> dict[str, tuple[int, int]]:
    checksum, _, lines = content.partition(b"\n")
    if checksum != b"%08x" % zlib.crc32(lines):
        raise ValueError("its checksum is another")
    found = (line.split() for line in lines.decode().splitlines())
    return {name: (int(epoch), int(counter)) for name, epoch, counter in found}
