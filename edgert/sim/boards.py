"""Boards to try a flow on: how much slower one core runs Python than the machine whose costs are given.

Guesses to plan with, against a server core of about 2021: nobody has measured them for this project. What a gateway on
such a board tells of itself (`edgert simulate --status`) is measured, and needs no scaling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class SimulatedBoard(NamedTuple):
    """A kind of board."""

    slower: float


BOARDS: Mapping[str, SimulatedBoard] = {
    "here": SimulatedBoard(1.0),
    "pi5": SimulatedBoard(1.7),
    "pi4": SimulatedBoard(4.0),
    "pi3": SimulatedBoard(9.0),
    "odroid-xu4": SimulatedBoard(6.0),
    "odroid-n2": SimulatedBoard(3.5),
}
