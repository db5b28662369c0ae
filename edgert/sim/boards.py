"""Boards to try a flow on: how much slower one core runs Python than the machine whose costs are given.

Guesses to plan with, against a server core of about 2021: nobody has measured them for this project. What a gateway on
such a board tells of itself (`edgert simulate --status`) is measured, and needs no scaling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Board(NamedTuple):
    """A kind of board."""

    slower: float


BOARDS: Mapping[str, Board] = {
    "here": Board(1.0),
    "pi5": Board(1.7),
    "pi4": Board(4.0),
    "pi3": Board(9.0),
    "odroid-xu4": Board(6.0),
    "odroid-n2": Board(3.5),
}
