"""When it pays to stop reading for a moment, so that more messages come with the next read.

A read costs some 5 µs wherever it is done, and a broker writes message by message: measured at 20,000 messages/s, a
receiver that reads at once gets fewer than two per read. A pause of 5 ms makes it a hundred.
"""

from __future__ import annotations

_READS_PER_PAUSE = 2
"""A broker that leaves Nagle's algorithm on (Mosquitto does, unless `set_tcp_nodelay true`) holds back what it has for
us until the last segment is acknowledged, and that our kernel does when we read. So a read brings the pause's first
message and sets the others free: the next read takes them, some 50 µs later. With one read per pause they would wait
for another whole pause (measured at 5,000/s with 5 ms: half of the messages took more than 9 ms)."""
_MANY = 50.0
"""From so many messages per pause on (at 5 ms: 10,000/s) the second read is not worth its cost, and there is none."""
_WINDOW_S = 0.1
"""The rate is that of the last such window: long enough to hold some messages, short enough to follow a burst."""
_FULL_READ_BYTES = 128 << 10
"""A read of this size says that the broker is ahead of us: then there is nothing to wait for."""


class Coalescer:
    """Pure: told of every read, answers how long not to read. `budget_s` = 0 answers never."""

    __slots__ = ("_began", "_budget_s", "_count", "_reads", "rate")

    def __init__(self, budget_s: float, now: float) -> None:
        self._budget_s = budget_s
        self._count = 0
        self._reads = 0
        self._began = now
        self.rate = 0.0
        """Messages per second in the last window."""

    def pause_s(self, messages: int, size: int, now: float) -> float:
        """Seconds to pause after a read of `size` bytes with `messages` messages at `now`.

        Nothing unless two messages or more are expected within the budget (at 5 ms: 400/s): below that a pause would
        cost latency and save nothing.
        """
        self._count += messages
        elapsed = now - self._began
        if elapsed >= _WINDOW_S:
            self.rate = self._count / elapsed
            self._count = 0
            self._began = now
        if size >= _FULL_READ_BYTES or self.rate * self._budget_s < 2.0:
            return 0.0
        if self.rate * self._budget_s >= _MANY:
            return self._budget_s
        self._reads = (self._reads + 1) % _READS_PER_PAUSE
        return 0.0 if self._reads else self._budget_s
