"""The picture: latency, results and spread of queues against rate, a line per policy."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Final

from benchmarks.pictures import save
from benchmarks.report import Report

PANELS: Final = {
    "mean_ms": "mean latency, ms",
    "p99_ms": "p99 latency, ms",
    "results": "results per second",
    "spread": "spread of queues, rows",
}


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png from the report's curves: medians, and from the least to the greatest."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    picture, panels = plt.subplots(1, len(PANELS), figsize=(16, 4), layout="constrained")
    for axes, (key, label) in zip(panels, PANELS.items(), strict=True):
        for number, (policy, of_parts) in enumerate(report.curves.items()):
            parts = [float(part) for part in of_parts]
            seen = [[point[key] for point in points if point[key] is not None] for points in of_parts.values()]
            name, colour = ("the OS", "black") if policy == "none" else (policy, f"C{number}")
            axes.plot(parts, list(map(statistics.median, seen)), color=colour, marker="o", markersize=3, label=name)
            axes.fill_between(parts, list(map(min, seen)), list(map(max, seen)), color=colour, alpha=0.1, linewidth=0)
        axes.set_xlabel("load, part of all cores")
        axes.set_ylabel(label)
        if key != "results":
            axes.set_yscale("log")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False)
    return save(picture, report, folder)
