"""The wall clock of a process under test, which follows a file."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path

STARTUP = Path(__file__).parent / "clock"


def environment(file: Path) -> Mapping[str, str]:
    """For a process whose wall clock is to follow `file`."""
    set_offset(file, 0.0)
    known = os.environ.get("PYTHONPATH")
    return {"EDGERT_FAULTS_CLOCK": str(file), "PYTHONPATH": f"{STARTUP}:{known}" if known else str(STARTUP)}


def set_offset(file: Path, seconds_: float) -> None:
    """In place: processes have the file mapped."""
    number = os.open(file, os.O_WRONLY | os.O_CREAT)
    try:
        os.pwrite(number, struct.pack("d", seconds_), 0)
    finally:
        os.close(number)
