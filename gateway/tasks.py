"""Work on the loop that whoever begins it does not wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


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
