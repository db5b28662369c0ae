"""The gateway of this board, over its control socket. The agent works without it, and says so."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from edgert.control.client import ControlClient
from edgert.control.messages import MAX_STATE_BYTES, ControlError, VerbError
from edgert.core.errors import show

log = logging.getLogger(__name__)
MAX_FLOWS = 40
"""Flows that are told to the others: more do not fit into a packet."""
AWAY_S = 0.5
"""Time between two looks while the gateway does not answer."""


class Client(Protocol):
    """The asking end of a control socket."""

    @property
    def path(self) -> str: ...

    async def call(self, verb: str, args: Mapping[str, Any] | None = None, timeout_s: float | None = None) -> Any: ...

    async def close(self) -> None: ...


class LocalGateway:
    """The last answers of this board's gateway; `connected` is False while it does not answer."""

    def __init__(self, socket: str, name: str, client: Client | None = None, own_socket: str = "") -> None:
        """`client`: another way to ask the gateway than its socket. `own_socket`: path of this agent's control socket,
        which the gateway's page asks; empty: the gateway need not know."""
        self.client: Client = client or ControlClient(socket, max_request_bytes=MAX_STATE_BYTES)
        self.connected = False
        self.error = "not asked yet"
        self.figures: Mapping[str, Any] = {}
        self.status: Mapping[str, Any] = {}
        self.parts: Mapping[str, Any] = {}
        """Flow -> its part here, as `part.status` says it; also of flows that are only prepared."""
        self._name, self._own_socket = name, own_socket and os.path.abspath(own_socket)

    async def look(self) -> None:
        """Ask for figures, status and parts."""
        try:
            figures, status = await self.client.call("figures"), await self.client.call("status")
            parts = await self.client.call("part.status")
            if self._own_socket:
                with suppress(VerbError):  # a gateway of an older version asks where its settings say
                    await self.client.call("agent.here", {"socket": self._own_socket})
        except ControlError as error:
            self._lost(str(error))
            return
        if not (isinstance(figures, dict) and isinstance(status, dict) and isinstance(parts, dict)):
            self._lost(f"expected maps, got {show(figures)}, {show(status)} and {show(parts)}")
        elif figures.get("gateway") != self._name:
            self._lost(f"it serves the gateway {show(figures.get('gateway'))}, this agent belongs to {self._name}")
        else:
            self.figures, self.status, self.parts = figures, status, parts
            if not self.connected:
                log.info("the gateway %s answers on %s", self._name, self.client.path)
            self.connected, self.error = True, ""

    async def pause(self, seconds: float) -> None:
        """Sleeps, not longer than until a gateway that was away answers."""
        if self.connected:
            await asyncio.sleep(seconds)
            return
        while seconds > 0 and not self.connected:
            await asyncio.sleep(min(seconds, AWAY_S))
            seconds -= AWAY_S
            await self.look()

    def _lost(self, error: str) -> None:
        if self.connected or error != self.error:
            log.warning("this board's gateway does not answer: %s", error)
        self.connected, self.error, self.figures, self.status, self.parts = False, error, {}, {}, {}

    def link_port(self) -> int:
        """Port of the gateway's listener for other gateways; 0 without one."""
        links = self.status.get("links")
        port = links.get("port") if isinstance(links, dict) else 0
        return port if isinstance(port, int) else 0

    def pid(self) -> int | str:
        """Process of the gateway's daemon, as /proc names it; while the gateway has not said it, of this agent."""
        threads = self.figures.get("threads")
        found = [t.get("pid") for t in threads if isinstance(t, dict)] if isinstance(threads, list) else []
        return next((pid for pid in found if type(pid) is int), "self")

    def flows(self) -> dict[str, Any]:
        """Flow -> [version, plan] of what runs, flows that are only prepared, and the number of slots."""
        flows = self.figures.get("flows")
        found = flows if isinstance(flows, dict) else {}
        told = {n: [f.get("version", 0), f.get("plan", 0)] for n, f in sorted(found.items())[:MAX_FLOWS]}
        threads = self.figures.get("threads")
        slots = {t.get("slot", -1) for t in threads if isinstance(t, dict)} if isinstance(threads, list) else set()
        prepared = sorted(self.parts.keys() - found.keys())[:MAX_FLOWS]
        return {"flows": told, "slots": len(slots - {-1})} | ({"prepared": prepared} if prepared else {})

    async def close(self) -> None:
        await self.client.close()
