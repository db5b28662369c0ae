"""The fleet's list of revoked certificates as it comes over MQTT: it is left for root, which checks it and stores it.

The gateway's links and the board's agent read the stored file again when it has changed. The gateway tells which list
the board has, so that who published one sees when all boards have it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from edgert.boards import files
from edgert.core.errors import EdgertError
from edgert.core.text.revoked_topic import list_digest

log = logging.getLogger(__name__)
LOOK_S: Final = 2.0
"""Between two looks at the board's list."""
MOST_BYTES: Final = 1 << 20


class RevokedList:
    """Lives on the daemon's loop."""

    def __init__(
        self, stored: str, request: str, publish: Callable[[bytes], bool], connects: Callable[[], int]
    ) -> None:
        """`stored`: the board's list (`links.crl`). `request`: path of the file for root. `publish`, `connects`: as for
        `BoardUpdates`."""
        self._stored, self._request = Path(stored), Path(request)
        self._publish, self._connects, self.look_s = publish, connects, LOOK_S

    async def take_untrusted(self, payload: bytes) -> None:
        """A list from the broker: root gets it, unless the board has it. Whether it is one, and newer, root checks."""
        if not payload or len(payload) > MOST_BYTES or payload == self._read():
            return
        try:
            files.write(self._request, payload)
        except EdgertError as error:
            log.error("a list of revoked certificates cannot be handed over: %s", error)

    def _read(self) -> bytes:
        try:
            with self._stored.open("rb") as file:
                return file.read(MOST_BYTES + 1)
        except OSError:
            return b""

    async def run(self) -> None:
        """Publishes which list the board has, when it changes and to each new connection, until cancelled."""
        published: tuple[str, int] = ("", 0)
        while True:
            now = (list_digest(self._read()), self._connects())
            if now != published and self._publish(json.dumps({"digest": now[0]}).encode()):
                published = now
            await asyncio.sleep(self.look_s)
