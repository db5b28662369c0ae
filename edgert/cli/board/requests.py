"""The door between the gateway and root on a board: the gateway leaves a request for an update, root tells the state.

The gateway's user owns the folder of the request, so root follows no link in it and believes nothing of it. What root
tells stands in a folder of its own, in memory, for everybody to read.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

from edgert.boards.board_state import BoardState, UpdateProgress, after_start
from edgert.boards.files import PUBLIC, folder, sync, write
from edgert.boards.requests import MOST_BYTES, UpdateRequest, read_request_untrusted
from edgert.cli.board import slots
from edgert.core.errors import EdgertError

REQUEST: Final = Path("/run/edgert/update.request")
STATE: Final = Path("/run/edgert-update/state.json")
ACCEPTED: Final = "request.json"
"""On the data partition, until the installation has ended: an attempt that the power cuts off is begun again."""
UNIT: Final = "edgert-update.service"


def take_untrusted() -> UpdateRequest | None:
    """The request that the gateway left, which is then gone. Raises `EdgertError` for what is none."""
    content = left_untrusted(REQUEST, MOST_BYTES)
    return None if content is None else read_request_untrusted(content)


def left_untrusted(path: Path, most_bytes: int) -> bytes | None:
    """The first `most_bytes` + 1 bytes of a file that the gateway left, which is then gone; None: there is none. Raises
    `EdgertError` for a link, a pipe, and all that is no plain file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        _remove(path)
        raise EdgertError(f"{path}: expected a plain file: {error.strerror}") from None
    try:
        _remove(path)  # whatever it is: the unit would be started for it again and again
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise EdgertError(f"{path}: expected a plain file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most_bytes + 1)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:  # a folder, and there may have been one before
        path.rename(path.with_name(f"{path.name}.none-{secrets.token_hex(8)}"))


def accept(request: UpdateRequest, attempts: int) -> None:
    """Notes a request and how often it was begun."""
    folder(slots.NOTES)
    write(slots.NOTES / ACCEPTED, json.dumps({"request": request.text(), "attempts": attempts}).encode())


def accepted() -> tuple[UpdateRequest, int] | None:
    """The request that is not installed yet, and how often it was begun."""
    try:
        plain = json.loads((slots.NOTES / ACCEPTED).read_bytes())
        return read_request_untrusted(plain["request"].encode()), int(plain["attempts"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EdgertError):
        return None


def done() -> None:
    """Removes the request: nothing of it is left to do."""
    (slots.NOTES / ACCEPTED).unlink(missing_ok=True)
    if slots.NOTES.is_dir():
        sync(slots.NOTES)


def start_unit() -> None:
    """Begins again what was cut off."""
    subprocess.run(["systemctl", "start", "--no-block", UNIT], check=False)


def tell_last() -> None:
    """Tells the last update as the history has it."""
    tell(after_start(slots.history(), slots.pending(), slots.slot()))


def tell(update: UpdateProgress | None) -> None:
    """Says how the board is, and its last update. An update does not fail for that."""
    about = slots.about()
    refuses = "" if about.get("updates") else f"board {about.get('board', 'unknown')} always starts slot A"
    state = BoardState(slots.slot(), str(about.get("version", "")), refuses, update)
    try:
        folder(STATE.parent)
        STATE.parent.chmod(0o755)
        write(STATE, state.text().encode(), PUBLIC)
    except (OSError, EdgertError) as error:
        print(f"{STATE}: the state of the update is not told: {error}", file=sys.stderr)
