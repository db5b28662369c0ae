"""The ledger: what each figure was, when, and why it changed. A line of JSON each, new ones at the end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

PATH: Final = Path(__file__).with_name("ledger.jsonl")
LIMIT: Final = 0.01
"""A figure may be so much above the ledger. The same code gives the same figure to a few instructions, and a lookup in
a dictionary for each row is 1.8 % of the cheapest message."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One figure at one time."""

    build: str
    figure: str
    instructions: int
    date: str
    why: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A counted figure beside the ledger's."""

    figure: str
    counted: float
    ledger: int | None
    """None: the ledger has no such figure of this build."""

    @property
    def change(self) -> float:
        """Relative to the ledger; 0 where it has nothing."""
        return 0.0 if not self.ledger else self.counted / self.ledger - 1.0

    @property
    def dearer(self) -> bool:
        return self.change > LIMIT


def read(path: Path = PATH) -> list[Entry]:
    """All entries, the oldest first. Raises ValueError that names the line at fault."""
    entries = []
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            entries.append(Entry(**json.loads(line)))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{path}, line {number}: expected an entry of the ledger, got {line[:80]!r}: {error}"
            ) from error
    return entries


def newest(entries: Iterable[Entry], build: str) -> dict[str, int]:
    """The figures of a build that count now."""
    return {entry.figure: entry.instructions for entry in entries if entry.build == build}


def compare(counts: Mapping[str, float], entries: Iterable[Entry], build: str) -> list[Comparison]:
    """Each counted figure beside the newest entry of the same build."""
    known = newest(entries, build)
    return [Comparison(figure, counted, known.get(figure)) for figure, counted in counts.items()]


def write(counts: Mapping[str, float], build: str, date: str, why: str, path: Path = PATH) -> None:
    """Adds an entry per figure."""
    with path.open("a", encoding="utf-8") as file:
        for figure, counted in counts.items():
            file.write(json.dumps(asdict(Entry(build, figure, round(counted), date, why))) + "\n")


def table(comparisons: Iterable[Comparison]) -> str:
    """For people."""
    lines = [f"{'instructions':>12}  {'ledger':>12}  {'change':>7}"]
    for one in comparisons:
        ledger = "-" if one.ledger is None else f"{one.ledger:,}"
        change = "-" if one.ledger is None else f"{one.change:+.1%}"
        lines.append(
            f"{one.counted:12,.0f}  {ledger:>12}  {change:>7}  {one.figure}" + ("  DEARER" if one.dearer else "")
        )
    return "\n".join(lines)
