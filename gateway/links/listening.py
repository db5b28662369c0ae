"""The listener of links at an address that may come, go and change while the gateway runs."""

from __future__ import annotations

import logging
from typing import Any

from edgert.core.errors import EdgertError
from edgert.links.local_address import local_address
from edgert.links.tls import Listener

log = logging.getLogger(__name__)


class Listening:
    """Keeps a `Listener` at the address that `links.listen` means now. Flows run without links while there is none."""

    def __init__(self, listener: Listener, listen: str, port: int) -> None:
        self.port = 0
        """The port of the listener; 0 without one."""
        self._error = ""
        """Why other gateways cannot link to this one now."""
        self._listener, self._listen = listener, listen
        self._host, self._wanted = "", port

    async def look(self) -> None:
        """Listens where the setting means now. Without an address, the next look tries again."""
        error = ""
        try:
            host = local_address(self._listen)
            if host != self._host:
                await self._listener.stop()
                self._host, self.port = "", 0
                self.port = self._wanted = await self._listener.start(host, self._wanted)
                self._host = host
                log.info("links to other gateways: %s, port %d", host, self.port)
        except EdgertError as fault:
            error = str(fault)
        if error and error != self._error:
            log.error("other gateways cannot link to this one: links.listen: %s; tried again each second", error)
        self._error = error

    def status(self) -> dict[str, Any]:
        """Returns its part of the status object."""
        return {
            "port": self.port,
            "listen_error": self._error,
            "refused_connections": self._listener.refused,
            "last_refusal": self._listener.refusal,
        }

    async def stop(self) -> None:
        """Takes no more links."""
        await self._listener.stop()
