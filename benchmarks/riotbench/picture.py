"""The picture: what a row costs at the high rate and at the low one, and the rates borne; a group per application."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.pictures import save
from benchmarks.report import Figure, Report
from benchmarks.riotbench.probe import BY_HAND, ENGINE, FUSED_LOOP, LOOP

Bars = Sequence[tuple[str, str, Figure]]
"""(group, side, figure)."""
COLOURS: Final = {
    ENGINE: "#4878a8", LOOP: "#b0b8c0", FUSED_LOOP: "#8098a8", BY_HAND: "#d8d8d0", "owpoa": "#c08048",
    "congestion-aware": "#78a048", "congestion-aware, fusion full": "#4878a8",
}  # fmt: skip
"""By side; others are not drawn."""
LOW: Final = "1,000 rows/s, "
AT_A_TIME: Final = " at a time"


def draw(report: Report, folder: Path) -> Path:
    """Writes NAME.png."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    panels: tuple[tuple[str, str, float, Bars], ...] = (
        ("high rate (etl 5,000, stats 10,000, others 20,000 rows/s)", "µs of CPU per row", 1.0, _costs(report, False)),
        ("1,000 rows/s, so many at a time", "µs of CPU per row", 1.0, _costs(report, True)),
        ("greatest rate with p99 within 100 ms (etl 50)", "thousand rows per second", 1e3, _borne(report)),
    )
    picture, places = plt.subplots(1, len(panels), figsize=(16, 5), layout="constrained")
    for axes, (title, label, scale, bars) in zip(places, panels, strict=True):
        groups = list(dict.fromkeys(group for group, _, _ in bars))
        sides = [side for side in COLOURS if any(side == of for _, of, _ in bars)]
        width = 0.8 / max(1, len(sides))
        for at, side in enumerate(sides):
            drawn = [(groups.index(group), figure) for group, of, figure in bars if of == side]
            places_of = [group + (at - (len(sides) - 1) / 2) * width for group, _ in drawn]
            medians = [figure.median / scale for _, figure in drawn]
            spread = [
                [m - min(f.measured) / scale for m, (_, f) in zip(medians, drawn, strict=True)],
                [max(f.measured) / scale - m for m, (_, f) in zip(medians, drawn, strict=True)],
            ]
            axes.bar(places_of, medians, width * 0.9, yerr=spread, capsize=2, color=COLOURS[side], label=side)
        axes.set_xticks(range(len(groups)), groups)
        axes.set_ylabel(label)
        axes.set_title(title, fontsize=10)
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if sides:
            axes.legend(frameon=False, fontsize=8)
    return save(picture, report, folder)


def _costs(report: Report, low: bool) -> Bars:
    """`APPLICATION, RATE rows/s, N at a time: SIDE`."""
    bars = []
    for name, figure in report.figures.items():
        application, _, rest = name.partition(", ")
        load, _, side = rest.partition(": ")
        ours = figure.unit == "µs/row" and load.endswith(AT_A_TIME) and side in COLOURS
        if ours and figure.measured and load.startswith(LOW) == low:
            rows = load.removeprefix(LOW).removesuffix(AT_A_TIME)
            bars.append((f"{application}\n{rows}" if low else application, side, figure))
    return bars


def _borne(report: Report) -> Bars:
    """`APPLICATION, borne within N ms: SUBJECT`."""
    bars = []
    for name, figure in report.figures.items():
        application, _, rest = name.partition(", borne within ")
        side = rest.partition(": ")[2]
        if side in COLOURS and figure.measured:
            bars.append((application, side, figure))
    return bars
