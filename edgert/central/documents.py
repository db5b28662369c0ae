"""Common parts of documents for the central side: trainings, rules of alerts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a number."""

    least: float
    greatest: float
    whole: bool = False
    default: float = 0.0

    def __str__(self) -> str:
        return f"{'an integer' if self.whole else 'a number'} from {self.least:g} to {self.greatest:g}"

    def holds(self, value: Any) -> bool:
        kind = isinstance(value, int if self.whole else int | float) and not isinstance(value, bool)
        return kind and math.isfinite(value) and self.least <= value <= self.greatest


def instead_of(key: str, known: Sequence[str]) -> str:
    """A hint at the known key that an unknown `key` resembles."""
    near = get_close_matches(key, known, n=1)
    return f"nearest: {near[0]}" if near else ", ".join(known)
