"""The picture: memory, queues and rates over time, a column per application and policy."""

from __future__ import annotations

from pathlib import Path

from benchmarks.pictures import save
from benchmarks.report import Report
from edgert.runtime.instance.build import QUEUE_BYTES


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png from the report's curves."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    curves = report.curves
    columns = max(1, len(curves))
    picture, panels = plt.subplots(
        3, columns, figsize=(max(10, 5 * columns), 9), sharex="col", sharey="row", squeeze=False, layout="constrained"
    )
    for column, (label, points) in enumerate(curves.items()):
        names = ("at", "rss_mb", "source_mb", "inner_mb", "fed_per_s", "done_per_s")
        at, memory, source, inner, fed, done = ([point[name] for point in points] for name in names)
        above, middle, below = (row[column] for row in panels)
        above.set_title(label)
        above.plot(at, memory, color="#4878a8")
        middle.plot(at, source, color="#4878a8", label="of the source")
        middle.plot(at, inner, color="#d08040", label="the fullest inner one")
        middle.axhline(QUEUE_BYTES / 1e6, color="#b04040", linewidth=1, label="budget")
        below.plot(at, [rate / 1e3 for rate in fed], color="#b0b0b0", label="fed")
        below.plot(at, [rate / 1e3 for rate in done], color="#4878a8", label="done")
        borne = report.figures[f"{label}: sustainable rate"].values[-1] / 1e3
        below.axhline(borne, color="#b04040", linewidth=1, label="sustainable")
        below.set_xlabel("seconds")
        for axes in (above, middle, below):
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
    for row, name in zip(panels, ("resident memory, MB", "queue, MB", "thousand rows per second"), strict=True):
        row[0].set_ylabel(name)
        row[0].set_ylim(0, 1.05 * row[0].get_ylim()[1])
    if curves:
        for row in panels[1:]:
            row[0].legend(fontsize=8)
    return save(picture, report, folder)
