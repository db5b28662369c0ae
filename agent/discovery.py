"""Agents of one fleet on one local network find each other without seed addresses, by mDNS (RFC 6762, 6763).

All on that network can read the announcement: the gateway's id, the fleet's name, address and port. An address that is
found is trusted no more than one of `agent.seeds`: only an agent that has the fleet's key answers or is answered.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from zeroconf import IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from agent.membership.members import Address

log = logging.getLogger(__name__)
SERVICE: Final = "_edgert-agent._udp.local."
FLEET: Final = b"fleet"
RETRY_S: Final = 30.0
ANSWER_MS: Final = 3000
"""Time for which an agent that was seen is asked for its address."""
MOST: Final = 256
"""Addresses that are kept. One that anybody announces costs a packet now and then."""
MOST_ASKED: Final = 8
"""Agents that are asked at the same time; others that appear meanwhile are left to their next announcement."""


class Discovery:
    """Announces this agent, and collects the `found` addresses of others of its fleet."""

    def __init__(self, name: str, fleet: str) -> None:
        self.found: dict[str, Address] = {}
        """Newest last, by the name that they announce."""
        self._name, self._fleet = name, fleet
        self._own = f"{name}.{SERVICE}"
        self._error = ""
        self._zeroconf: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None
        self._asking: set[asyncio.Task[None]] = set()

    async def run(self, address: Callable[[], Address]) -> None:
        """Runs until it is cancelled. `address`: returns that which others are told. It may change, and a board's
        network may come up after its agent: then mDNS is begun anew."""
        announced: Address | None = None
        try:
            while True:
                if announced != (now := address()):
                    await self._stop()
                if self._browser is None:
                    announced = now
                    await self._start(now)
                await asyncio.sleep(RETRY_S)
        finally:
            await self._stop()

    def status(self) -> Mapping[str, Any]:
        """Announced or not, and why; addresses that were found."""
        return {"announced": self._browser is not None, "error": self._error, "found": [*self.found.values()]}

    async def _start(self, address: Address) -> None:
        host, port = address
        try:
            own = ipaddress.ip_address(host)
            if own.is_unspecified or own.is_loopback:
                raise ValueError(f"{host} is no address of a local network")
            version = IPVersion.V4Only if own.version == 4 else IPVersion.V6Only
            self._zeroconf = AsyncZeroconf(interfaces=[host], ip_version=version)
            info = AsyncServiceInfo(
                SERVICE, self._own, port, addresses=[own.packed], properties={FLEET: self._fleet.encode()}
            )
            await self._zeroconf.async_register_service(info)
            self._browser = AsyncServiceBrowser(self._zeroconf.zeroconf, SERVICE, handlers=[self._seen])
        except Exception as error:  # noqa: BLE001 - the fleet may be joined by seeds
            await self._stop()
            self._tell(
                f'agent.discovery = "mdns" does not work: {error!r}. It needs this board\'s address on the network '
                f"in agent.bind or agent.advertise, and a gateway.id of its own"
            )
        else:
            self._tell("")

    def _tell(self, error: str) -> None:
        if error and error != self._error:
            log.warning("%s; tried again every %g s", error, RETRY_S)
        self._error = error

    def _seen(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is ServiceStateChange.Removed:
            self.found.pop(name, None)
        elif name != self._own and len(self._asking) < MOST_ASKED:
            task = asyncio.get_running_loop().create_task(self._ask(zeroconf, name))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _ask(self, zeroconf: Zeroconf, name: str) -> None:
        try:
            info = AsyncServiceInfo(SERVICE, name)
            if not await info.async_request(zeroconf, ANSWER_MS) or info.properties.get(FLEET) != self._fleet.encode():
                return
            hosts = info.parsed_addresses()
        except Exception as error:  # noqa: BLE001 - what others announce stops nothing here
            log.debug("an announcement could not be read: %r", error)
            return
        if not hosts or not info.port:
            return
        self.found.pop(name, None)
        self.found[name] = hosts[0], info.port
        while len(self.found) > MOST:
            del self.found[next(iter(self.found))]
        log.info("mDNS shows an agent of fleet %s at %s:%d", self._fleet, hosts[0], info.port)

    async def _stop(self) -> None:
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        if self._browser is not None:
            await self._browser.async_cancel()
        if self._zeroconf is not None:
            await self._zeroconf.async_unregister_all_services()
            await self._zeroconf.async_close()
        self._browser = self._zeroconf = None
