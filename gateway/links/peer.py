"""One other gateway: the streams with it, the link that carries them now, and the store that feeds them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Set
from typing import Any, Final

from edgert.core.errors import ProtocolError
from edgert.links.messages import MAX_FRAME, Number
from edgert.links.protocol import Sender
from edgert.links.session import Acknowledged, FellBehind, LinkEvent, LinkSession, Received
from edgert.links.tls import WRITE_BYTES, TlsLink
from gateway.links.link_store import Deliver, LinkStore, LinkStream, NotNow

log = logging.getLogger(__name__)

MOST_BACKLOG: Final = WRITE_BYTES + 2 * MAX_FRAME
"""Bytes that may wait for a peer that does not read. Batches wait in the store; this is what it makes us answer."""

FellBehindCall = Callable[[LinkStream, Number], None]


class Peer:
    """Lives on the loop."""

    def __init__(
        self, gateway: str, name: str, store: LinkStore, deliver: Deliver, fell_behind: FellBehindCall,
        clock: Callable[[], float], still: Set[str] = frozenset(),
    ) -> None:  # fmt: skip
        """`gateway`: ours; `name`: the other; `still`: flows of which nothing is sent now."""
        self.name = name
        self.session = LinkSession()
        self.link: TlsLink | None = None
        self.error = ""
        """Why there is no link, or why the last one ended."""
        self._gateway, self._store, self._deliver = gateway, store, deliver
        self._fell_behind, self._clock, self._still = fell_behind, clock, still
        self._wake = asyncio.Event()
        self._deletions: dict[str, Number] = {}
        self._resting: set[str] = set()
        """Flows whose reads or writes of the store failed; they are tried again at the next tick."""
        self._held: dict[str, Number] = {}
        """Flows that did not take a batch → the number before it."""
        self._task = asyncio.get_running_loop().create_task(self._work(), name=f"links to {name}")

    def stream_to(self, flow: str) -> LinkStream:
        return LinkStream(flow, self._gateway, self.name)

    def stream_from(self, flow: str) -> LinkStream:
        return LinkStream(flow, self.name, self._gateway)

    async def stop(self) -> None:
        self.detach("this gateway stops talking to it")
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    # -- the link

    def attach(self, link: TlsLink) -> None:
        """A new link to it; an old one is closed: its other end may be long dead."""
        self.detach("there is a newer link")
        self.link, self.error = link, ""
        self.session.connected(self._clock())
        link.ended.add_done_callback(lambda _: self._ended(link, "the connection was closed"))
        link.begin(lambda data: self._received_untrusted(link, data), self._wake.set)
        self.flush()
        log.info("linked to gateway %s at %s", self.name, link.address)

    def detach(self, why: str) -> None:
        if self.link is not None:
            self._ended(self.link, why)

    def _ended(self, link: TlsLink, why: str) -> None:
        if link is not self.link:
            return
        self.link, self.error = None, why
        self.session.lost()
        link.close()
        log.warning("the link to gateway %s has ended: %s", self.name, why)

    def flush(self) -> None:
        """Sends what the session has to say, and looks whether the store has more."""
        if self.link is not None and (data := self.session.take_output()):
            self.link.send(data)
        self._wake.set()

    def tick(self) -> None:
        """Once a second."""
        link = self.link
        try:
            self.session.tick(self._clock())
        except ProtocolError as error:
            self.detach(str(error))
        if link is not None and link.backlog_bytes > MOST_BACKLOG:
            self.detach(f"expected it to read what it asks for, got {link.backlog_bytes} bytes waiting for it")
        self._resting.clear()
        held, self._held = self._held, {}
        for flow, position in held.items():
            if flow in self.session.receivers:
                self.session.rewind(flow, position)
        self.flush()

    # -- events

    def _received_untrusted(self, link: TlsLink, data: bytes) -> None:
        if link is not self.link:
            return
        try:
            events = self.session.receive_untrusted(data, self._clock())
        except ProtocolError as error:
            self._ended(link, str(error))
            return
        for event in events:
            self.handle(event)
        if link.backlog_bytes > MOST_BACKLOG:
            self.detach(f"expected it to read what it asks for, got {link.backlog_bytes} bytes waiting for it")
        self.flush()

    def handle(self, event: LinkEvent | None) -> None:
        if isinstance(event, Received):
            self._take(event)
        elif isinstance(event, Acknowledged):
            self._deletions[event.flow] = event.number
        elif isinstance(event, FellBehind):
            log.error(
                "flow %s: gateway %s has batches up to %s, which this gateway never sent: its database was put back",
                event.flow, self.name, event.theirs,
            )  # fmt: skip
            self._fell_behind(self.stream_to(event.flow), event.theirs)

    def _take(self, event: Received) -> None:
        if event.flow in self._held:
            return  # the peer sends the batch again
        try:
            self._deliver(self.stream_from(event.flow), event.number, event.body, event.gap)
        except NotNow as error:  # as in each change of a flow's plan
            log.debug("batch %s of gateway %s waits there: %s", event.number, self.name, error)
            self._hold(event)
        except Exception:
            log.exception("flow %s did not take batch %s of gateway %s", event.flow, event.number, self.name)
            self._hold(event)

    def _hold(self, event: Received) -> None:
        self._held[event.flow] = event.before
        self.session.hold(event.flow, event.before)

    def forget_refusal(self, flow: str) -> None:
        """The flow begins to take batches from another position than that of the batch it did not take."""
        self._held.pop(flow, None)

    # -- the store

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while await self._step():
                pass

    async def _step(self) -> bool:
        """One read of the store for each stream that can send; whether there may be more to do."""
        for flow in list(self._deletions):
            number = self._deletions.pop(flow)
            await self._try(flow, self._store.delete_to(self.stream_to(flow), number))
        rest = self._resting | self._still
        wanted = [(flow, part) for flow, part in self.session.wanted() if flow not in rest]
        for flow, part in wanted:
            if self.link is None or not self.link.writable:
                return False  # `begin` and `on_writable` wake us again
            read = await self._try(flow, self._store.pending(self.stream_to(flow), part.after, part.limit_bytes))
            if read is not None and flow not in self._still:
                self._offer(flow, part, read)
        return bool(wanted)

    def _offer(self, flow: str, part: Any, batches: Any) -> None:
        try:
            self.session.offer(flow, part, batches)
        except ValueError as error:
            self._resting.add(flow)
            log.error("flow %s: the store holds what cannot be sent to gateway %s: %s", flow, self.name, error)
        self.flush()

    async def _try(self, flow: str, call: Any) -> Any:
        """The result; None for a failure, which rests the flow for a second. A later deletion repairs a failed one."""
        try:
            return await call
        except Exception:
            self._resting.add(flow)
            log.exception("flow %s: the store of links failed", flow)
            return None

    def status(self) -> dict[str, Any]:
        """Returns its section of the status object. Sequences are of the newest epoch."""
        session = self.session
        return {
            "gateway": self.name,
            "connected": self.link is not None,
            "error": self.error,
            "backlog_bytes": self.link.backlog_bytes if self.link else 0,
            **{name: getattr(session.counters, name) for name in session.counters.__slots__},
            "outgoing": {flow: _outgoing(sender) for flow, sender in session.senders.items()},
            "incoming": {
                flow: {"accepted": list(end.accepted), "committed": list(end.committed),
                       "duplicates": end.refusals.duplicates + end.refusals.stale,
                       "out_of_order": end.refusals.out_of_order}
                for flow, end in session.receivers.items()
            },
        }  # fmt: skip


def _outgoing(sender: Sender) -> dict[str, Any]:
    return {
        "last": list(sender.last),
        "acknowledged": list(sender.acknowledged),
        "behind": list(sender.behind) if sender.behind else None,
    }
