"""The door to the machine's clocks (the one file of `core` that may read them)."""

from __future__ import annotations

import time
from functools import partial


class SystemClock:
    """The machine's monotonic and wall clock, as `core.clock.Clock` wants them."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


class SleepingClock(SystemClock):
    """Its monotonic clock goes on while the machine is suspended (CLOCK_BOOTTIME), as the clocks of other boards do."""

    __slots__ = ()

    monotonic = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))
