"""Updates of the board: a request that comes over MQTT is left for root, and what root tells of updates is published.

The gateway installs nothing. A path unit of systemd sees the request and starts `edgert board requested`, which checks
it again; the update client checks the bundle's signature.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from edgert.boards import files
from edgert.boards.board_state import MOST_BYTES, BoardState, state_untrusted
from edgert.boards.requests import UpdateRequest, request_untrusted
from edgert.core.errors import EdgertError
from edgert.core.settings.gateway import Updates

log = logging.getLogger(__name__)
LOOK_S: Final = 1.0
"""Between two looks at what root tells."""
NO_SLOTS: Final = "this board takes no updates: expected one that was made from an image with two slots"


class BoardUpdates:
    """Lives on the daemon's loop. Its files are small and in memory."""

    def __init__(
        self, settings: Updates, request: str, publish: Callable[[bytes], bool], connects: Callable[[], int]
    ) -> None:
        """`request`: path of the file for root. `publish`: hands a retained state to the central broker. `connects`:
        number of connections that there were to it; each is told the state."""
        self._settings, self._request = settings, Path(request)
        self._publish, self._connects, self.look_s = publish, connects, LOOK_S

    async def update(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"id": text, "url": URL, "version": text, "drain": boolean}`: leaves the request for root. Asked again with
        the same id, it changes nothing."""
        if not self._settings.enabled:
            raise EdgertError("this board takes no updates over MQTT: updates.enabled is false")
        request = request_untrusted(arguments)
        state = self.state()
        if state is None:
            raise EdgertError(NO_SLOTS)
        if state.refuses:
            raise EdgertError(state.refuses)
        answer = {"asked": True, "id": request.id, "version": state.version}
        if (last := state.update) is not None and last.request == request.id:
            return answer
        if last is not None and not last.decided:
            raise EdgertError(f"another update is under way here: {last.version or last.url}, {last}")
        self._leave(request)
        log.warning("an update from %s was asked for (%s)", request.url, request.id)
        return answer

    def _leave(self, request: UpdateRequest) -> None:
        """Whole or not at all: root may look at any moment."""
        content = request.text().encode()
        if self._request.exists() and files.read(self._request, "a request") != content:
            raise EdgertError("another update was asked for here a moment ago")
        files.write(self._request, content)

    def state(self) -> BoardState | None:
        """The state that root tells; None: there is none, so this board has no slots."""
        return state_untrusted(self._told())

    def _told(self) -> bytes:
        try:
            with open(self._settings.state, "rb") as file:
                return file.read(MOST_BYTES + 1)
        except OSError:
            return b""

    async def run(self) -> None:
        """Publishes the state when it changes, and to each new connection, until cancelled."""
        published: tuple[bytes, int] = (b"", 0)
        while True:
            told = self._told() if self._settings.enabled else b""
            now = (told, self._connects())
            if told and now != published and state_untrusted(told) is not None and self._publish(told):
                published = now
            await asyncio.sleep(self.look_s)
