"""The devices that a source hears, and the watermark that follows from their times.

Copies of a source hear different devices, yet their watermark is one: a copy that hears nobody must hold nothing back,
and whether a device is far behind is a question to all. So each copy puts what it knows of its own devices on a board
that all of them read. Copies read it at different times; their consumers take the smallest watermark of all copies, so
one that lags behind holds back what the others promise too early.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from edgert.core.batch import NO_WATERMARK


class Standing(NamedTuple):
    """What one copy of a source knows of its devices."""

    oldest: float = math.inf
    """Smallest of the newest event times of its active devices; infinite if there are none."""
    greatest: float = NO_WATERMARK
    """Newest event time of any device so far."""
    last_heard: float = 0.0
    """Monotonic seconds."""


@dataclass(slots=True)
class Devices:
    """Event time per device, and the watermark that follows from it (all in seconds since the epoch)."""

    out_of_order_s: float
    idle_timeout_s: float
    behind_tolerance_s: float = 3600.0
    """A device further behind the newest time holds nothing back; its rows are late."""
    latest: dict[str, float] = field(default_factory=dict)
    """Newest event time of each active device."""
    heard: dict[str, float] = field(default_factory=dict)
    """Monotonic time at which each active device was last heard."""
    watermark: float = NO_WATERMARK
    greatest: float = NO_WATERMARK
    """Newest event time of any device so far."""
    last_heard: float = 0.0
    board: list[Standing] = field(default_factory=lambda: [Standing()])
    """What each copy of the source last said of its devices. Copies may run on several threads: each writes its own
    place only, and what it writes there is never changed."""
    seat: int = 0
    """Whose place on the board is this one's."""

    def observe(self, latest: Mapping[str, float], now: float) -> None:
        """Takes the newest event times of devices that were heard at `now`; `greatest` is up to the caller."""
        self.latest.update(latest)
        self.heard.update(dict.fromkeys(latest, now))
        self.last_heard = now

    def expire(self, now: float) -> list[str]:
        """Takes out devices silent for longer than the time-out and names them."""
        limit = now - self.idle_timeout_s
        idle = [device for device, heard in self.heard.items() if heard < limit]
        for device in idle:
            del self.heard[device], self.latest[device]
        return idle

    def sit(self) -> None:
        """Tells the other copies of its devices."""
        oldest = min(self.latest.values(), default=math.inf)
        self.board[self.seat] = Standing(oldest, self.greatest, self.last_heard)

    def advance(self, now: float) -> float:
        """The watermark as of `now`; it never goes back."""
        self.sit()
        board = self.board
        greatest = max([standing.greatest for standing in board])
        oldest = min([standing.oldest for standing in board])
        if oldest < math.inf:
            limit = greatest - self.behind_tolerance_s
            if oldest < limit:  # a device whose clock was never set, or that sends what it kept: it is late, not slow
                oldest = self._oldest_since(limit)
            mark = oldest - self.out_of_order_s
        elif greatest > NO_WATERMARK:
            silent = now - max([standing.last_heard for standing in board]) - self.idle_timeout_s
            mark = greatest - self.out_of_order_s + max(0.0, silent)
        else:
            return self.watermark
        self.watermark = max(self.watermark, mark)
        return self.watermark

    def _oldest_since(self, limit: float) -> float:
        """Of the others only the oldest is known: if that is before `limit`, any of theirs may be as old as `limit`."""
        own = min((t for t in self.latest.values() if t >= limit), default=math.inf)
        others = (s.oldest for seat, s in enumerate(self.board) if seat != self.seat and s.oldest < math.inf)
        oldest = min([own, *(max(limit, t) for t in others)])
        return oldest if oldest < math.inf else limit
