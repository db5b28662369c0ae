"""The mark of a factory reset, on the data partition.

The first script of the next start (images/initramfs.py) removes all data of the board, and the mark last.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from edgert.boards.files import sync, write

MARK: Final = Path("/var/factory-reset")


def order() -> None:
    """Has the next start reset the board, also after a power cut. Raises `EdgertError`."""
    write(MARK, b"")


def withdraw() -> None:
    MARK.unlink(missing_ok=True)
    sync(MARK.parent)
