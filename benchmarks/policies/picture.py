"""The picture: latency, longest queue and balance against input rate, a column per application."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any, Final

from benchmarks.pictures import save
from benchmarks.report import Report

PANELS: Final = {
    "p99_ms": "latency, p99, ms",
    "longest": "longest queue, rows",
    "balance": "balance: variation of utilisation, 0 is even",
}
"""What is drawn of a point: the median; for turns as a gateway has them, from the least to the greatest, too."""
STYLES: Final = {"": "-", "half": ":", "all": "--"}
"""By consumption."""


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png from the report's curves; a cross marks points with losses."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    curves: dict[str, dict[str, list[dict[str, Any]]]] = report.curves
    columns = max(1, len(curves))
    colours: dict[str, str] = {}
    picture, panels = plt.subplots(
        len(PANELS), columns, figsize=(max(10, 5 * columns), 12), sharex="col", squeeze=False, layout="constrained"
    )
    for column, (application, of_subjects) in enumerate(curves.items()):
        panels[0][column].set_title(application)
        panels[-1][column].set_xlabel("thousand rows per second in")
        for row, (key, label) in enumerate(PANELS.items()):
            axes = panels[row][column]
            for subject, points in of_subjects.items():
                rates = [point["rate"] / 1e3 for point in points]
                policy, _, consumption = subject.partition(", ")
                colour = colours.setdefault(policy, "black" if policy == "owpoa" else f"C{len(colours)}")
                style = STYLES[consumption]
                seen = [[v for v in point[key] if v is not None] or [math.nan] for point in points]
                middle = list(map(statistics.median, seen))
                axes.plot(rates, middle, style, color=colour, marker="o", markersize=3, label=subject)
                lossy = [at for at, point in enumerate(points) if point["faults"]]
                axes.plot([rates[at] for at in lossy], [middle[at] for at in lossy], "x", color="#b04040")
                if not consumption:
                    least, most = (list(map(pick, seen)) for pick in (min, max))
                    axes.fill_between(rates, least, most, color=colour, alpha=0.06, linewidth=0)
            if key != "balance":
                axes.set_yscale("log")
            if column == 0:
                axes.set_ylabel(label)
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
    if curves:
        lines, labels = panels[0][0].get_legend_handles_labels()
        picture.legend(lines, labels, loc="outside lower center", fontsize=9, ncols=6, frameon=False)
    return save(picture, report, folder)
