"""Options that are numbers: the types by which argparse reads them."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from typing import Final

from edgert.core.errors import show

LARGEST: Final = sys.float_info.max
MOST: Final = 10**12
"""Versions of a table, rows that are asked for: no table has so many, and beyond 2^64 nobody can count."""


def number(least: float | None = None, most: float = LARGEST, what: str = "a number") -> Callable[[str], float]:
    """The type of a finite number from `least` to `most`; without `least` it is above 0."""
    bounds = "above 0" if least is None else f"from {least:g} to {most:g}"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (value > 0 if least is None else value >= least) or value > most:
            raise argparse.ArgumentTypeError(f"expected {what} {bounds}, got {show(text)}")
        return value

    return parse


def whole(least: int = 0, most: int = MOST) -> Callable[[str], int]:
    """The type of a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        few = text.isascii() and text.isdigit() and len(text) <= len(str(MOST))
        if not few or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, got {show(text)}")
        return int(text)

    return parse


above_0: Final = number()
seconds: Final = number(most=86_400, what="seconds")
