"""What a benchmark hands back: figures, ratios of figures taken in the same run, and bars that ratios must keep."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Bar:
    """What was promised: the median of a figure or ratio is at most `limit`."""

    limit: float


@dataclass(slots=True)
class Figure:
    """One quantity, once per repetition."""

    name: str
    unit: str
    values: list[float] = field(default_factory=list)
    bar: Bar | None = None
    faults: list[str] = field(default_factory=list)
    """Why values cannot be trusted (lost messages, a generator that fell behind); such a figure is not valid."""
    remarks: list[str] = field(default_factory=list)
    """What a reader must know and what does not count against us."""

    @property
    def median(self) -> float:
        return statistics.median(self.measured) if self.measured else float("nan")

    @property
    def measured(self) -> list[float]:
        """Without what came to no number: of a latency when nothing came out."""
        return [value for value in self.values if math.isfinite(value)]

    @property
    def valid(self) -> bool:
        return bool(self.values) and not self.faults

    @property
    def verdict(self) -> str:
        """What the table says at the end of the line."""
        if not self.valid:
            return "NOT VALID: " + ("; ".join(dict.fromkeys(self.faults)) or "not measured")
        told = list(dict.fromkeys(self.remarks))
        if self.bar is not None:
            kept = "kept" if self.median <= self.bar.limit else "NOT KEPT"
            told.insert(0, f"bar {_number(self.bar.limit)}: {kept}")
        return "; ".join(told)

    @property
    def holds(self) -> bool:
        return self.valid and (self.bar is None or self.median <= self.bar.limit)

    def plain(self) -> dict[str, Any]:
        """As it stands in the JSON file."""
        plain: dict[str, Any] = {
            "median": self.median if self.measured else None,
            "minimum": min(self.measured, default=None),
            "maximum": max(self.measured, default=None),
            "unit": self.unit,
            "repetitions": len(self.values),
            "values": [value if math.isfinite(value) else None for value in self.values],
            "valid": self.valid,
        }
        if self.faults:
            plain["faults"] = list(dict.fromkeys(self.faults))
        if self.remarks:
            plain["remarks"] = list(dict.fromkeys(self.remarks))
        if self.bar is not None:
            plain |= {"bar": self.bar.limit, "holds": self.holds}
        return plain


@dataclass(slots=True)
class Report:
    """Filled by a benchmark as it goes; figures keep the order in which they were first added."""

    name: str
    about: str
    machine: dict[str, Any]
    repetitions: int
    figures: dict[str, Figure] = field(default_factory=dict)
    ratios: dict[str, Figure] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    curves: dict[str, Any] = field(default_factory=dict)
    """What is too much for a table, as plain JSON by name; the picture is drawn from it."""

    def add(
        self, name: str, value: float, unit: str, *, limit: float | None = None, fault: str = "", remark: str = ""
    ) -> None:
        """One repetition's `value`. `limit`: the bar; `fault`: why the value is not to be trusted; `remark`: what must
        be known beside it."""
        figure = self.figures.setdefault(name, Figure(name, unit, bar=None if limit is None else Bar(limit)))
        if figure.unit != unit:
            raise ValueError(f"expected {name} in {figure.unit} as before, got {unit}")
        figure.values.append(value)
        if not math.isfinite(value):
            figure.faults.append(f"a repetition came to {value}")
        if fault:
            figure.faults.append(fault)
        if remark:
            figure.remarks.append(remark)

    def ratio(self, name: str, of: str, to: str, limit: float | None = None) -> None:
        """Figure `of` divided by figure `to`, repetition by repetition, since they were taken one after the other."""
        above, below = self.figures[of], self.figures[to]
        ratio = self.ratios[name] = Figure(name, "", bar=None if limit is None else Bar(limit))
        ratio.values = [a / b for a, b in zip(above.values, below.values, strict=True)]
        ratio.faults = [f"{figure.name}: {fault}" for figure in (above, below) for fault in figure.faults]
        ratio.remarks = [f"{figure.name}: {remark}" for figure in (above, below) for remark in figure.remarks]

    @property
    def holds(self) -> bool:
        """Whether all is valid and every bar is kept."""
        return all(figure.holds for figure in (*self.figures.values(), *self.ratios.values()))

    def plain(self) -> dict[str, Any]:
        """The content of the JSON file."""
        return {
            "name": self.name,
            "about": self.about,
            "machine": self.machine,
            "repetitions": self.repetitions,
            "figures": {name: figure.plain() for name, figure in self.figures.items()},
            "ratios": {name: ratio.plain() for name, ratio in self.ratios.items()},
            "notes": self.notes,
            "curves": self.curves,
        }

    def table(self) -> str:
        """For a terminal."""
        rows = [("", "median", "minimum", "maximum", "unit", "")]
        for figure in (*self.figures.values(), *self.ratios.values()):
            numbers = (figure.median, min(figure.measured), max(figure.measured)) if figure.measured else ()
            cells = [_number(number) for number in numbers] or ["-"] * 3
            rows.append((figure.name, cells[0], cells[1], cells[2], figure.unit or "ratio", figure.verdict))
        about = f"{self.name}: {self.about}\n" + ", ".join(f"{k} {v}" for k, v in self.machine.items())
        notes = "".join(f"\n- {note}" for note in self.notes)
        return f"{about}\nrepetitions {self.repetitions}\n\n{_aligned(rows)}{notes}"

    def write_json(self, folder: Path) -> Path:
        """Writes NAME.json."""
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(self.plain(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        return path


@dataclass(frozen=True, slots=True)
class Options:
    """How a run was asked for."""

    quick: bool
    repetitions: int
    say: Callable[[str], None]
    """Tells the person who waits how far it is."""
    applications: tuple[str, ...] = ()
    """Which of the benchmark's applications to measure."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What each package in this folder has as `BENCHMARK`."""

    about: str
    """The claim, in one line."""
    measure: Callable[[Options, Report], None]
    draw: Callable[[Report, Path], Path]
    """Writes NAME.png into a folder."""
    lacks: Callable[[], str | None]
    """What this machine lacks for it, and how to get it."""
    repetitions: int = 5
    applications: tuple[str, ...] = ()
    """What it measures one after the other, and can measure alone; none if there is only one thing."""
    usual: tuple[str, ...] = ()
    """Which of them it measures unless told; empty: all."""


def _number(value: float) -> str:
    """Four figures, as people write them."""
    if value != value:
        return "-"
    digits = max(0, 3 - len(str(int(abs(value)))) + (abs(value) < 1))
    return f"{value:,.{digits}f}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if 1 <= at <= 3 else c.ljust(w) for at, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
