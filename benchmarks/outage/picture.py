"""The picture: what waits in the outbox over time, and how long each commit of new results took to land."""

from __future__ import annotations

from pathlib import Path

from benchmarks.pictures import save
from benchmarks.report import Report


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png from the report's curves (of the last repetition)."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    picture, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    left.plot(*zip(*report.curves["what waits"], strict=True), color="#4878a8")
    left.set_xlabel("seconds since the connection is back")
    left.set_ylabel("batches in the outbox")
    left.set_ylim(bottom=0)
    right.plot(report.curves["new results"], ".", color="#4878a8")
    bar = report.figures["new results, commit to landing table, p95"].bar
    if bar is not None:
        right.axhline(bar.limit, color="#b04040", linewidth=1, label="bar (p95)")
        right.legend(fontsize=8)
    right.set_xlabel("commit of new results")
    right.set_ylabel("seconds until it is in the landing table")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    return save(picture, report, folder)
