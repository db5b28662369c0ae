"""The picture: rows and messages per second by slots, and CPU per message by program."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks import bars
from benchmarks.report import Report

PANELS: Final = (
    ("rows/s", 1e3, "thousand rows per second"),
    ("messages/s", 1e3, "thousand messages per second behind a broker"),
    ("µs/message", 1.0, "µs of CPU per message"),
)


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png."""
    return bars.draw(report, folder, PANELS)
