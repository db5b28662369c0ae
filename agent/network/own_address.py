"""Keeps an agent reachable while its board's address changes, as by DHCP: listens anew, and tells the others."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from agent.membership.members import Address
from agent.network.transport import Transport
from edgert.core.clock import Clock
from edgert.core.errors import EdgertError
from edgert.core.settings.agent import Agent as AgentAddresses
from edgert.core.settings.checks import is_address
from edgert.links.local_address import local_address

log = logging.getLogger(__name__)
LOOK_S: Final = 2.0
UNKNOWN: Final = "0.0.0.0"
"""In place of an address that this board has not got yet."""


class OwnAddress:
    """Follows `agent.bind` and `agent.advertise`."""

    def __init__(self, settings: AgentAddresses, transport: Transport, clock: Clock) -> None:
        self.error = ""
        """Why this agent cannot be reached now; empty if it can."""
        self._settings, self._transport, self._clock = settings, transport, clock
        self._bound: Address | None = None
        self._since = float("inf")
        """Monotonic time at which it listened first."""

    async def follow(self) -> None:
        """For ever: looks every `LOOK_S`."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    def known_s(self) -> float:
        """Seconds since the agent listened first; below 0 before."""
        return self._clock.monotonic() - self._since

    async def look(self) -> None:
        """Listens where the settings mean now. Without an address it is tried again at the next look."""
        try:
            host = local_address(self._settings.bind)
            if self._bound is None or host != self._bound[0]:
                await self._listen(host)
            if self._bound is not None:
                self._transport.membership.move((self._told(host), self._bound[1]), self._clock.monotonic())
                self._transport.run()
        except EdgertError as error:
            self._say(str(error))
        else:
            self._say("")

    async def _listen(self, host: str) -> None:
        first = self._bound is None
        port = self._settings.port if self._bound is None else self._bound[1]
        self._bound = None
        self._bound = await self._transport.start((host, port))
        self._since = min(self._since, self._clock.monotonic())
        log.log(logging.INFO if first else logging.WARNING, "the agent listens on %s:%d", *self._bound)

    def _told(self, host: str) -> str:
        advertise = self._settings.advertise
        if not advertise:
            return host
        return advertise if is_address(advertise) else local_address(advertise)

    def _say(self, error: str) -> None:
        if error and error != self.error:
            log.error("other boards do not reach this agent: agent.bind, agent.advertise: %s; tried again", error)
        elif self.error and not error:
            log.warning("other boards reach this agent again")
        self.error = error
