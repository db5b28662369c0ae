"""The load that was predicted for now half a minute ago, beside the load of now."""

from __future__ import annotations

from collections import deque
from typing import Final

from agent.interference.peaks import Load
from agent.interference.ring import STARTS
from agent.interference.score import Crowd

AHEAD_S: Final = 30.0
_WINDOW: Final = STARTS.index(AHEAD_S)
MOST: Final = 60
"""Predictions that are kept; looks come every five seconds, or every half at the fastest."""


class PastPrediction:
    """The predictions of one board, kept until their time comes."""

    def __init__(self) -> None:
        self.now = Load()
        """The load by the last reading, as parts of the board's room."""
        self.before: Load | None = None
        """The prediction for that moment; None in the first half minute."""
        self._waiting: deque[tuple[float, Load]] = deque(maxlen=MOST)

    def observe(self, crowd: Crowd, load: Load, now: float) -> None:
        """`load`: by the last reading; `now`: seconds on a monotonic clock."""
        while self._waiting and self._waiting[0][0] <= now:
            self.before = self._waiting.popleft()[1]
        ring, room = crowd.ring, crowd.room
        ahead = Load(ring.cpu[_WINDOW] / room.cpu, ring.link[_WINDOW] / room.link)
        self._waiting.append((now + AHEAD_S, ahead))
        self.now = load
