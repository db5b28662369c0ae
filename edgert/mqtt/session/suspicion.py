"""The message at which a broker hangs up, found by what was in flight when connections ended. Pure.

A broker that closes the connection on a message need not say so, and a message at QoS 1 is sent again first thing on
the next connection. So after a connection that ended early, messages go out one at a time until the broker has taken
all that was in flight. A message that was alone in flight at two such ends is the one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

STABLE_S: Final = 10.0
"""A connection that lasted so long was a good one."""
HUNG_UP: Final = 0x100
"""In place of the broker's reason code, none of which has more than a byte: it hung up at the message, twice."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of ours that the broker has not acknowledged."""

    topic: str
    size: int
    """Bytes of topic and payload."""


@dataclass(slots=True)
class Suspicion:
    _suspects: set[int] = field(default_factory=set)
    """Packet ids of what was in flight at the last early end, and is not acknowledged yet."""
    _first: int | None = None
    """The first of them."""
    _alone: bool = False
    """The first of them was alone in flight at the last early end."""

    @property
    def alone(self) -> bool:
        """Messages have to go out one at a time."""
        return bool(self._suspects)

    def answered(self, packet_id: int) -> None:
        """The broker has taken a message, or it is not sent any more."""
        self._suspects.discard(packet_id)
        if packet_id == self._first:
            self._first = None

    def ended(self, early: bool, in_flight: Mapping[int, Sent]) -> int | None:
        """A connection is over; `early`: it was not stable before. `in_flight`: by packet id, in the order of sending.
        Returns the packet id of the message that was alone in flight at two such ends one after the other."""
        if not early or not in_flight:
            self.clear()
            return None
        was_alone, first = self.alone, next(iter(in_flight))
        again = was_alone and self._alone and first == self._first
        self._suspects, self._first, self._alone = set(in_flight), first, was_alone
        if not again:
            return None
        self.answered(first)
        return first

    def clear(self) -> None:
        """Nothing is suspected any more: a connection was stable, or nothing was in flight."""
        self._suspects.clear()
        self._first, self._alone = None, False
