"""The picture: rows per second by slots, and CPU per message by program."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import Report


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    picture, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for axes, unit, scale, label in (
        (left, "rows/s", 1e3, "thousand rows per second"),
        (right, "µs/message", 1.0, "µs of CPU per message"),
    ):
        figures = [figure for figure in report.figures.values() if figure.unit == unit]
        names = [figure.name.replace(": ", ":\n").replace(", ", ",\n") for figure in figures]
        medians = [figure.median / scale for figure in figures]
        spread = [
            [m - min(f.values) / scale for m, f in zip(medians, figures, strict=True)],
            [max(f.values) / scale - m for m, f in zip(medians, figures, strict=True)],
        ]
        axes.bar(names, medians, yerr=spread, capsize=4, color="#4878a8", width=0.6)
        axes.set_ylabel(label)
        axes.tick_params(axis="x", labelsize=6)
        axes.spines[["top", "right"]].set_visible(False)
    picture.suptitle(f"{report.name}: {report.machine.get('cpu', '')}")
    path = folder / f"{report.name}.png"
    picture.savefig(path, dpi=110)
    plt.close(picture)
    return path
