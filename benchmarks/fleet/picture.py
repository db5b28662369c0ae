"""The picture: rows per second of each way to take the backlog, and how long each commit at low rate took."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.pictures import save
from benchmarks.report import Report

LATE: Final = "low rate, s from each commit to the fleet table"


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rates = [figure for figure in report.figures.values() if figure.unit == "rows/s"]
    picture, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    left.barh([figure.name for figure in rates], [figure.median / 1e3 for figure in rates], color="#4878a8", height=0.6)
    left.axvline(150, color="#b04040", linewidth=1, label="bar")
    left.invert_yaxis()
    left.set_xlabel("thousand landing rows per second")
    right.plot(report.curves[LATE], ".", color="#4878a8")
    for name, style in (("median", "--"), ("p95", "-")):
        bar = report.figures[f"low rate, commit to fleet table, {name}"].bar
        if bar is not None:
            right.axhline(bar.limit, color="#b04040", linewidth=1, linestyle=style, label=f"bar ({name})")
    right.set_xlabel("commit at low rate")
    right.set_ylabel("seconds until it is in the fleet table")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    return save(picture, report, folder)
