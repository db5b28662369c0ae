"""All links to other gateways: the listener, one connection per peer, and the streams of the flows that need them.

Of two gateways the one whose id is smaller calls the other, so that there is one connection. A connection is taken only
from a gateway that was named by `set_peers`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import ssl
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from edgert.core.errors import EdgertError
from edgert.core.settings.gateway import Links as LinksSettings
from edgert.links.messages import Number
from edgert.links.protocol import WINDOW
from edgert.links.tls import (
    Credentials,
    Identity,
    LinkError,
    Listener,
    TlsLink,
    connect,
    own_fault,
    require_loopback,
    take_renewed,
    take_revoked,
    tls_context,
)
from edgert.mqtt.clients.reconnect import Backoff
from gateway.links.link_store import Deliver, LinkStore
from gateway.links.listening import Listening
from gateway.links.peer import FellBehindCall, Peer

log = logging.getLogger(__name__)

TICK_S: Final = 1.0
Address = tuple[str, int]


class Peers:
    """Lives on the loop. Flows are told apart by name: a flow has one stream to each other gateway at most."""

    def __init__(
        self,
        ours: Identity,
        settings: LinksSettings,
        store: LinkStore,
        deliver: Deliver,
        fell_behind: FellBehindCall,
        *,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`fell_behind`: the stream's flow has to open an epoch later than the number's. Raises `LinkError`."""
        self._ours, self._settings = ours, settings
        self._store, self._deliver, self._fell_behind = store, deliver, fell_behind
        self.backoff, self._clock, self._draw = backoff or Backoff(first_s=0.2, max_s=5.0), clock, draw
        self._server, self._context = _contexts(settings)
        self._crl_stamp, self._own_stamp = _stamp(settings.crl), _stamp(settings.certificate, settings.key)
        self.listening = Listening(Listener(ours, self._server, self._called), settings.listen, settings.port)
        self.tick_s = TICK_S
        self._addresses: dict[str, Address] = {}
        self.by_name: dict[str, Peer] = {}
        self._dialing: dict[str, asyncio.Task[None]] = {}
        self._ticking: asyncio.Task[None] | None = None
        self._still: set[str] = set()
        """Flows that send nothing now."""

    # -- life

    async def start(self) -> None:
        """Raises `LinkError` for settings that expose plain TCP. Where this board lacks the address now, as before DHCP
        gave one, flows run without links, and it is tried again each second."""
        if self._context is None:
            require_loopback(self._settings.listen)
        await self.listening.look()
        self._ticking = asyncio.get_running_loop().create_task(self._tick(), name="links")

    async def stop(self) -> None:
        """Closes all links. Batches that are not acknowledged stay in the store."""
        tasks = [*self._dialing.values(), *([self._ticking] if self._ticking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.listening.stop()
        await asyncio.gather(*(peer.stop() for peer in self.by_name.values()))

    def set_peers(self, addresses: Mapping[str, Address], keep: Collection[str] = ()) -> None:
        """Sets the gateways to be linked to, and where they listen. Streams of the others wait. A gateway of `keep`
        stays a peer at the address of before, if it has one."""
        before = self._addresses
        kept = {name: at for name, at in before.items() if name in keep}
        self._addresses = {name: at for name, at in {**kept, **addresses}.items() if name != self._ours.gateway}
        for name in before.keys() | self._addresses.keys():
            if before.get(name) == self._addresses.get(name):
                continue
            if (task := self._dialing.pop(name, None)) is not None:
                task.cancel()
            if name not in self._addresses:
                self.peer(name).detach("it is not among this gateway's peers any more")
            elif self._ours.gateway < name:
                self._dialing[name] = asyncio.get_running_loop().create_task(self._dial(name), name=f"call {name}")

    # -- streams

    async def open_outgoing(self, flow: str, destination: str) -> None:
        """The flow has batches for `destination`, now or later; sends what the store has."""
        peer = self.peer(destination)
        last = await self._store.position(peer.stream_to(flow))
        peer.handle(peer.session.send(flow, last))
        peer.flush()

    def close_outgoing(self, flow: str, destination: str) -> None:
        """Sends no more; the store keeps what is not acknowledged."""
        self.peer(destination).session.send_no_more(flow)

    def stored(self, flow: str, destination: str, number: Number) -> None:
        """A commit has put batches of an open stream up to `number` into the store."""
        peer = self.peer(destination)
        peer.session.stored(flow, number)
        peer.flush()

    async def open_incoming(self, flow: str, origin: str, window: int = WINDOW) -> None:
        """The flow takes batches of `origin`, from behind its last commit. `window`: bytes that may wait for it."""
        peer = self.peer(origin)
        position = await self._store.position(peer.stream_from(flow))
        peer.forget_refusal(flow)
        peer.session.receive(flow, position, window)
        peer.flush()

    def close_incoming(self, flow: str, origin: str) -> None:
        """The flow takes no more; the origin keeps what is not acknowledged."""
        peer = self.peer(origin)
        peer.forget_refusal(flow)
        peer.session.receive_no_more(flow)
        peer.flush()

    def hold(self, flow: str) -> None:
        """Sends nothing of the flow until `release`; what is committed stays in the store."""
        self._still.add(flow)

    def release(self, flow: str) -> None:
        """Sends the flow's batches again."""
        self._still.discard(flow)
        for peer in self.by_name.values():
            peer.flush()

    def taken(self, flow: str, origin: str, number: Number) -> None:
        """The flow has worked on everything up to `number`: the origin may send more."""
        peer = self.peer(origin)
        peer.session.taken(flow, number)
        peer.flush()

    def committed(self, flow: str, origin: str, number: Number) -> None:
        """A commit of this gateway covers everything up to `number`: the origin may delete it."""
        peer = self.peer(origin)
        peer.session.committed(flow, number)
        peer.flush()

    def rewind(self, flow: str, origin: str, number: Number) -> None:
        """The flow went back to its last commit: it gets everything after `number` again."""
        peer = self.peer(origin)
        peer.forget_refusal(flow)
        peer.session.rewind(flow, number)
        peer.flush()

    def status(self) -> dict[str, Any]:
        """Returns its section of the status object."""
        return {
            **self.listening.status(),
            "tls": self._context is not None,
            "peers": [peer.status() for _, peer in sorted(self.by_name.items())],
        }

    def peer(self, name: str) -> Peer:
        if name not in self.by_name:
            self.by_name[name] = Peer(
                self._ours.gateway, name, self._store, self._deliver, self._fell_behind, self._clock, self._still
            )
        return self.by_name[name]

    # -- connections

    def _called(self, link: TlsLink) -> None:
        if link.peer not in self._addresses:
            link.refuse(f"{link.peer} is not among the peers of {self._ours.gateway}")
            return
        self.peer(link.peer).attach(link)

    async def _dial(self, name: str) -> None:
        """For ever: connects, and again when the connection has ended."""
        attempt, peer = 0, self.peer(name)
        while True:
            began = self._clock()
            try:
                link = await connect(*self._addresses[name], name, self._ours, self._context)
            except EdgertError as error:
                why = f"{error}{self._own_fault()}"
                if why != peer.error:
                    log.warning("no link to gateway %s: %s", name, why)
                peer.error = why
            else:
                peer.attach(link)
                await asyncio.wait([link.ended])
                attempt = 0 if self._clock() - began >= self.backoff.stable_s else attempt
            await asyncio.sleep(self.backoff.delay(attempt, self._draw))
            attempt += 1

    def _own_fault(self) -> str:
        """To be said with an error of a connection."""
        fault = own_fault(self._server, self._context) if self._server and self._context else ""
        return fault and f"; others refuse our certificate {self._settings.certificate}: {fault}"

    def _look_for_revoked(self) -> None:
        """Ends all links after the list of revoked certificates has changed: those that may come back do so at once."""
        stamp = _stamp(self._settings.crl)
        if stamp == self._crl_stamp:
            return
        self._crl_stamp = stamp
        try:
            for context in filter(None, (self._server, self._context)):
                take_revoked(context, self._settings.crl)
        except LinkError as error:
            log.warning("the list of revoked certificates stays as it was: %s", error)
            return
        log.info("%s was read: revoked certificates make no links", self._settings.crl)
        for peer in self.by_name.values():
            peer.detach("the list of revoked certificates has changed")

    def _look_for_renewed(self) -> None:
        """Links that are open stay so."""
        stamp = _stamp(self._settings.certificate, self._settings.key)
        if stamp == self._own_stamp:
            return
        self._own_stamp = stamp
        try:
            for context in filter(None, (self._server, self._context)):
                take_renewed(context, _credentials(self._settings))
        except LinkError as error:  # or only one file was replaced yet
            log.warning("no certificate for links until its files are replaced: %s", error)
            return
        log.info("%s was read: new links use it", self._settings.certificate)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.tick_s)
            await self.listening.look()
            self._look_for_revoked()
            self._look_for_renewed()
            for peer in list(self.by_name.values()):
                peer.tick()


def _stamp(*paths: str) -> tuple[int, ...]:
    """Changes when a file is replaced; zeros where there is none."""
    stamp: list[int] = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            stamp += (0, 0)
        else:
            stamp += (status.st_mtime_ns, status.st_ino)
    return tuple(stamp)


def _contexts(settings: LinksSettings) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """TLS contexts for accepted and for outgoing connections; None: plain TCP."""
    files = (settings.certificate, settings.key, settings.ca)
    if settings.crl and not any(files):
        raise LinkError("links.crl: expected links.certificate, links.key and links.ca beside it, got none of them")
    if not any(files):
        return None, None
    if not all(files):
        raise LinkError("expected all of links.certificate, links.key and links.ca, or none of them, got some")
    credentials = _credentials(settings)
    return tls_context(credentials, server=True), tls_context(credentials, server=False)


def _credentials(settings: LinksSettings) -> Credentials:
    return Credentials(settings.certificate, settings.key, settings.ca, settings.crl)
