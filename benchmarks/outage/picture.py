"""The picture: what waits in the outbox over time, and how long each commit of new results took to land."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.pictures import save
from benchmarks.report import Report


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png from the curves in the report's notes (of the last repetition)."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    curves: dict[str, list[Any]] = {}
    for note in report.notes:
        if note.startswith("curve of "):
            label, _, text = note.removeprefix("curve of ").partition(": ")
            curves[label] = json.loads(text)
    picture, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    left.plot(*zip(*curves["what waits"], strict=True), color="#4878a8")
    left.set_xlabel("seconds since the connection is back")
    left.set_ylabel("batches in the outbox")
    left.set_ylim(bottom=0)
    right.plot(curves["new results"], ".", color="#4878a8")
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
