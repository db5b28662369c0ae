"""One TCP connection to a broker, on asyncio: coalesced reads in bounded portions, and bounded writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from edgert.mqtt.clients.client_types import BrokerAddress
from edgert.mqtt.clients.coalesce import Coalescer

CLOSE_TIMEOUT_S = 2.0
_MOST_UNWRITTEN = 1 << 20
"""Bytes beside our own messages that wait for a broker which does not read. Beyond, nothing is read of it either,
whatever it would oblige us to answer."""
_UNWRITTEN_S = 60.0
"""After so long such a broker is left."""
LONG_READ_S = 0.02
_YIELD_S = 0.002
"""After what took so long, whatever was in it, the loop has so long for everything else; and the next is shorter."""
_LEAST_BYTES = 1 << 12
_MOST_BYTES = 1 << 20
"""Most bytes of what was read that are worked on at once."""


class WireOwner(Protocol):
    """The owner of a connection. The wire calls its methods in the event loop."""

    address: BrokerAddress
    clock: Callable[[], float]

    @property
    def outgoing_bytes(self) -> int: ...

    @property
    def tick_s(self) -> float: ...

    def made(self, wire: Wire) -> None: ...

    def received_untrusted(self, data: bytes, now: float) -> int: ...

    def tick(self, wire: Wire) -> None: ...

    def failed(self, text: str) -> None: ...

    def lost(self, wire: Wire, error: Exception | None) -> None: ...


class Wire(asyncio.Protocol):
    """One connection: reads, coalesced, go to the client."""

    def __init__(self, client: WireOwner, coalescer: Coalescer) -> None:
        self._client = client
        self._coalescer = coalescer
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self._stopped_by_client = False
        self._timer: asyncio.TimerHandle | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._killer: asyncio.TimerHandle | None = None
        self._unwritten: asyncio.TimerHandle | None = None
        """Runs while too much is unwritten."""
        self._unread = b""
        """Bytes that were read and are not decoded yet."""
        self._at_once = _MOST_BYTES
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._client.made(self)
        self._tick()

    def data_received(self, data: bytes) -> None:
        waits = bool(self._unread)
        self._unread += data
        if not waits:
            self._work()

    def _work(self) -> None:
        """On a part of what was read, as large as can be worked on in a short time."""
        data, self._unread = self._unread[: self._at_once], self._unread[self._at_once :]
        client = self._client
        now = client.clock()
        messages = client.received_untrusted(data, now)
        pause_s = self._coalescer.pause_s(messages, len(data), now)
        took_s = client.clock() - now
        if took_s >= LONG_READ_S:
            self._at_once = max(_LEAST_BYTES, int(len(data) * LONG_READ_S / took_s))
            pause_s = max(pause_s, _YIELD_S)
        else:
            self._at_once = min(_MOST_BYTES, 2 * self._at_once)
        if (pause_s and self._reading) or self._unread:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(pause_s, self._resume)
            self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        for handle in (self._timer, self._ticker, self._killer, self._unwritten):
            if handle is not None:
                handle.cancel()
        while self._unread:
            data, self._unread = self._unread, b""
            self._client.received_untrusted(data, self._client.clock())
        self._transport = None
        self._client.lost(self, exc)
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self._unwritten is not None:
            self._unwritten.cancel()
            self._unwritten = None
            self._update()

    def write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        most = _MOST_UNWRITTEN + self._client.outgoing_bytes  # which has a bound of its own
        if not self.writable and self._unwritten is None and transport.get_write_buffer_size() > most:
            self._unwritten = self._loop.call_later(_UNWRITTEN_S, self._reads_nothing)
            self._update()

    def _reads_nothing(self) -> None:
        self._client.failed(f"{self._client.address}: the broker has read nothing for {_UNWRITTEN_S:g} s")
        self.abort()

    @property
    def takes(self) -> bool:
        """True if the broker reads what is written."""
        return self._unwritten is None

    def close(self) -> None:
        """Writes what is left, and ends; within a while, even if the peer takes nothing more and keeps TCP open."""
        if self._transport is not None:
            self._transport.close()
            self._killer = self._loop.call_later(CLOSE_TIMEOUT_S, self.abort)

    def drain(self) -> None:
        """Reads on until the broker closes, as it does once it has read our DISCONNECT. To close before would reset the
        connection if something is unread here, and the broker drops what it has not read of ours: acknowledgements."""
        if self._timer is not None:
            self._timer.cancel()
            self._resume()
        self.update_reading(False)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def update_reading(self, paused: bool) -> None:
        """The application's own pause, which outlasts the one that coalesces."""
        self._stopped_by_client = paused
        self._update()

    def _resume(self) -> None:
        self._timer = None
        if self._unread:
            self._work()
        self._update()  # the last part of what was read leaves nothing to wait for

    def _update(self) -> None:
        """Reads, unless there is a reason not to."""
        on = not self._stopped_by_client and self._timer is None and self._unwritten is None
        if self._transport is None or on is self._reading or self._transport.is_closing():
            return
        self._reading = on
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _tick(self) -> None:
        if self._transport is not None:
            self._client.tick(self)
            self._ticker = self._loop.call_later(self._client.tick_s, self._tick)
