"""MQTT in: one persistent session with the sensors' broker, its messages routed to the flows that read them.

MQTT out is `publishing`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager

from edgert.core.clock import Clock
from edgert.core.errors import ProtocolError, StoreError
from edgert.core.log_sampling import is_told
from edgert.core.settings.gateway import Sensors
from edgert.mqtt.clients.transport import Handlers
from edgert.mqtt.packets.packets import Oversized, Publishes
from edgert.mqtt.session.events import Connected
from gateway.base.tasks import Tasks
from gateway.hosts.host import Host
from gateway.ingest.broker_drops import BrokerDrops
from gateway.ingest.client import sensors_client
from gateway.ingest.inbox import Inbox
from gateway.ingest.inflight_window import InflightWindow
from gateway.ingest.known_session import NEWER, UNKNOWN, KnownSession
from gateway.ingest.publishing import Publishing
from gateway.ingest.read_limits import ReadLimits
from gateway.ingest.routes import entries
from gateway.ingest.subscriber import Subscriber
from gateway.ingest.subscriptions import SubscribedSource, Subscriptions

log = logging.getLogger(__name__)

NO_DUP = (
    "the sensors' broker %s delivers messages again without saying so (no flag DUP): such a message is told "
    "by its packet id as long as that is not acknowledged; one whose acknowledgement was lost counts twice"
)


class Ingest:
    """Lives on the daemon's loop. `lock` guards inbox and routes: checkpoints on the store thread take it briefly."""

    def __init__(
        self,
        settings: Sensors,
        client_id: str,
        host: Host,
        clock: Clock,
        *,
        forget_session: Callable[[], Awaitable[None]],
        wants_checkpoint: Callable[[], None],
        save_subscriptions: Callable[[str], Awaitable[None]],
        lock: threading.Lock | None = None,
        inbox: Inbox | None = None,
    ) -> None:
        self.settings = settings
        self.host = host
        self.clock = clock
        self.inbox = Inbox() if inbox is None else inbox
        self.lock = lock or threading.Lock()
        self.oversized = 0
        self.sessions_lost = 0
        self.known_session = KnownSession()
        self.failed = ""
        """Why the last read could not be taken in; empty if it was."""
        self._says_dup = False
        self._forget_session = forget_session
        self._closed = False
        """True once nothing is taken in any more."""
        self.tasks = Tasks(self._step_failed)
        self.drops = BrokerDrops(settings.drops_topic, f"{settings.host}:{settings.port}")
        self.subscriptions = Subscriptions(self.drops.source)
        self.subscriber = Subscriber(self.subscriptions, self.drops, self.lock, self.tasks, save_subscriptions)
        self.subscriber.routes.on_newer = lambda number: self._lose(NEWER.format(self.drops.broker, number))
        self.publishing = Publishing()
        handlers = Handlers(
            on_connected=self.connected,
            on_messages=self.messages,
            on_oversized=self._oversized,
            on_disconnected=self.disconnected,
            on_subscribed=self.subscriber.answered,
            on_published=self.publishing.answered,
            on_released=self._released,
        )
        self.client = self.subscriber.client = sensors_client(settings, client_id, handlers, clock)
        window = InflightWindow(settings.window)
        self.read_limits = ReadLimits(self.inbox, self.client, clock, window, wants_checkpoint)

    # -- life

    def load(self, saved_subscriptions: str, saved_drops: str = "", *, older: bool = False) -> None:
        """Before there is any flow. `saved_subscriptions`: what `save_subscriptions` was last given, or `to_save` gave;
        `saved_drops`: what `drops.to_save` last gave. Both are empty at the first start. `older`: they may be
        older than what the broker knows, since the database went back or took the place of a damaged one."""
        subscriptions = self.subscriptions
        self.known_session.load(bool(saved_subscriptions) or older)
        try:
            if not saved_subscriptions and self.inbox.next_index > 1:
                raise ValueError("messages had come, and nothing was subscribed")
            subscriptions.load(saved_subscriptions)
        except ValueError as error:
            log.error("what was subscribed is damaged and begun anew: %s", error)
            subscriptions.lost = True
        if subscriptions.lost or older:
            subscriptions.lose()
        self.subscriber.saved = saved_subscriptions
        self.inbox.table.emptied = subscriptions.emptied
        if subscriptions.speaks_5 == self.drops.broker:
            self.client.versions.knows_5()
        self.drops.load(saved_drops)
        subscriptions.watch = self.drops.source

    def to_save(self) -> str:
        """The subscriptions as a text to store."""
        return self.subscriptions.dump()

    async def start(self) -> None:
        self.publishing.start(self.client)
        await self.client.start()

    def close(self) -> None:
        """Takes in nothing more: arriving messages stay with the broker (`Inbox.leave`). Its answers to our messages
        are read."""
        self._closed = True
        self.read_limits.close()

    async def stop(self) -> None:
        self._closed = True
        self.read_limits.stop()
        await self.client.stop()
        if left := self.inbox.counters.left:
            log.warning("%d messages of QoS 0 came while the gateway ended, and no broker keeps those", left)

    # -- sources

    @contextmanager
    def swap(self, remove: Iterable[SubscribedSource], add: Iterable[SubscribedSource]) -> Iterator[None]:
        """Changes what is read in one step, together with what the body changes: no message goes to both or to
        neither."""
        with self.lock:
            self.subscriptions.swap(set(remove), add)
            yield
            self.subscriber.routes.rebuild()
        if self.client.status.connected:
            self.tasks.begin(self.subscriber.subscribe())

    def forget(self, flow: str) -> None:
        """A flow that was removed; also if a crash kept that from being saved."""
        self.subscriptions.forget(flow)

    # -- the connection's events

    def connected(self, event: Connected) -> None:
        five = event.protocol == "5"
        self.subscriber.by_id = five and event.properties.get("subscription_identifier_available", 1) != 0
        self.read_limits.window.connected()
        if five:
            self.subscriptions.speaks_5 = self.drops.broker
        self.subscriptions.connected()
        self.subscriber.open = False
        unknown = self.known_session.is_unknown(event.session_present)
        with self.lock:
            if unknown:
                self._lose(UNKNOWN.format(self.drops.broker))
            self.subscriber.routes.rebuild()
            self.inbox.connection_lost()
        self.read_limits.regulate()
        self.tasks.begin(self.open_session(event))

    def _lose(self, text: str) -> None:
        """With the lock held."""
        self.known_session.lose(self.inbox, self.subscriptions, text)
        self.subscriber.routes.rebuild()

    async def open_session(self, event: Connected) -> None:
        if not event.session_present:
            had = self.inbox.next_index > 1
            with self.lock:
                self.inbox.session_lost()
                self.subscriptions.session_lost()
                self.subscriptions.emptied = self.inbox.table.emptied
                self.subscriber.routes.rebuild()
            if had:
                self.sessions_lost += 1
                log.warning("the broker has no session for this gateway: what it held for us is lost to us")
            try:
                await self._forget_session()
            except StoreError as error:
                log.error("the emptied id table could not be written, so nothing is subscribed yet: %s", error)
                await asyncio.sleep(1.0)
                self.client.status.error = str(error)
                if event.connection == self.client.connection and self.client.status.connected:
                    self.tasks.begin(self.open_session(event))
                return
        if event.connection == self.client.connection:
            self.subscriber.open = True
            await self.subscriber.subscribe()
            self.subscriber.ask_watch()

    def _step_failed(self, error: BaseException) -> None:
        # What a broker that hangs up has cut short is done anew with the next connection.
        if not isinstance(error, ProtocolError) or self.client.status.connected:
            log.error("a step of the connection failed: %r", error)

    def disconnected(self, reason: str) -> None:
        self.subscriber.disconnected()
        self.publishing.disconnected()
        with self.lock:
            self.inbox.connection_lost()
        self.read_limits.regulate()

    # -- messages

    def messages(self, messages: Publishes) -> None:
        if self._closed:
            with self.lock:
                self.inbox.leave(messages)
            return
        try:
            self.feed(messages)
        except Exception as error:
            self._not_fed(messages, error)
            raise
        self.failed = ""
        if self.inbox.counters.without_dup and not self._says_dup:
            self._says_dup = True
            log.warning(NO_DUP, self.drops.broker)
        self.acknowledge()
        self.read_limits.check()
        self.read_limits.look_later()

    def _not_fed(self, messages: Publishes, error: Exception) -> None:
        """A fault of our own: the messages of this read stay unacknowledged, and come again on another connection."""
        with self.lock:
            self.inbox.take_back(messages)
        self.failed = f"what was read could not be taken in, and is not acknowledged: {type(error).__name__}: {error}"
        self.client.reconnect()

    def feed(self, messages: Publishes) -> None:
        """Routes one read's messages onto the queues of the flows that take them."""
        with self.lock:
            routes, now, wall = self.subscriber.routes, self.clock.monotonic(), self.clock.wall()
            lookup = routes.by_id if self.subscriber.by_id else routes.by_topic
            before = self.read_limits.open_count()
            batches = self.inbox.receive(messages, lookup, now, wall, by_id=self.subscriber.by_id, others=routes.others)
            if (count := self.read_limits.open_count()) > before:
                self.read_limits.window.came(count, now)
            if batches:
                self.host.put(entries(batches, self.inbox.counters))
        if batches:
            self.host.lend()

    def _oversized(self, event: Oversized) -> None:
        if self._closed:
            return
        self.oversized += 1
        if is_told(self.oversized):
            log.warning(
                "a message of %d bytes on %r was skipped (the %d. so far): expected at most %d "
                "(sensors.max_packet_bytes)",
                event.size, event.topic, self.oversized, self.settings.max_packet_bytes,
            )  # fmt: skip
        if event.qos:
            with self.lock:
                self.inbox.owe(event.packet_id, event.qos)
            self.acknowledge()

    def _released(self, packet_id: int) -> None:
        with self.lock:
            new = self.inbox.released(packet_id)
        if new:
            self.read_limits.check()

    # -- acknowledgements

    def acknowledge(self) -> None:
        """Sends every PUBACK, PUBREC and PUBCOMP that is due."""
        with self.lock:
            before = self.read_limits.open_count()
            due, complete = self.inbox.due(), self.inbox.complete()
        if self.read_limits.open_count() < before:
            self.read_limits.window.acknowledged(before, self.clock.monotonic())
        if due:
            self.client.acknowledge(due, self.client.connection)
        if complete:
            self.client.complete(complete, self.client.connection)

    def committed(self, *, freed: bool = True) -> None:
        """Call this after each commit: sends the acknowledgements that are due, and stops or resumes reading. With
        `freed` false the commit covered no input, and no other checkpoint is asked for: it would not cover any either.
        """
        self.acknowledge()  # PUBCOMPs may be due though no flow had anything to write
        if freed:
            self.read_limits.check()
        else:
            self.read_limits.regulate()
