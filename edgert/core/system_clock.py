"""The door to the machine's clocks (the one file of `core` that may read them)."""

from __future__ import annotations

import time


class SystemClock:
    """The machine's monotonic and wall clock, as `core.clock.Clock` wants them."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
