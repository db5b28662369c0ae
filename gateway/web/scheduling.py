"""What the agent of this board says of OS scheduling, for the page; asked only when a page asks."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from edgert.control.client import ControlClient
from edgert.core.errors import EdgertError, show

FRESH_S: Final = 1.0
"""An answer younger than this is given again, however many pages ask."""
TIMEOUT_S: Final = 2.0

Scheduling = Callable[[], Awaitable[dict[str, Any]]]
"""`{"agent": False}` where this board has no agent; else the agent's `sched.status`, or `error` and why."""


async def no_agent() -> dict[str, Any]:
    """Of a board without an agent."""
    return {"agent": False}


class AgentScheduling:
    """Asks the agent that serves the socket at `path`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._client = ControlClient(path, TIMEOUT_S)
        self._known: dict[str, Any] = {"agent": False}
        self._asked_s = float("-inf")

    async def get(self) -> dict[str, Any]:
        """See `Scheduling`. Never raises."""
        now = time.monotonic()
        if now - self._asked_s >= FRESH_S:
            self._asked_s = now
            self._known = await self._ask()
        return self._known

    async def _ask(self) -> dict[str, Any]:
        if not self._is_there():
            return {"agent": False}
        try:
            told = await self._client.call("sched.status")
        except EdgertError as error:
            return {"agent": True, "error": str(error)}
        if not isinstance(told, dict) or not isinstance(told.get("operators"), list):
            return {"agent": True, "error": f"expected the agent's sched.status, got {show(told)}"}
        return {**told, "agent": True}

    def _is_there(self) -> bool:
        return os.path.exists(self._path)

    async def close(self) -> None:
        """End the connection."""
        await self._client.close()
