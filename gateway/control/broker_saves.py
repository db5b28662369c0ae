"""Asks for a save of the board's own broker when what it must not forget has changed.

Such a broker writes its memory to the card now and then. After a power cut it has no session of a gateway that
subscribed since: what sensors publish until the gateway is back would be acknowledged and kept for nobody.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from edgert.boards import files
from edgert.core.errors import EdgertError
from edgert.core.settings.gateway import GatewaySettings, save_request
from gateway.control.accepted_writes import AcceptedWrites
from gateway.ingest.ingest import Ingest

log = logging.getLogger(__name__)
LOOK_S: Final = 1.0


class BrokerSaves:
    """Lives on the daemon's loop."""

    def __init__(self, request: str, remembered: Callable[[], Any]) -> None:
        """`request`: path of the file for root (`edgert-broker-save.path` of a board's image). `remembered` returns
        what the broker has to remember; None while that is not complete."""
        self._request, self._remembered, self.look_s = Path(request), remembered, LOOK_S

    async def run(self) -> None:
        """Leaves a request after each change, until cancelled."""
        asked: Any = None
        while True:
            now = self._remembered()
            if now is not None and now != asked and self._ask():
                asked = now
            await asyncio.sleep(self.look_s)

    def _ask(self) -> bool:
        try:
            files.write(self._request, b"")
        except EdgertError as error:
            log.error("the board's broker is not asked to save: %s", error)
            return False
        return True


def saving(settings: GatewaySettings, ingest: Ingest, accepted: AcceptedWrites) -> list[Coroutine[Any, Any, None]]:
    """Returns the work of a gateway whose broker is the board's own: its session and the documents are remembered."""

    def remembered() -> tuple[str, int, int] | None:
        subscriber = ingest.subscriber
        return (subscriber.saved, ingest.sessions_lost, accepted.changes) if subscriber.hears else None

    if not settings.sensors.broker_saves:
        return []
    return [BrokerSaves(save_request(settings, os.environ, os.geteuid() == 0), remembered).run()]
