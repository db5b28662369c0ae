"""The picture: latency against input rate, a column per application."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.report import Report


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png from the curves in the report's notes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    curves: dict[str, dict[str, list[list[float]]]] = {}
    for note in report.notes:
        if note.startswith("curve of "):
            name, _, text = note.removeprefix("curve of ").rpartition(": ")
            application, _, subject = name.partition(": ")
            curves.setdefault(application, {})[subject] = json.loads(text)
    columns = max(1, len(curves))
    picture, panels = plt.subplots(
        2, columns, figsize=(max(10, 5 * columns), 9), sharex="col", squeeze=False, layout="constrained"
    )
    for column, (application, of_subjects) in enumerate(curves.items()):
        above, below = panels[0][column], panels[1][column]
        above.set_title(application)
        for subject, points in of_subjects.items():
            rates = [rate / 1e3 for rate, _, _ in points]
            style = "--" if "owpoa" in subject else "-"
            above.plot(rates, [latency for _, latency, _ in points], style, marker="o", markersize=3, label=subject)
            below.plot(rates, [balance for _, _, balance in points], style, marker="o", markersize=3)
        above.set_yscale("log")
        below.set_xlabel("thousand rows per second in")
        for axes in (above, below):
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel("latency, p99, ms")
    panels[1][0].set_ylabel("balance: variation of utilisation, 0 is even")
    if curves:
        panels[0][0].legend(fontsize=7, ncols=2)
    picture.suptitle(f"{report.name}: {report.machine.get('cpu', '')}")
    path = folder / f"{report.name}.png"
    picture.savefig(path, dpi=110)
    plt.close(picture)
    return path
