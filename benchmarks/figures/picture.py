"""The picture: processor time of one reading, figures beside status, and the bound."""

from __future__ import annotations

from pathlib import Path

from benchmarks.pictures import save
from benchmarks.report import Report


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png from the report's figures."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    shown = [figure for name, figure in report.figures.items() if name.startswith("CPU of ") and figure.measured]
    picture, axes = plt.subplots(figsize=(7.5, 0.7 + 0.5 * len(shown)), layout="constrained")
    for at, figure in enumerate(reversed(shown)):
        colour = "#3060a0" if figure.bar else "#b0b0b0"
        axes.barh(at, figure.median, color=colour)
        axes.plot([min(figure.measured), max(figure.measured)], [at, at], color="black", linewidth=1)
        if figure.bar:
            axes.axvline(figure.bar.limit, color="#b04040", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(shown)), [figure.name for figure in reversed(shown)])
    axes.set_xlabel("ms of the gateway's processor time, one reading")
    axes.spines[["top", "right"]].set_visible(False)
    return save(picture, report, folder)
