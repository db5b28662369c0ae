"""Work on the loop that whoever begins it does not wait for, or waits for in any case."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    """Keeps them until they have ended, since the loop does not."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        """`failed` is told what one of them raises."""
        self._failed = failed
        self.running: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.running.add(task)
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Ends them, wherever they are."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._failed(error)


async def to_its_end(work: Awaitable[T]) -> T:
    """The result of `work`. Who is cancelled meanwhile is so when it has ended: what a thread does goes on in any case,
    and a lock that is held for it must be."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        await asyncio.gather(task, return_exceptions=True)  # nobody takes what it raises
        raise cancelled
    return task.result()
