"""A list of revoked certificates that came over MQTT: checked by root, and stored for links and agent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from edgert.boards.files import PUBLIC, write
from edgert.boards.revocation import MOST_BYTES, is_newer_untrusted
from edgert.cli.board.requests import left_untrusted
from edgert.core.errors import EdgertError

LEFT: Final = Path("/run/edgert/crl.request")
IDENTITY: Final = Path("/var/edgert/identity")


def take(left: Path = LEFT, identity: Path = IDENTITY) -> str:
    """Stores the list that the gateway left, if it is a later one of the board's CA. Returns what was done; raises
    `EdgertError` for a list that is none of ours."""
    content = left_untrusted(left, MOST_BYTES)
    if content is None:
        return "no list of revoked certificates has come"
    stored = identity / "crl.pem"
    own, root = _read(identity / "board.pem"), _read(identity / "ca.pem")
    if not own or not root:
        raise EdgertError(f"{identity}: expected a board with an identity, got none: a list cannot be checked")
    if not is_newer_untrusted(content, own, root, _read(stored)):
        return "the list of revoked certificates is not later than that of the board"
    write(stored, content, PUBLIC)
    os.sync()
    return f"{stored}: a later list of revoked certificates"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
