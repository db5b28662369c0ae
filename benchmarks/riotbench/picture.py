"""The picture: CPU per row, and the rates borne."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks import bars
from benchmarks.report import Report

PANELS: Final = (("µs/row", 1.0, "µs of CPU per row"), ("rows/s", 1e3, "thousand rows per second"))


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png."""
    return bars.draw(report, folder, PANELS)
