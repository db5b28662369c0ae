"""The packet at which a broker hangs up, found by what was in flight when connections ended. Pure.

A broker that closes the connection on a packet need not say so. A message at QoS 1 is sent again first thing on the
next connection, and so is a SUBSCRIBE. So after a connection that ended early, packets go out one at a time until the
broker has answered to all that was in flight. A packet that was alone in flight at two such ends is the one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

STABLE_S: Final = 10.0
"""A connection that lasted so long was a good one."""
Suspect = int | str
"""Packet id of a message of ours, or the filter of a subscription: a SUBSCRIBE has another packet id each time."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of ours that the broker has not acknowledged."""

    topic: str
    size: int
    """Bytes of topic and payload."""


@dataclass(slots=True)
class PacketSuspicion:
    _suspects: set[Suspect] = field(default_factory=set)
    """In flight at one of the last early ends, and not answered yet."""
    _first: Suspect | None = None
    """The first of them."""
    _alone: bool = False
    """The first of them was alone in flight at the last early end."""

    @property
    def alone(self) -> bool:
        """Packets have to go out one at a time."""
        return bool(self._suspects)

    def answered(self, suspect: Suspect) -> None:
        """The broker has answered, or the packet is not sent any more."""
        self._suspects.discard(suspect)
        if suspect == self._first:
            self._first = None

    def ended(self, early: bool, in_flight: Sequence[Suspect]) -> Suspect | None:
        """A connection is over; `early`: it was not stable before. `in_flight`: in the order of sending. Returns the
        one that was alone in flight at two such ends one after the other."""
        if not early or not in_flight:
            self.clear()
            return None
        was_alone, first = self.alone, in_flight[0]
        again = was_alone and self._alone and first == self._first
        self._suspects |= {*in_flight}
        self._first, self._alone = first, was_alone
        if not again:
            return None
        self.answered(first)
        return first

    def clear(self) -> None:
        """Ends all suspicion: a connection was stable, or nothing was in flight."""
        self._suspects.clear()
        self._first, self._alone = None, False
