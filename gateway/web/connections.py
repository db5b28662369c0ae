"""The connections of the page: so many at a time, and none that stays silent.

A client that opens connections and sends nothing, or half a request, gets no place for long: the oldest connection
without a request ends for a new one. Where all have a request in work, a new one is refused; a few places more are kept
for programs on this machine, which ask for `/healthz` and `/metrics`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from edgert.core.text.hosts import is_loopback

PLACES: Final = 128
LOOPBACK_PLACES: Final = 16
"""More, for connections from this machine."""
REQUEST_S: Final = 10.0
"""Within so long a request has to come, whole up to its empty line."""


class Connection(H11Protocol):
    """One connection: uvicorn's own, with a time limit until its request is there."""

    since: float = 0.0
    """When it was opened, by the loop's clock."""
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self.since = self.loop.time()
        if not self._has_place():
            self.transport.abort()
            return
        self._deadline = self.loop.call_later(REQUEST_S, self._end_if_silent)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._deadline is None and not self.busy:
            self._deadline = self.loop.call_later(REQUEST_S, self._end_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    @property
    def busy(self) -> bool:
        """True if a request is in work."""
        cycle: Any = self.cycle  # none before the first request, whatever its annotation says
        return cycle is not None and not cycle.response_complete

    def _end_if_silent(self) -> None:
        self._deadline = None
        if not self.busy:
            self.transport.abort()

    def _has_place(self) -> bool:
        """True if the connection may stay; the oldest silent one makes room for it."""
        others: list[Any] = [other for other in self.connections if other is not self]
        if len(others) < PLACES:
            return True
        silent = [other for other in others if not other.busy and not other.transport.is_closing()]
        if silent:
            min(silent, key=lambda other: other.since).transport.abort()
            return True
        local = self.client is not None and is_loopback(self.client[0])
        return local and len(others) < PLACES + LOOPBACK_PLACES
