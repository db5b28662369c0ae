"""Who must wait because a queue behind it is full.

Nobody who would add to a queue that is over its budget runs: what it would take waits in its own queue, and so on up to
the source, whose queue sheds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


class Crowding:
    """Instances by number. Not locked: its pool does that."""

    def __init__(self) -> None:
        self.over: set[int] = set()
        """Whose queue is over its budget."""
        self._stalled: dict[int, set[int]] = {}
        """By instance whose queue is over its budget: those that feed it and wait until it is not."""

    def stalls(self, number: int, feeds: Iterable[int]) -> bool:
        """Whether an instance must wait for one of those that it `feeds`. That one has rows, so its turn comes when
        nothing else keeps it from running; and a graph has no cycle: somebody can always run, or is held, rests or runs
        already."""
        for fed in feeds:
            if fed in self.over:
                self._stalled.setdefault(fed, set()).add(number)
                return True
        return False

    def relieved(self, number: int) -> Collection[int]:
        """Its queue is within its budget: who had to wait for that."""
        self.over.discard(number)
        return self._stalled.pop(number, ())

    def forget(self, number: int) -> None:
        """It waits for nobody, and nobody for it."""
        for feeders in self._stalled.values():
            feeders.discard(number)
