"""One stream on its way: how much of it may be in flight, and when to ask whether anybody is there. Pure.

A window of batches is in flight. It grows while the collector keeps up, so that a backlog is not held up by the second
for which it gathers, and starts small again where nothing moves: a broker may be one that drops what it cannot queue.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

WINDOW, WINDOW_MOST = 64, 256
"""Batches of one stream that may be in flight unacknowledged: at first, and when all goes well."""
WINDOW_BYTES = 1 << 20
"""Most bytes in flight (and one batch): what is new queues behind them at the collector, for a second or so."""
RESEND_S = 15.0
"""Without any progress for so long, the collector is asked again, and then the first unacknowledged batch is sent."""
RESEND_MOST_S = 600.0
"""The wait doubles up to this while a stream makes no progress: a collector that is away costs one batch each time."""


@dataclass(slots=True)
class SendWindow:
    moved: float
    """Monotonic time of the last progress."""
    sent: int = 0
    acknowledged: int = 0
    wait: float = RESEND_S
    window: int = WINDOW
    probing: bool = False
    """True while nothing was acknowledged for a while: one batch is sent at a time, until there is progress."""
    flying: deque[tuple[int, int]] = field(default_factory=deque)
    """(sequence, bytes)."""
    _bytes: int = 0
    _filled: bool = False
    """The window was full since the last progress."""

    @property
    def room(self) -> int:
        """Returns how many batches more may leave now."""
        most = 1 if self.probing else self.window
        return 0 if self._bytes >= WINDOW_BYTES else max(0, most - (self.sent - self.acknowledged))

    def is_stalled(self, now: float) -> bool:
        return self.sent > self.acknowledged and now - self.moved > self.wait

    def begins(self, sequence: int, now: float) -> None:
        """`sequence` is the first that waits: what stood before it is acknowledged, or it would still be there."""
        if self.sent == self.acknowledged:
            self.sent = self.acknowledged = sequence - 1
            self.moved = now

    def sends(self, sequence: int, size: int) -> None:
        self.sent = sequence
        self.flying.append((sequence, size))
        self._bytes += size
        self._filled |= not self.room

    def reached(self, sequence: int, now: float) -> None:
        """All up to `sequence` has landed."""
        if sequence <= self.acknowledged:
            return
        self.acknowledged, self.moved = sequence, now
        self.sent = max(self.sent, sequence)
        while self.flying and self.flying[0][0] <= sequence:
            self._bytes -= self.flying.popleft()[1]
        if self._filled and not self.probing:
            self.window = min(2 * self.window, WINDOW_MOST)
        self.wait, self.probing, self._filled = RESEND_S, False, False

    def stalls(self, now: float) -> None:
        """Gives up the batches in flight: they are sent again, one at first."""
        self.wait, self.probing, self.window = min(2 * self.wait, RESEND_MOST_S), True, WINDOW
        self.sent, self.moved = self.acknowledged, now
        self.flying.clear()
        self._bytes, self._filled = 0, False
