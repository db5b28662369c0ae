"""The division of instances between a thread that is lent to the pool, and the pool's workers.

fast, waits for nothing   the lent thread; a worker only while that thread is in a long turn
slow, or not known yet    a worker; the lent thread only while every worker is in a long turn
may wait for something    a worker; while every worker is in a long turn, one more is started, up to `MOST_WORKERS`

So an operator that waits does not hold up the lent thread; and two threads that compute in turns for want of the
interpreter's lock would be slower than one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from edgert.runtime.instance.instance import Instance
from edgert.scheduling.consumption import SLOW_S

FAST_TURNS: Final = 20
"""Turns in a row that were not slow (`SLOW_S`), after which an instance counts as fast."""
MOST_WORKERS: Final = 8
"""Workers at most, with those that were started because all others were in long turns. They
stay: it may happen again."""
MayRun = Callable[[Instance], bool]


class ThreadRoles:
    """Not locked: its pool does that."""

    def __init__(self, workers: int) -> None:
        self.since: float | None = None
        """Start of the lent thread's turn, or the time at which it left to come back at once; monotonic seconds. None:
        no thread is lent."""
        self.workers = workers
        self._began: dict[int, float] = {}
        """Worker's thread → start of its turn under way, monotonic seconds."""

    def begins(self, now: float) -> None:
        """A worker, the caller, begins a turn."""
        self._began[threading.get_ident()] = now

    def ends(self) -> None:
        """Notes that the caller's turn has ended."""
        self._began.pop(threading.get_ident(), None)

    def all_in_long_turns(self, now: float, long_s: float = SLOW_S) -> bool:
        """True if every worker is in a turn that has taken so long already."""
        began = self._began
        return len(began) == self.workers > 0 and now - max(began.values()) >= long_s

    def lendable(self, now: float) -> MayRun:
        """The test for instances that a lent thread may run now."""
        return _never_waits if self.all_in_long_turns(now) else fast

    def for_workers(self, now: float) -> MayRun:
        """The test for instances that a worker may run now."""
        return _any if self.since is None or now - self.since >= SLOW_S else _not_fast


def fast(instance: Instance) -> bool:
    """True if a lent thread may run the instance, whatever the workers do."""
    schedule = instance.schedule
    return schedule.fast_turns >= FAST_TURNS and not schedule.waits


def _not_fast(instance: Instance) -> bool:
    return not fast(instance)


def _never_waits(instance: Instance) -> bool:
    return not instance.schedule.waits


def _any(instance: Instance) -> bool:
    return True
