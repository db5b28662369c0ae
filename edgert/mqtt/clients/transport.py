"""The one door of MQTT to the network: a client on asyncio (uvloop in production) that never gives up connecting."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import astuple

from edgert.mqtt.clients.client_types import BrokerAddress, ClientStatus, Handlers, Tls
from edgert.mqtt.clients.coalesce import Coalescer
from edgert.mqtt.clients.connection_hints import hint, short_lived
from edgert.mqtt.clients.credentials import client_context
from edgert.mqtt.clients.reconnect import Attempts, Backoff
from edgert.mqtt.clients.wire import CLOSE_TIMEOUT_S, Wire
from edgert.mqtt.packets.packets import Oversized, Properties, Subscription, count
from edgert.mqtt.packets.reasons import TAKEN_OVER
from edgert.mqtt.session.events import (
    Closed,
    Connected,
    Messages,
    MqttEvent,
    Published,
    Refused,
    Released,
    Subscribed,
    Unsubscribed,
)
from edgert.mqtt.session.options import SessionOptions
from edgert.mqtt.session.outgoing import PublishRefused
from edgert.mqtt.session.session import Session
from edgert.mqtt.session.versions import Versions

__all__ = ["BrokerAddress", "Handlers", "MqttClient", "ClientStatus", "Tls"]

log = logging.getLogger("edgert.mqtt")

_LOG_EVERY_S = 1.0


class MqttClient:
    """One broker, one session, for ever. All methods belong to the event loop's thread."""

    def __init__(
        self,
        address: BrokerAddress,
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
        self.status = ClientStatus()
        self.session = Session(options)
        self._attempts = Attempts(backoff or Backoff(), draw)
        self._budget_s = latency_budget_s
        self.clock = clock
        self.wire: Wire | None = None
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
        wire = self.wire
        if wire is None:
            return
        said = self.session.disconnect()
        self._flush()
        if said:
            wire.drain()
        else:
            wire.close()
        await asyncio.wait([wire.closed], timeout=CLOSE_TIMEOUT_S)
        wire.abort()

    # -- what the application asks for

    @property
    def versions(self) -> Versions:
        """The choice of the MQTT version."""
        return self.session.versions

    @property
    def connection(self) -> int:
        """Number of the current or last connection; `acknowledge` takes it."""
        return self.session.connection

    @property
    def outgoing_bytes(self) -> int:
        """Bytes of the payloads and long topics of our QoS 1 messages that the broker has not acknowledged."""
        return self.session.outgoing.size

    def subscribe(self, subscriptions: Sequence[Subscription]) -> int:
        """See `Session.subscribe`. To be repeated after each `on_connected` without a session."""
        token = self.session.subscribe(subscriptions)
        self.schedule_flush()
        return token

    def unsubscribe(self, filters: Sequence[str]) -> int:
        token = self.session.unsubscribe(filters)
        self.schedule_flush()
        return token

    def acknowledge(self, packets: Iterable[tuple[int, int]], connection: int | None = None) -> bool:
        """See `Session.acknowledge`. What is acknowledged in one turn of the loop goes out in one write."""
        done = self.session.acknowledge(packets, connection)
        self.schedule_flush()
        return done

    def complete(self, packet_ids: Iterable[int], connection: int | None = None) -> bool:
        """See `Session.complete`."""
        done = self.session.complete(packet_ids, connection)
        self.schedule_flush()
        return done

    def publish(
        self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, properties: Properties | None = None
    ) -> int:
        """See `Session.publish`. QoS 0 is also refused while the socket's buffer is full."""
        if qos == 0 and self.wire is not None and not self.wire.writable:
            raise PublishRefused("expected room in the socket for a message of QoS 0, got a full buffer")
        packet_id = self.session.publish(topic, payload, qos, retain, properties)
        self.schedule_flush()
        return packet_id

    def publish_together(self, messages: Sequence[tuple[str, bytes, bool]]) -> bool:
        """See `Session.publish_together`. While the socket's buffer is full nothing is sent together."""
        if self.wire is not None and not self.wire.writable:
            return False
        sent = self.session.publish_together(messages)
        self.schedule_flush()
        return sent

    def give_up(self, packet_ids: Collection[int]) -> list[int]:
        """See `Session.give_up`."""
        return self.session.give_up(packet_ids)

    def topics_refused(self) -> dict[str, float]:
        """Topics at which the broker hangs up, with the seconds for which nothing is sent to them."""
        return self.session.hang_ups.topics.refused(self.clock())

    def filters_refused(self) -> dict[str, float]:
        """Filters at which the broker hangs up, with the seconds for which they are not subscribed to."""
        return self.session.hang_ups.filters.refused(self.clock())

    def reconnect(self) -> None:
        """Ends this connection without a word, so that the broker sends anew what is not acknowledged."""
        if self.wire is not None:
            self.wire.abort()

    def pause(self) -> None:
        """Read nothing more from the broker until `resume`. The connection is kept alive meanwhile."""
        self._paused = True
        if self.wire is not None and self.status.connected:
            self.wire.update_reading(self._paused)

    def resume(self) -> None:
        self._paused = False
        if self.wire is not None:
            self.wire.update_reading(self._paused)

    # -- connecting

    async def _run(self) -> None:
        while True:
            self._retry = False
            connections, began, found = self.status.connections, self.clock(), self.session.hang_ups.found
            wire = Wire(self, Coalescer(self._budget_s, began))
            try:
                async with asyncio.timeout(self.session.options.connect_timeout_s):
                    await self._open(wire)
            except (OSError, ValueError) as error:
                self.failed(f"cannot connect to {self.address}: {self._told(error)}")
            else:
                await asyncio.shield(wire.closed)
            if self._retry:
                continue
            if self.session.hang_ups.found > found:
                self._attempts.begin_anew()  # the reason is found, and is not sent again
            stood_s = self.clock() - began if self.status.connections > connections else 0.0
            await asyncio.sleep(self._attempts.ended(stood_s))

    async def _open(self, wire: Wire) -> None:
        address = self.address
        context = client_context(*astuple(address.tls)) if address.tls else None
        await asyncio.get_running_loop().create_connection(lambda: wire, address.host, address.port, ssl=context)

    def _told(self, error: Exception) -> str:
        plain = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None
        text = plain or str(error) or "no answer in time"
        refused = isinstance(error, ConnectionRefusedError)
        return text + hint(text, tls=self.address.tls is not None, port=self.address.port, accepted=not refused)

    def failed(self, text: str) -> None:
        if text != self.status.error:
            log.warning("%s", text)
        self.status.error = text

    # -- called by the wire

    def made(self, wire: Wire) -> None:
        self.wire = wire
        wire.write(self.session.connect(self.clock()))

    def received_untrusted(self, data: bytes, now: float) -> int:
        """Handle one read; returns the number of messages in it."""
        status = self.status
        before = status.messages
        status.reads += 1
        status.bytes += len(data)
        for event in self.session.receive_untrusted(data, now):
            if type(event) is Messages:
                status.messages += count(event.messages)
                self._call(self.handlers.on_messages, event.messages)
            else:
                self._handle(event)
        self.schedule_flush()
        return status.messages - before

    def tick(self, wire: Wire) -> None:
        if self._attempts.short.lasted(self.clock()):
            self.status.error = ""
        for event in self.session.tick(self.clock(), reading=not self._paused and wire.takes):
            self._handle(event)
            if isinstance(event, Closed):
                wire.abort()
        self._flush()

    def lost(self, wire: Wire, error: Exception | None) -> None:
        if wire is not self.wire:
            return
        text = f"connection lost: {error or 'closed by the broker'}"
        for event in self.session.lost(text, hint(text, tls=self.address.tls is not None, port=self.address.port)):
            self._handle(event)
        self.wire = None
        self._disconnected()

    # -- events

    def _handle(self, event: MqttEvent) -> None:
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
        self._attempts.short.made(self.clock())
        status.connected, status.protocol = True, event.protocol
        if not self._attempts.short.many:  # else the reason stands until a connection has lasted
            status.error = ""
        log.info("connected to %s, MQTT %s, session present: %s", self.address, event.protocol, event.session_present)
        if self.wire is not None:
            self.wire.update_reading(self._paused)
        self._call(self.handlers.on_connected, event)

    def _ended(self, event: Closed | Refused) -> None:
        self._retry = event.retry
        self._attempts.short.ended(self.clock())
        text = f"{self.address}: {event.text}" + ("; trying MQTT 3.1.1" if event.retry else "")
        if self._attempts.short.many and event.reason != TAKEN_OVER:
            text += short_lived(self._attempts.short.SOON_S, self.session.client_id)
        self.failed(text)
        if self.wire is not None:
            self._flush()
            self.wire.close()
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
            now = self.clock()
            if now - self._logged_at >= _LOG_EVERY_S:
                self._logged_at = now
                log.exception("a callback failed (%d so far)", self.status.callback_errors)

    # -- writing

    def schedule_flush(self) -> None:
        """One write per turn of the loop, whatever came together in it."""
        if self.session.has_output and not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        data = self.session.take_output(self.clock())
        if data and self.wire is not None:
            self.wire.write(data)

    @property
    def tick_s(self) -> float:
        """Seconds between two calls of `tick`."""
        options = self.session.options
        spans = [options.ping_timeout_s, options.connect_timeout_s, options.keep_alive_s or 4.0]
        return max(0.05, min(1.0, *(span / 4 for span in spans)))
