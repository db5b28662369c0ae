"""The Python interpreter of a process that holds the state of flows: its collector of garbage, and the time after which
a thread gives way to another.

Left alone, the collector looks at everything that lives whenever a quarter has been added to it. State is what lives,
and is no garbage: with 100,000 keys such a look stops the process for 40 ms and more, and a restart pays for a dozen of
them. What is young is looked at as ever; what is old, seldom.

Freed memory stays with the C library, which seldom gives any back by itself: where much state went, it is told to.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

EVERY_S: Final = 600.0
NEVER: Final = 1_000_000_000
MUCH_BYTES: Final = 8 << 20


class Garbage:
    """To be made once what lives until the end is there."""

    def __init__(self, now: float) -> None:
        gc.collect()
        gc.freeze()
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, NEVER)
        self._next = now + EVERY_S
        self._held_bytes = 0
        """The most that operators have held since memory was given back last."""

    def look(self, now: float, held_bytes: int) -> None:
        """Call this about every second. `held_bytes`: what operators keep by key."""
        self._held_bytes = max(self._held_bytes, held_bytes)
        if held_bytes < self._held_bytes - MUCH_BYTES:
            self._held_bytes = held_bytes
            give_back()
        if now >= self._next:
            self._next = now + EVERY_S
            gc.collect()


def give_back() -> None:
    """Gives freed memory back to the system, where the C library knows how to (glibc does)."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def switching(seconds: float) -> Iterator[None]:
    """Within it a thread that runs gives way to another after so long (5 ms by default). For one thread at a time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
