"""An asyncio loop on a virtual clock: where all tasks wait, time goes on to the next timer at once.

Programs that take their time from the loop, or from a clock that reads it, run on it unchanged, and the same way each
time: nothing waits for a socket, and work for threads is done in place.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from edgert.core.errors import EdgertError


class StandstillError(EdgertError):
    """All tasks wait for something that no timer brings about."""


class _NoSockets(selectors.SelectSelector):
    """Never waits: it moves the clock on."""

    def __init__(self, forward: Callable[[float], None]) -> None:
        super().__init__()
        self._forward = forward

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise StandstillError("the simulation stands still: every task waits for another one")
        if timeout > 0:
            self._forward(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` begins at `start`, seconds. Sockets and child processes do not work on it."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        super().__init__(_NoSockets(self._go_on))

    def time(self) -> float:
        return self._now

    def _go_on(self, seconds: float) -> None:
        self._now += seconds

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Calls `func` now; its result is there at once, at the same virtual time."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - for whom waits for it
            done.set_exception(error)
        return done


class LoopClock:
    """The clock of a board on a loop. Its wall clock jumps by `jump`; what is measured with the other one does not."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wall: float = 1_700_000_000.0) -> None:
        self._loop, self._wall = loop, wall

    def monotonic(self) -> float:
        return self._loop.time()

    def wall(self) -> float:
        return self._wall + self._loop.time()

    def jump(self, seconds: float) -> None:
        """Sets the wall clock, as an administrator or NTP does."""
        self._wall += seconds
