"""The picture: latency, longest queue and balance against rate; a column per application, a row per size of turns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.pictures import save
from benchmarks.report import Report

PANELS: Final = {
    "p99_ms": "latency, p99, ms",
    "longest": "longest queue, rows",
    "balance": "balance, 0 is even",
}
"""What is drawn of a point: the median, and from the least to the greatest."""
CONSUMPTIONS: Final = {"": "at most 200 rows", "half": "half", "all": "all"}
"""What a turn takes, as labels of subjects have it and as it is called here."""


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png from the report's curves; a cross marks points with losses."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    curves: dict[str, dict[str, list[dict[str, Any]]]] = report.curves
    columns = max(1, len(curves))
    rows = [(key, consumption) for key in PANELS for consumption in CONSUMPTIONS]
    colours: dict[str, str] = {}
    picture, panels = plt.subplots(
        len(rows), columns, figsize=(max(8, 4 * columns), 2.3 * len(rows)), sharex="col", squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for column, (application, of_subjects) in enumerate(curves.items()):
        panels[0][column].set_title(application)
        panels[-1][column].set_xlabel("thousand rows per second in")
        for axes, (key, consumption) in zip(panels[:, column], rows, strict=True):
            for subject, points in of_subjects.items():
                policy, _, taken = subject.partition(", ")
                colour = colours.setdefault(policy, "black" if policy == "owpoa" else f"C{len(colours)}")
                if taken == consumption:
                    _curve(axes, points, key, colour, policy)
            if key != "balance":
                axes.set_yscale("log")
            if column == 0:
                axes.set_ylabel(f"{PANELS[key]}\n{CONSUMPTIONS[consumption]}", fontsize=8)
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
    if curves:
        lines, labels = panels[0][0].get_legend_handles_labels()
        picture.legend(lines, labels, loc="outside lower center", fontsize=9, ncols=7, frameon=False)
    return save(picture, report, folder)


def _curve(axes: Any, points: Sequence[Mapping[str, Any]], key: str, colour: str, label: str) -> None:
    rates = [point["rate"] / 1e3 for point in points]
    seen = [[v for v in point[key] if v is not None] or [math.nan] for point in points]
    middle = list(map(statistics.median, seen))
    axes.plot(rates, middle, color=colour, marker="o", markersize=3, label=label)
    axes.fill_between(rates, list(map(min, seen)), list(map(max, seen)), color=colour, alpha=0.1, linewidth=0)
    lossy = [at for at, point in enumerate(points) if point["faults"]]
    axes.plot([rates[at] for at in lossy], [middle[at] for at in lossy], "x", color="#b04040")
