"""The picture: bytes to the card per hour over the interval."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.pictures import save
from benchmarks.report import Report

CURVE = "curve of MB to the card per hour: "


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png from the curve in the report's notes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    text = next(note for note in report.notes if note.startswith(CURVE))
    picture, axes = plt.subplots(figsize=(7.5, 4.5), layout="constrained")
    for load, hourly in json.loads(text.removeprefix(CURVE)).items():
        intervals = sorted(map(int, hourly))
        axes.plot(intervals, [hourly[str(interval)] for interval in intervals], "o-", label=load)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(intervals, [f"{interval} s" for interval in intervals])
    axes.minorticks_off()
    axes.set_xlabel("interval of checkpoints")
    axes.set_ylabel("MB to the card per hour")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return save(picture, report, folder)
