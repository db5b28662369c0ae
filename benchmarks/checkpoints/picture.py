"""The picture: bytes to the card per hour over the interval."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.pictures import save
from benchmarks.report import Report

WEAR: Final = "MB to the card per hour"
"""The name of the curves: by load, points of interval and MB."""


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png from the report's curves."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    picture, axes = plt.subplots(figsize=(7.5, 4.5), layout="constrained")
    for load, points in report.curves[WEAR].items():
        intervals, hourly = zip(*sorted(points), strict=True)
        axes.plot(intervals, hourly, "o-", label=load)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(intervals, [f"{interval} s" for interval in intervals])
    axes.minorticks_off()
    axes.set_xlabel("interval of checkpoints")
    axes.set_ylabel("MB to the card per hour")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return save(picture, report, folder)
