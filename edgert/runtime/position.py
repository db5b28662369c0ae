"""How far a flow has come in its input: an arrival index, and the holes below it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """Everything with an arrival index up to `index` was taken, except `missing`.

    Holes come from a restart only: messages that the id table knew and the flow had not committed, which the broker
    may deliver again in any order.
    """

    index: int = 0
    missing: frozenset[int] = frozenset()

    def covers(self, index: int) -> bool:
        return index <= self.index and index not in self.missing


class Progress:
    """What was fed to a flow (changes with each read) and what of it is committed (changes with each checkpoint)."""

    def __init__(self, committed: Position) -> None:
        self.committed = committed
        self.fed = committed.index
        self.missing = set(committed.missing)
        self.gone = False
        """The flow was removed: nothing waits for it any more."""

    def resume(self, known: set[int], greatest: int) -> None:
        """After a restart: `known` are the indices in the id table, `greatest` the last index given to a message."""
        self.missing |= {x for x in known if x > self.fed}
        self.fed = max(self.fed, greatest)

    def takes(self, index: int) -> bool:
        """Whether a redelivery under `index` is new to the flow (then it counts as fed from now on)."""
        if index <= self.fed and index not in self.missing:
            return False
        self.missing.discard(index)
        return True

    def position(self) -> Position:
        """What a checkpoint made now would cover."""
        return Position(self.fed, frozenset(self.missing))

    def has_committed(self, index: int) -> bool:
        return self.gone or self.committed.covers(index)
