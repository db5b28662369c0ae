"""A file of the data folder that is harmed, and the number of messages that the product says are missing for it."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

FILES: Final = ("gateway.db", "gateway.db-wal", "gateway.db-shm", "gateway.db.mark", "gateway.db.lock")
Harm = Callable[[Path, Path, int], None]
"""(file, folder with the files as they were earlier, seed)."""


def delete(path: Path, yesterday: Path, seed: int) -> None:
    path.unlink(missing_ok=True)


def empty(path: Path, yesterday: Path, seed: int) -> None:
    path.write_bytes(b"")


def cut(path: Path, yesterday: Path, seed: int) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path, yesterday: Path, seed: int) -> None:
    """20 bits."""
    raw, draw = bytearray(path.read_bytes()), random.Random(seed)
    for _ in range(20 if raw else 0):
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
    path.write_bytes(raw)


def yesterdays(path: Path, yesterday: Path, seed: int) -> None:
    shutil.copy(yesterday / path.name, path)


def log_and_mark(path: Path, yesterday: Path, seed: int) -> None:
    for beside in ("-wal", ".mark"):
        Path(f"{path}{beside}").unlink()


def log_and_mark_flipped(path: Path, yesterday: Path, seed: int) -> None:
    Path(f"{path}-wal").unlink()
    flip(Path(f"{path}.mark"), yesterday, seed)


def all_yesterdays(path: Path, yesterday: Path, seed: int) -> None:
    """Of a card or a backup that is put back."""
    for name in FILES:
        (path.parent / name).unlink(missing_ok=True)
        if (yesterday / name).exists():
            shutil.copy(yesterday / name, path.parent / name)


HARMS: Final[tuple[Harm, ...]] = (delete, empty, cut, flip, yesterdays)


def keep(folder: Path, yesterday: Path) -> None:
    """Copies the files as they are now to the folder `yesterday`."""
    yesterday.mkdir(exist_ok=True)
    for name in FILES:
        if (folder / name).exists():
            shutil.copy(folder / name, yesterday / name)


def messages_said(texts: Iterable[str]) -> int:
    """How many messages at most are missing as these texts of the log, the status or the table `gaps` say. One text
    counts once, however many flows or starts repeat it."""
    parts = {part for text in texts for part in text.split("; and before that, ")}
    counts = (re.search(r"up to ([\d,]+) messages", part) for part in parts)
    return sum(int(found[1].replace(",", "")) for found in counts if found)


def dropped(status: Mapping[str, Any], reason: str) -> int:
    """Messages or rows that the gateway counts as dropped for this reason, since its start."""
    return sum(drop["rows"] for drop in status["drops"] if drop["reason"] == reason)
