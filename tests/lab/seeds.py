"""Runs of laboratories from seeds: what came of each as it ends, in a file from which a run that was cut short goes on,
and a verdict over all of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

from edgert.core.errors import EdgertError

TOTALS: Final = ("moves", "made", "messages", "lost", "doubled", "out_of_order", "keys_wrong", "late")
"""Figures of seeds that are added up, of those that have them."""


class Summary:
    """Of all seeds of a file, or of this run where there is no file."""

    def __init__(self, file: Path | None) -> None:
        """Raises `EdgertError` for a file that is no summary."""
        self._file = file
        self.seeds: list[dict[str, Any]] = []
        if file is not None and file.exists():
            try:
                self.seeds = list(json.loads(file.read_text())["by seed"])
            except (ValueError, KeyError, TypeError) as error:
                raise EdgertError(f"{file}: expected the outcomes of an earlier run, got another file") from error

    def has(self, seed: int) -> bool:
        """True for a seed that was run, be it by an earlier run that wrote into the file."""
        return any(one["seed"] == seed for one in self.seeds)

    def note(self, one: dict[str, Any]) -> None:
        """Adds what came of a seed, and writes the file anew: a run that is cut short leaves what it had."""
        self.seeds.append(one)
        if self._file is None:
            return
        written = self._file.with_name(f"{self._file.name}.new")
        written.write_text(json.dumps({**self.totals(), "by seed": self.seeds}, indent=1, default=str) + "\n")
        written.replace(self._file)

    @property
    def bad(self) -> list[int]:
        return [one["seed"] for one in self.seeds if not one["good"]]

    def totals(self) -> dict[str, Any]:
        """Sums over all seeds; `amid`: moves by the kind of their fault."""
        found: dict[str, Any] = {"seeds": len(self.seeds), "bad": self.bad}
        for name in TOTALS:
            if any(name in one for one in self.seeds):
                found[name] = sum(one.get(name, 0) for one in self.seeds)
        if amid := sum((Counter(one.get("amid", {})) for one in self.seeds), Counter[str]()):
            found["amid"] = dict(sorted(amid.items()))
        if any("two_owners" in one for one in self.seeds):
            found["two_owners"] = sum(len(one.get("two_owners", ())) for one in self.seeds)
        return found

    def verdict(self) -> str:
        """One line: all figures, and the seeds that are bad."""
        found = self.totals()
        number, bad = found.pop("seeds"), found.pop("bad")
        said = [f"{number - len(bad)} of {number} seeds good" + (f", bad: {bad}" if bad else "")]
        said += [f"{name.replace('_', ' ')} {value}" for name, value in found.items()]
        return "; ".join(said)
