"""The picture: what a choice costs, by policy and number of instances."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import Report


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figures = [figure for figure in report.figures.values() if figure.unit == "µs"]
    picture, axes = plt.subplots(figsize=(10, 4.5), layout="constrained")
    axes.barh([figure.name for figure in figures], [figure.median for figure in figures], color="#4878a8")
    axes.axvline(2.0, color="#b04040", linewidth=1, label="bar at 50 instances")
    axes.invert_yaxis()
    axes.set_xlabel("µs per choice")
    axes.legend()
    axes.spines[["top", "right"]].set_visible(False)
    picture.suptitle(f"{report.name}: {report.machine.get('cpu', '')}")
    path = folder / f"{report.name}.png"
    picture.savefig(path, dpi=110)
    plt.close(picture)
    return path
