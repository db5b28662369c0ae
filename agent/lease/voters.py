"""The boards of a fleet that vote, and which of them are a majority.

A board votes until it leaves or people forget it; that it is dead or cut off for long changes nothing. Else each side
of a split fleet would count the other one out, and both would be all of it. For the same reason no board becomes a
voter because somebody sees it: voters change by a record that a majority of them stores (`agent.lease.electorate`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from agent.lease.grants import MOST_BOARDS, is_number

MAX_MARK: Final = 300
"""Characters of a fleet's mark: the name of a board, and some."""
LOOK_S: Final = 2.0
"""Time between two looks whether a majority answers."""
LATELY_S: Final = 9.0
"""A board that has answered within this time counts as reached. With two looks it is less than a lease."""
PER_BOARD_S: Final = 0.8
"""Time that each board of a large fleet adds: about one is pinged per second."""
DEAD_S: Final = 180.0
GUESTS_S: Final = 90.0
"""Time for which guests run on without their board's agent, beside that in which a majority must answer. An agent that
begins anew needs both to let them run on: a restart may take a minute on a slow or busy board, and in an update."""
SPARE_S: Final = 30.0


def lately_s(boards: int) -> float:
    """Time within which a majority of a fleet must have answered a board, or it is cut off."""
    return max(LATELY_S, PER_BOARD_S * boards)


def dead_s(boards: int) -> float:
    """Time for which a board must be held for dead before it can be forgotten, or not be heard of by an agent that has
    started since. A board that lives and is cut off has stopped by then what it runs for others, `SPARE_S` before,
    though its agent ended or began anew meanwhile: a majority answered last `lately_s` after the cut, and its guests
    run on for `GUESTS_S` and `lately_s` from then (`agent.fleet.presence`)."""
    return max(DEAD_S, GUESTS_S + 2 * lately_s(boards) + SPARE_S)


class Voters(NamedTuple):
    """A record of who votes."""

    fleet: str = ""
    """The mark of the board that began the fleet: two fleets that began apart have different ones."""
    number: int = 0
    step: int = 0
    """Counts the records that one coordinator wrote by its number."""
    names: tuple[str, ...] = ()
    """The boards that vote, in order."""

    def supersedes(self, other: Voters) -> bool:
        """The greater number of one fleet is newer. Of two fleets with a majority each, that with more boards goes on
        (`agent.lease.electorate`)."""
        if self.fleet == other.fleet:
            return (self.number, self.step) > (other.number, other.step)
        return (len(self.names), self.fleet) > (len(other.names), other.fleet)

    def plain(self) -> list[Any]:
        """Returns the record as JSON types, for the disk and for other boards."""
        return [self.fleet, self.number, self.step, list(self.names)]


def voters_untrusted(plain: Any) -> Voters:
    """Reads the result of `Voters.plain`. Raises `ValueError`."""
    if not isinstance(plain, list) or len(plain) != 4:
        raise ValueError("expected of voters the fleet, a number, a step, and names")
    fleet, number, step, names = plain
    if not isinstance(fleet, str) or len(fleet) > MAX_MARK or not is_number(number) or not is_number(step):
        raise ValueError("expected the mark of a fleet, a number and a step")
    fits = isinstance(names, list) and len(names) <= MOST_BOARDS
    if not fits or not all(isinstance(name, str) and 0 < len(name) < 256 for name in names):
        raise ValueError(f"expected at most {MOST_BOARDS} names of boards")
    return Voters(fleet, number, step, tuple(sorted(set(names))))


def is_majority(reached: Collection[str], names: Collection[str]) -> bool:
    """More than half of the names: two majorities share a board, also where one board more or less votes."""
    return 2 * len(set(reached) & set(names)) > len(names)
