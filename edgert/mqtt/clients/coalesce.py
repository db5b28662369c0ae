"""When it pays to stop reading for a moment, so that more messages come with the next read.

A read costs some 5 µs wherever it is done, and a broker writes message by message: measured at 20,000 messages/s, a
receiver that reads at once gets fewer than two per read. A pause of 5 ms makes it a hundred.

A broker that leaves Nagle's algorithm on (Mosquitto does, unless `set_tcp_nodelay true`) holds back what it has for us
until the last segment is acknowledged, and that our kernel does when we read, or up to 40 ms later. So a read may bring
the pause's first message alone and set the others free: when there are far fewer than the rate promised, the next read
is made at once. (To have the kernel acknowledge at each read, TCP_QUICKACK, keeps latency near the budget with such a
broker too, but costs 10 to 100 % more CPU: a broker that sends at once is the better remedy.)
"""

from __future__ import annotations

_PART_DUE = 0.5
"""A read with less than this part of the messages due says that the broker holds the rest back."""
WORTH = 2.0
"""Messages expected within the budget (at 5 ms: 400/s) that are worth a pause: with fewer it would cost latency and
save nothing."""
_WINDOW_S = 0.1
"""The rate is that of the last such window: long enough to hold some messages, short enough to follow a burst."""
_FULL_READ_BYTES = 128 << 10
"""A read of this size says that the broker is ahead of us: then there is nothing to wait for."""


class Coalescer:
    """Pure: told of every read, answers how long not to read. `budget_s` = 0 answers never."""

    __slots__ = ("_began", "_budget_s", "_count", "_paused", "_short", "rate")

    def __init__(self, budget_s: float, now: float) -> None:
        self._budget_s = budget_s
        self._count = 0
        self._began = now
        self._paused = now
        self._short = False
        self.rate = 0.0
        """Messages per second in the last window."""

    def pause_s(self, messages: int, size: int, now: float) -> float:
        """Seconds to pause after a read of `size` bytes with `messages` messages at `now`.

        Nothing unless as many messages are expected within the budget as are worth it. Nothing after a full read
        either. Of the other reads those that brought far less than was due are followed by none, unless that went for
        the one before too: of two, one at least has its pause.
        """
        self._count += messages
        elapsed = now - self._began
        if elapsed >= _WINDOW_S:
            self.rate = self._count / elapsed
            self._count = 0
            self._began = now
        if size >= _FULL_READ_BYTES or self.rate * self._budget_s < WORTH:
            return 0.0
        due = self.rate * (now - self._paused)
        self._short = not self._short and messages < due * _PART_DUE
        if self._short:
            return 0.0
        self._paused = now
        return self._budget_s
