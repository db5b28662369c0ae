"""The text of a key file: one key per line, base64 of 32 random bytes. The first key is the one in use."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from edgert.core.errors import EdgertError

KEY_BYTES: Final = 32
MAX_KEYS: Final = 8


class KeyFileError(EdgertError):
    """The text of a key file is not as it must be. The message never shows a key."""


def key_line(secret: bytes) -> str:
    """A key as a line of a key file, without the end of the line."""
    return base64.b64encode(secret).decode()


def parse_keys(text: str, where: str, command: str = "edgert fleet key") -> list[bytes]:
    """The keys in the text of the file `where`, the one in use first; empty lines and lines that begin with # do not
    count. `command` makes such a file. Raises `KeyFileError`."""
    keys: list[bytes] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        try:
            secret = base64.b64decode(line, validate=True)
        except (binascii.Error, ValueError):
            secret = b""
        if len(secret) != KEY_BYTES:
            raise KeyFileError(
                f"{where}, line {number}: expected base64 of {KEY_BYTES} bytes (a key), got another text"
            )
        if secret not in keys:
            keys.append(secret)
    if not 0 < len(keys) <= MAX_KEYS:
        raise KeyFileError(f"{where}: expected 1 to {MAX_KEYS} keys, got {len(keys)}; make one: {command}")
    return keys
