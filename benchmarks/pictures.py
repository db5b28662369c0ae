"""What all pictures of benchmarks have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(picture: Figure, report: Report, folder: Path) -> Path:
    """Writes `picture` as NAME.png, with the machine above it, and closes it."""
    from matplotlib import pyplot as plt

    picture.suptitle(f"{report.name}: {report.machine.get('cpu', '')}")
    path = folder / f"{report.name}.png"
    picture.savefig(path, dpi=110)
    plt.close(picture)
    return path
