"""A picture of bars: a panel per unit, each figure with its spread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.pictures import save
from benchmarks.report import Report

BAR_INCHES = 0.22
"""Height of a bar with its name."""


def draw(report: Report, folder: Path, panels: Sequence[tuple[str, float, str]]) -> Path:
    """Writes NAME.png. `panels`: unit of the figures, what they are divided by, what is written at the axis."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    most = max(sum(f.unit == unit for f in report.figures.values()) for unit, _, _ in panels)
    size = (12, max(5.0, most * BAR_INCHES))
    picture, places = plt.subplots(1, len(panels), figsize=size, squeeze=False, layout="constrained")
    for axes, (unit, scale, label) in zip(places[0], panels, strict=True):
        figures = [f for f in report.figures.values() if f.unit == unit and f.measured]
        names = [figure.name for figure in figures]
        medians = [figure.median / scale for figure in figures]
        spread = [
            [m - min(f.measured) / scale for m, f in zip(medians, figures, strict=True)],
            [max(f.measured) / scale - m for m, f in zip(medians, figures, strict=True)],
        ]
        axes.barh(names, medians, xerr=spread, capsize=3, color="#4878a8", height=0.6)
        axes.invert_yaxis()
        axes.set_xlabel(label)
        axes.margins(y=0.02)
        axes.tick_params(axis="y", labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    return save(picture, report, folder)
