"""A folder per board with its provisioning file, as the first boot of a card takes it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

from edgert.boards import files
from edgert.boards.authority import LEAST_LIFE, Authority, Issued
from edgert.boards.certificates import EARLIER
from edgert.boards.table import OF_THE_CA, BoardLine, Document
from edgert.core.errors import EdgertError
from edgert.core.text_files import ENCODING
from edgert.core.toml import to_toml

FILE: Final = "edgert.toml"
BundleState = Literal["made", "updated", "kept", "refused"]
"""made: with a new certificate; updated: with the same one; kept: nothing had changed."""


@dataclass(frozen=True, slots=True)
class BoardResult:
    """One board of a run."""

    board: str
    line: int
    state: BundleState
    file: str = ""
    bytes: int = 0
    error: str = ""
    warning: str = ""


def provision(
    authority: Authority,
    boards: Sequence[BoardLine],
    out: Path,
    now: datetime,
    life: timedelta,
    progress: Callable[[BoardResult], None],
) -> list[BoardResult]:
    """Writes `out/<board>/edgert.toml` for each board. A file that is there keeps its certificate if that is good, and
    stays as it is if nothing else changed. May be cut off at any time and run again."""
    files.folder(out)
    results = []
    for board in boards:
        try:
            result = _one(authority, board, out / board.name, now, life)
        except EdgertError as error:
            result = BoardResult(board.name, board.line, "refused", error=str(error))
        results.append(result)
        progress(result)
    return results


def _one(authority: Authority, board: BoardLine, folder: Path, now: datetime, life: timedelta) -> BoardResult:
    path = folder / FILE
    before = path.read_bytes() if path.exists() else b""
    identity, state, warning = _identity(authority, board.name, before, now), "updated", ""
    if identity is None:
        warning = in_use(authority, board.name, now)
        identity, state = authority.board(board.name, now, life), "made"
    text = document(authority, board.name, board.settings, identity).encode()
    if text == before:
        state = "kept"
    else:
        files.folder(folder)
        files.write(path, text)
    found: Any = state
    return BoardResult(board.name, board.line, found, str(path), len(text), warning=warning)


def in_use(authority: Authority, name: str, now: datetime) -> str:
    """Returns a warning where a new certificate of a board is not the only one that is good; else empty."""
    found = [one for one in authority.of_board(name) if now + LEAST_LIFE <= one.not_valid_after_utc]
    if not found:
        return ""
    made = max(one.not_valid_before_utc + EARLIER for one in found)
    return (
        f"{name} has a certificate of {made:%Y-%m-%d %H:%M} UTC, which stays valid: "
        "if another board has that name, give this one a new name before it starts"
    )


def document(authority: Authority, name: str, settings: Document, identity: Issued) -> str:
    """The provisioning file of the board `name`."""
    keys = {**authority.identity(name, identity.certificate), "key": identity.key.decode()}
    gateway = {**settings.get("gateway", {}), "fleet": authority.fleet}
    return to_toml({"gateway": gateway, **{k: v for k, v in settings.items() if k != "gateway"}, OF_THE_CA: keys})


def _identity(authority: Authority, name: str, text: bytes, now: datetime) -> Issued | None:
    """The identity in an earlier file, if it is still good."""
    try:
        keys = tomllib.loads(text.decode(ENCODING))[OF_THE_CA]
        found = Issued(keys["certificate"].encode(), keys["key"].encode())
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if authority.still_good(name, found.certificate, found.key, now) else None
