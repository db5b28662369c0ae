"""The agent's figures of OS scheduling and of the fleet, for the page. The agent is asked only when a page asks."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from edgert.control.client import ControlClient
from edgert.core.errors import EdgertError, show

FRESH_S: Final = 1.0
"""An answer younger than this is given again, however many pages ask."""
TIMEOUT_S: Final = 2.0
FIELDS: Final[Mapping[str, Mapping[str, type]]] = {
    "sched.status": {"operators": list},
    "fleet.status": {"members": list},
    "fleet.flows": {"flows": dict},
    "fleet.moves": {"moves": list},
    "fleet.operators": {"boards": dict},
}
"""Verbs that the page may ask, and the fields that it needs of the answer."""

AskAgent = Callable[[str], Awaitable[dict[str, Any]]]
"""Verb -> `{"agent": False}` where this board has no agent, or its settings have that part off; else the agent's
answer, or `error` and why."""


async def no_agent(verb: str) -> dict[str, Any]:
    """Answers for a board without an agent."""
    return {"agent": False}


class AgentClient:
    """Asks the agent that serves the socket at `path()`: an agent may come, and say where it is, at any time."""

    def __init__(self, path: Callable[[], str]) -> None:
        self._path = path
        self._client: ControlClient | None = None
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}

    async def ask(self, verb: str) -> dict[str, Any]:
        """See `AskAgent`. Never raises."""
        now = time.monotonic()
        asked_s, known = self._known.get(verb, (float("-inf"), {"agent": False}))
        if now - asked_s >= FRESH_S:
            self._known[verb] = now, known  # others that ask meanwhile do not ask the agent again
            known = await self._ask(verb)
            self._known[verb] = now, known
        return known

    async def _ask(self, verb: str) -> dict[str, Any]:
        if not (path := self._path_if_there()):
            return {"agent": False}
        if self._client is None or self._client.path != path:
            await self.close()
            self._client = ControlClient(path, TIMEOUT_S)
        try:
            told = await self._client.call(verb)
        except EdgertError as error:
            return {"agent": True, "error": str(error)}
        if isinstance(told, dict) and told.get("enabled") is False:
            return {"agent": False}  # of this part there is nothing to show, and nothing is wrong
        needed = FIELDS[verb]
        if not isinstance(told, dict) or not all(isinstance(told.get(name), kind) for name, kind in needed.items()):
            return {"agent": True, "error": f"expected the agent's {verb}, got {show(told)}"}
        return {**told, "agent": True}

    def _path_if_there(self) -> str:
        path = self._path()
        return path if path and os.path.exists(path) else ""

    async def close(self) -> None:
        """End the connection."""
        if self._client is not None:
            await self._client.close()
