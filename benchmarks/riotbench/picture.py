"""The picture: latency against input rate, one panel per application and consumption."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.report import Report


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png from the curves in the report's notes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    curves = {}
    for note in report.notes:
        if note.startswith("curve of "):
            name, _, points = note.removeprefix("curve of ").rpartition(": ")
            curves[name] = json.loads(points)
    picture, (above, below) = plt.subplots(2, 1, figsize=(10, 9), sharex=True, layout="constrained")
    for name, points in curves.items():
        rates = [rate / 1e3 for rate, _, _ in points]
        style = "--" if "owpoa" in name else "-"
        above.plot(rates, [latency for _, latency, _ in points], style, marker="o", markersize=3, label=name)
        below.plot(rates, [balance for _, _, balance in points], style, marker="o", markersize=3)
    above.set_yscale("log")
    above.set_ylabel("latency, p99, ms")
    below.set_ylabel("balance: variation of utilisation, 0 is even")
    below.set_xlabel("thousand rows per second in")
    above.legend(fontsize=7, ncols=2)
    for axes in (above, below):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    picture.suptitle(f"{report.name}: {report.machine.get('cpu', '')}")
    path = folder / f"{report.name}.png"
    picture.savefig(path, dpi=110)
    plt.close(picture)
    return path
