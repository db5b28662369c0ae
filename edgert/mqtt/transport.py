"""The one door of MQTT to the network: a client on asyncio (uvloop in production) that never gives up connecting."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from typing import cast

from edgert.mqtt.client_types import Address, Handlers, Status, Tls
from edgert.mqtt.coalesce import Coalescer
from edgert.mqtt.connection_hints import hint
from edgert.mqtt.credentials import client_context
from edgert.mqtt.events import (
    Closed,
    Connected,
    Event,
    Messages,
    Published,
    Refused,
    Released,
    Subscribed,
    Unsubscribed,
)
from edgert.mqtt.options import SessionOptions
from edgert.mqtt.outgoing import PublishRefused
from edgert.mqtt.packets import Oversized, Properties, Subscription, count
from edgert.mqtt.reconnect import Backoff
from edgert.mqtt.session import Session

__all__ = ["Address", "Handlers", "MqttClient", "Status", "Tls"]

log = logging.getLogger("edgert.mqtt")

_LOG_EVERY_S = 1.0
_CLOSE_TIMEOUT_S = 2.0
_MOST_UNWRITTEN = 1 << 20
"""Bytes beside our own messages that wait for a broker which does not read. Beyond, nothing is read of it either,
whatever it would oblige us to answer."""
_UNWRITTEN_S = 60.0
"""After so long such a broker is left."""
_LONG_READ_S = 0.02
_YIELD_S = 0.002
"""After what took so long, whatever was in it, the loop has so long for everything else; and the next is shorter."""
_LEAST_BYTES = 1 << 12
_MOST_BYTES = 1 << 20
"""Of what was read, so much is worked on at once."""


class MqttClient:
    """One broker, one session, for ever. All methods belong to the event loop's thread."""

    def __init__(
        self,
        address: Address,
        options: SessionOptions,
        handlers: Handlers,
        *,
        backoff: Backoff | None = None,
        latency_budget_s: float = 0.005,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.address = address
        self.handlers = handlers
        self.status = Status()
        self._session = Session(options)
        self._backoff = backoff or Backoff()
        self._budget_s = latency_budget_s
        self._clock = clock
        self._draw = draw
        self._wire: _Wire | None = None
        self._task: asyncio.Task[None] | None = None
        self._paused = False
        self._flush_due = False
        self._retry = False
        self._logged_at = float("-inf")

    # -- life

    async def start(self) -> None:
        """Begin to connect; returns at once. Whether it worked is told by `on_connected` and `status`."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"mqtt {self.address}")

    async def stop(self) -> None:
        """Say good-bye and close. What was published before is written first; the Will stays unpublished."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        wire = self._wire
        if wire is None:
            return
        said = self._session.disconnect()
        self._flush()
        if said:
            wire.drain()
        else:
            wire.close()
        await asyncio.wait([wire.closed], timeout=_CLOSE_TIMEOUT_S)
        wire.abort()

    # -- what the application asks for

    def knows_5(self) -> None:
        """See `Session.knows_5`; before `start`."""
        self._session.knows_5()

    @property
    def connection(self) -> int:
        """Number of the current or last connection; `acknowledge` takes it."""
        return self._session.connection

    @property
    def outgoing(self) -> int:
        """QoS 1 messages of ours that the broker has not acknowledged."""
        return self._session.outgoing

    def subscribe(self, subscriptions: Sequence[Subscription]) -> int:
        """See `Session.subscribe`. To be repeated after each `on_connected` without a session."""
        token = self._session.subscribe(subscriptions)
        self._schedule_flush()
        return token

    def unsubscribe(self, filters: Sequence[str]) -> int:
        token = self._session.unsubscribe(filters)
        self._schedule_flush()
        return token

    def acknowledge(self, packets: Iterable[tuple[int, int]], connection: int | None = None) -> bool:
        """See `Session.acknowledge`. What is acknowledged in one turn of the loop goes out in one write."""
        done = self._session.acknowledge(packets, connection)
        self._schedule_flush()
        return done

    def complete(self, packet_ids: Iterable[int], connection: int | None = None) -> bool:
        """See `Session.complete`."""
        done = self._session.complete(packet_ids, connection)
        self._schedule_flush()
        return done

    def publish(
        self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, properties: Properties | None = None
    ) -> int:
        """See `Session.publish`. QoS 0 is also refused while the socket's buffer is full."""
        if qos == 0 and self._wire is not None and not self._wire.writable:
            raise PublishRefused("expected room in the socket for a message of QoS 0, got a full buffer")
        packet_id = self._session.publish(topic, payload, qos, retain, properties)
        self._schedule_flush()
        return packet_id

    def reconnect(self) -> None:
        """Ends this connection without a word, so that the broker sends anew what is not acknowledged."""
        if self._wire is not None:
            self._wire.abort()

    def pause(self) -> None:
        """Read nothing more from the broker until `resume`. The connection is kept alive meanwhile."""
        self._paused = True
        if self._wire is not None and self.status.connected:
            self._wire.update_reading(self._paused)

    def resume(self) -> None:
        self._paused = False
        if self._wire is not None:
            self._wire.update_reading(self._paused)

    # -- connecting

    async def _run(self) -> None:
        attempt = 0
        while True:
            self._retry = False
            connections, began = self.status.connections, self._clock()
            wire = _Wire(self, Coalescer(self._budget_s, began))
            try:
                async with asyncio.timeout(self._session.options.connect_timeout_s):
                    await self._open(wire)
            except (OSError, ValueError) as error:
                self._failed(f"cannot connect to {self.address}: {self._told(error)}")
            else:
                await asyncio.shield(wire.closed)
            if self._retry:
                continue
            if self.status.connections > connections and self._clock() - began >= self._backoff.stable_s:
                attempt = 0
            await asyncio.sleep(self._backoff.delay(attempt, self._draw))
            attempt += 1

    async def _open(self, wire: _Wire) -> None:
        address = self.address
        context = client_context(*astuple(address.tls)) if address.tls else None
        await asyncio.get_running_loop().create_connection(lambda: wire, address.host, address.port, ssl=context)

    def _told(self, error: Exception) -> str:
        text = str(error) or "no answer in time"
        refused = isinstance(error, ConnectionRefusedError)
        return text + hint(text, tls=self.address.tls is not None, port=self.address.port, accepted=not refused)

    def _failed(self, text: str) -> None:
        if text != self.status.error:
            log.warning("%s", text)
        self.status.error = text

    # -- called by the wire

    def _made(self, wire: _Wire) -> None:
        self._wire = wire
        wire.write(self._session.connect(self._clock()))

    def _received_untrusted(self, data: bytes, now: float) -> int:
        """Handle one read; returns the number of messages in it."""
        status = self.status
        before = status.messages
        status.reads += 1
        status.bytes += len(data)
        for event in self._session.receive_untrusted(data, now):
            if type(event) is Messages:
                status.messages += count(event.messages)
                self._call(self.handlers.on_messages, event.messages)
            else:
                self._handle(event)
        self._schedule_flush()
        return status.messages - before

    def _tick(self, wire: _Wire) -> None:
        for event in self._session.tick(self._clock(), reading=not self._paused and wire.takes):
            self._handle(event)
            wire.abort()
        self._flush()

    def _lost(self, wire: _Wire, error: Exception | None) -> None:
        if wire is not self._wire:
            return
        text = f"connection lost: {error or 'closed by the broker'}"
        if not self.status.connected:
            text += hint(text, tls=self.address.tls is not None, port=self.address.port)
        for event in self._session.lost(text):
            self._handle(event)
        self._wire = None
        self._disconnected()

    # -- events

    def _handle(self, event: Event) -> None:
        handlers = self.handlers
        if isinstance(event, Connected):
            self._connected(event)
        elif isinstance(event, Closed | Refused):
            self._ended(event)
        elif isinstance(event, Published):
            self._call(handlers.on_published, event.packet_id, event.reason)
        elif isinstance(event, Oversized):
            self.status.oversized += 1
            self._call(handlers.on_oversized, event)
        elif isinstance(event, Subscribed):
            self._call(handlers.on_subscribed, event)
        elif isinstance(event, Unsubscribed):
            self._call(handlers.on_unsubscribed, event)
        elif isinstance(event, Released):
            self._call(handlers.on_released, event.packet_id)

    def _connected(self, event: Connected) -> None:
        status = self.status
        status.reconnects += status.connections > 0
        status.connections += 1
        status.connected, status.protocol, status.error = True, event.protocol, ""
        log.info("connected to %s, MQTT %s, session present: %s", self.address, event.protocol, event.session_present)
        if self._wire is not None:
            self._wire.update_reading(self._paused)
        self._call(self.handlers.on_connected, event)

    def _ended(self, event: Closed | Refused) -> None:
        self._retry = event.retry
        self._failed(f"{self.address}: {event.text}" + ("; trying MQTT 3.1.1" if event.retry else ""))
        if self._wire is not None:
            self._flush()
            self._wire.close()
        self._disconnected()

    def _disconnected(self) -> None:
        if self.status.connected:
            self.status.connected, self.status.protocol = False, ""
            self._call(self.handlers.on_disconnected, self.status.error)

    def _call(self, handler: Callable[..., None] | None, *arguments: object) -> None:
        if handler is None:
            return
        try:
            handler(*arguments)
        except Exception as error:
            self.status.callback_errors += 1
            self.status.error = f"a callback failed: {type(error).__name__}: {error}"
            now = self._clock()
            if now - self._logged_at >= _LOG_EVERY_S:
                self._logged_at = now
                log.exception("a callback failed (%d so far)", self.status.callback_errors)

    # -- writing

    def _schedule_flush(self) -> None:
        """One write per turn of the loop, whatever came together in it."""
        if self._session.has_output and not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        data = self._session.take_output(self._clock())
        if data and self._wire is not None:
            self._wire.write(data)

    @property
    def _tick_s(self) -> float:
        options = self._session.options
        spans = [options.ping_timeout_s, options.connect_timeout_s, options.keep_alive_s or 4.0]
        return max(0.05, min(1.0, *(span / 4 for span in spans)))


class _Wire(asyncio.Protocol):
    """One connection: reads, coalesced, go to the client."""

    def __init__(self, client: MqttClient, coalescer: Coalescer) -> None:
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
        """What was read, and not worked on yet."""
        self._at_once = _MOST_BYTES
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._client._made(self)
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
        now = client._clock()
        messages = client._received_untrusted(data, now)
        pause_s = self._coalescer.pause_s(messages, len(data), now)
        took_s = client._clock() - now
        if took_s >= _LONG_READ_S:
            self._at_once = max(_LEAST_BYTES, int(len(data) * _LONG_READ_S / took_s))
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
            self._client._received_untrusted(data, self._client._clock())
        self._transport = None
        self._client._lost(self, exc)
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
        most = _MOST_UNWRITTEN + self._client._session.outgoing_bytes  # which has a bound of its own
        if not self.writable and self._unwritten is None and transport.get_write_buffer_size() > most:
            self._unwritten = self._loop.call_later(_UNWRITTEN_S, self._reads_nothing)
            self._update()

    def _reads_nothing(self) -> None:
        self._client._failed(f"{self._client.address}: the broker has read nothing for {_UNWRITTEN_S:g} s")
        self.abort()

    @property
    def takes(self) -> bool:
        """Whether the broker reads what is written."""
        return self._unwritten is None

    def close(self) -> None:
        """Writes what is left, and ends; within a while, even if the peer takes nothing more and keeps TCP open."""
        if self._transport is not None:
            self._transport.close()
            self._killer = self._loop.call_later(_CLOSE_TIMEOUT_S, self.abort)

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
        else:
            self._update()

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
            self._client._tick(self)
            self._ticker = self._loop.call_later(self._client._tick_s, self._tick)
