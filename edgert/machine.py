"""The machine that a program of ours runs on: its id, and the service manager (a door)."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

from edgert.core.errors import EdgertError
from edgert.core.ids import gateway_id

log = logging.getLogger(__name__)


def notify(state: str) -> None:
    """Tells systemd, where it waits for that (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(state.encode(), "\0" + address[1:] if address[0] == "@" else address)
    except OSError as error:
        log.warning("systemd was not told %s: %s", state, error)


def own_gateway_id() -> str:
    """The gateway's id from the machine id, hashed. Raises `EdgertError` where there is none."""
    try:
        return gateway_id(Path("/etc/machine-id").read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise EdgertError(f"gateway.id is not set and /etc/machine-id gives none ({error}): set gateway.id") from None
