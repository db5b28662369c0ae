"""The progress of a flow in its input: the fed part, and the committed part."""

from __future__ import annotations

from typing import Final

from edgert.core.checkpoint.position import Position

HELD_BYTES: Final = 4_194_304
"""Input of QoS 0 that a flow takes while its checkpoints cannot be written, with what its messages cost beside their
payloads: nothing else bounds it, since it goes through the flow and waits as results."""


class Progress:
    """The fed input of a flow (changes with each read) and the committed input (changes with each checkpoint)."""

    def __init__(self, committed: Position) -> None:
        self.start = committed
        """The position committed when the process started (of a flow added since: all input that came before it)."""
        self.committed = committed
        self.fed = committed.index
        self.missing = set(committed.missing)
        self.links = dict(committed.links)
        """Gateway → (epoch, sequence) of the last batch from it that was fed."""
        self.spilled: Position | None = None
        """The position in the database that includes the input spilled since that checkpoint."""
        self.gone = False
        """The flow was removed: nothing waits for it any more."""
        self.most_held_bytes = HELD_BYTES
        self._held = False
        """Its last checkpoint could not be written."""
        self._held_bytes = 0
        """Input of QoS 0 since then."""

    def resume(self, known: set[int], greatest: int) -> None:
        """After a restart: `known` are the indices in the id table, `greatest` the last index given to a message."""
        self.missing |= {x for x in known if x > self.fed}
        self.fed = max(self.fed, greatest)

    def takes(self, index: int) -> bool:
        """True if a redelivery under `index` is new to the flow (then it counts as fed from now on)."""
        if index <= self.fed and index not in self.missing:
            return False
        self.missing.discard(index)
        return True

    def hold(self, held: bool) -> None:
        """Notes that the last checkpoint could not be written (`held`), since the disk is full, or the outbox of a flow
        that keeps all its results; or that one was written."""
        self._held = held
        if not held:
            self._held_bytes = 0

    def has_room(self, size: int) -> bool:
        """True if the flow may be fed `size` bytes for which no acknowledgement is owed."""
        if not self._held:
            return True
        if self._held_bytes + size > self.most_held_bytes:
            return False
        self._held_bytes += size
        return True

    def position(self) -> Position:
        """The position that a checkpoint made now would cover."""
        return Position(self.fed, frozenset(self.missing), dict(self.links))

    def has_committed(self, index: int) -> bool:
        """True if a checkpoint covers the message, or its input is safe otherwise."""
        return self.gone or self.committed.covers(index) or (self.spilled is not None and self.spilled.covers(index))

    def commit(self, at: Position) -> None:
        """A checkpoint covers it, and with it all that was spilled."""
        self.committed, self.spilled = at, None
