"""The boards of a fleet, as one board remembers them, and which part of them is a majority.

A board counts until it leaves or people forget it; that it is dead or cut off for long changes nothing. Else each half
of a split fleet would count the other one out, and both would be all of it. Boards tell each other what they remember:
of two memories of a board the newer one holds, in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

MOST: Final = 4_096
"""Boards that are remembered, gone ones included; as many as the membership's table holds."""
MAX_NUMBER: Final = 2**63
LOOK_S: Final = 2.0
"""Time between two looks whether a majority answers."""
LATELY_S: Final = 9.0
"""A board that has answered within this time counts as reached. With two looks it is less than a lease."""
PER_BOARD_S: Final = 0.8
"""More time in a large fleet, for each of its boards: about one is pinged per second."""


def lately_s(boards: int) -> float:
    """Time within which a majority of a fleet must have answered a board, or it is cut off."""
    return max(LATELY_S, PER_BOARD_S * boards)


class Standing(NamedTuple):
    """The greater one is newer."""

    epoch: int
    incarnation: int
    gone: bool
    """It left, or was forgotten."""


class Known:
    """Boards by name, this one included."""

    def __init__(self, own: str, standings: Mapping[str, Standing] | None = None) -> None:
        self._own = own
        self._standings = dict(standings or {})
        self._standings.setdefault(own, Standing(0, 0, False))

    @property
    def members(self) -> frozenset[str]:
        """The boards that count."""
        return frozenset(name for name, standing in self._standings.items() if not standing.gone)

    def standing(self, name: str) -> Standing:
        return self._standings.get(name, Standing(0, 0, False))

    def saw(self, name: str, standing: Standing) -> None:
        """Takes in a standing, from the membership or from another board."""
        held = self._standings.get(name)
        if held is None and len(self._standings) >= MOST:
            return
        if held is None or standing > held:
            self._standings[name] = standing

    def forget(self, name: str) -> None:
        """The board counts no more, until it starts anew or refutes its death."""
        self._standings[name] = self.standing(name)._replace(gone=True)

    def merge(self, others: Mapping[str, Standing]) -> None:
        for name, standing in others.items():
            self.saw(name, standing)

    def plain(self) -> dict[str, list[int]]:
        """Returns the standings as JSON types, for the disk and for other boards."""
        return {name: [s.epoch, s.incarnation, int(s.gone)] for name, s in sorted(self._standings.items())}


def standings_untrusted(plain: Any) -> dict[str, Standing]:
    """The other way round. Raises `ValueError`."""
    if not isinstance(plain, Mapping) or len(plain) > MOST:
        raise ValueError(f"expected at most {MOST} boards by name")
    return dict(_standings_untrusted(plain))


def _standings_untrusted(plain: Mapping[Any, Any]) -> Iterator[tuple[str, Standing]]:
    for name, told in plain.items():
        fits = isinstance(told, list) and len(told) == 3 and all(type(n) is int and 0 <= n < MAX_NUMBER for n in told)
        if not isinstance(name, str) or not 0 < len(name) < 256 or not fits:
            raise ValueError("expected the name of a board, its epoch, its incarnation, and 1 if it is gone")
        yield name, Standing(told[0], told[1], bool(told[2]))


def is_majority(reached: Collection[str], members: Collection[str]) -> bool:
    """More than half of the members; or half of them with the first by name, so that one of two even halves has it."""
    found = set(reached) & set(members)
    twice = 2 * len(found)
    return twice > len(members) or (twice == len(members) > 0 and min(members) in found)
