"""The picture: CPU per message beside the baseline, and latency added."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.pictures import save
from benchmarks.report import Figure, Report

GREY, BLUE, RED = "#9a9a9a", "#2f6fb0", "#b0413e"


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png: bars are medians, whiskers reach from minimum to maximum."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    cost = [f for f in report.figures.values() if f.unit == "µs/message"]
    latency = [f for f in report.figures.values() if f.name.startswith("latency added")]
    height = 1.6 + 0.36 * (len(cost) + len(latency))
    picture, (above, below) = plt.subplots(
        2, 1, figsize=(10, height), height_ratios=[max(1, len(cost)), max(1, len(latency))], layout="constrained"
    )
    _bars(above, cost, "CPU per message (user and system time)", "µs per message, less is better")
    _bars(below, latency, "Latency added by the gateway, one more pass through the broker included", "ms")
    return save(picture, report, folder)


def _bars(axes: Any, figures: list[Figure], title: str, unit: str) -> None:
    names = [figure.name.removeprefix("latency added ") for figure in figures]
    medians = [figure.median for figure in figures]
    spread = [[f.median - min(f.measured) for f in figures], [max(f.measured) - f.median for f in figures]]
    colours = [RED if not f.valid else GREY if f.name.startswith("paho") else BLUE for f in figures]
    bars = axes.barh(names, medians, xerr=spread, color=colours, error_kw={"ecolor": "#333333", "capsize": 3})
    axes.bar_label(bars, labels=[f"{value:.2f}" for value in medians], padding=6, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(unit)
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
