"""Tasks on the event loop: background tasks, and work that is awaited to its end despite cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
OnStore = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a call on the store thread."""


class Tasks:
    """Background tasks; a reference to each is kept until it has ended, since the loop keeps none."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        """`failed` is called with the exception that a task raises."""
        self._failed = failed
        self.running: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.running.add(task)
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Cancels all tasks, and waits until they have ended."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._failed(error)


async def to_its_end(work: Awaitable[T]) -> T:
    """Returns the result of `work`, and delays a cancellation of the caller until `work` has ended. A thread goes on in
    any case, so a lock held for it must be held until then."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        await asyncio.gather(task, return_exceptions=True)  # an exception of `work` is lost: the caller was cancelled
        raise cancelled
    return task.result()
