"""The coordinate algorithms by name. To add one, add its file and a line here."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from agent.coordinates.algorithm import Algorithm
from agent.coordinates.remembering import Remembering
from agent.coordinates.spring import Spring
from agent.coordinates.vivaldi import Vivaldi

_MAKERS: Final[dict[str, Callable[[Random], Algorithm]]] = {
    "remembering": Remembering,
    "spring": Spring,
    "vivaldi": Vivaldi,
}
NAMES: Final = tuple(_MAKERS)


def make(name: str, random: Random) -> Algorithm:
    """The algorithm called `name`, one of `NAMES`."""
    return _MAKERS[name](random)
