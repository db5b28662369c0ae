"""MQTT in: one persistent session with the sensors' broker, its messages routed to the flows that read them.

MQTT out is `publishing`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from edgert.core.clock import Clock
from edgert.core.errors import ProtocolError, StoreError
from edgert.core.log_sampling import is_told
from edgert.core.settings.gateway import Sensors
from edgert.mqtt.clients.transport import Handlers
from edgert.mqtt.hang_ups.rules import HUNG_UP
from edgert.mqtt.packets.packets import Oversized, Publishes, reason_text
from edgert.mqtt.session.events import Connected, Subscribed
from gateway.base.tasks import Tasks
from gateway.hosts.host import Host
from gateway.ingest.broker_drops import BrokerDrops
from gateway.ingest.client import sensors_client
from gateway.ingest.delivery import Inbox
from gateway.ingest.grants import Grants
from gateway.ingest.inflight_window import BrokerWindow
from gateway.ingest.known_session import KnownSession, unused_id
from gateway.ingest.pressure import Pressure
from gateway.ingest.publishing import Publishing
from gateway.ingest.routes import Routes, entries
from gateway.ingest.subscriptions import Source, Subscriptions

log = logging.getLogger(__name__)

NO_DUP = (
    "the sensors' broker %s delivers messages again without saying so (no flag DUP): such a message is told "
    "by its packet id as long as that is not acknowledged; one whose acknowledgement was lost counts twice"
)
ID_IN_USE = 0x91
"""mochi-mqtt refuses a subscription so while it has a message in flight under the same number."""
ASK_AGAIN_S = 1.0


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
        self.grants = Grants()
        self._forget_session = forget_session
        self._save_subscriptions = save_subscriptions
        self._broker = f"{settings.host}:{settings.port}"
        self.drops = BrokerDrops(settings.drops_topic, self._broker)
        self._subscriptions = Subscriptions(self.drops.source)
        self._saved = ""
        """Of the subscriptions."""
        self._routes = Routes(self._subscriptions)
        self._by_id = False
        self._open = False
        """The session with the broker stands, and what it must know was committed."""
        self._closed = False
        """Nothing is taken in any more."""
        self._subscribing = asyncio.Lock()
        self._unanswered: set[int] = set()
        """Tokens of subscriptions that the broker has not answered."""
        self._answer = asyncio.Event()
        self._tasks = Tasks(self._step_failed)
        self.publishing = Publishing()
        handlers = Handlers(
            on_connected=self._connected,
            on_messages=self._messages,
            on_oversized=self._oversized,
            on_disconnected=self._disconnected,
            on_subscribed=self._answered,
            on_published=self.publishing.answered,
            on_released=self._released,
        )
        self.client = sensors_client(settings, client_id, handlers)
        window = BrokerWindow(settings.window)
        self.pressure = Pressure(self.inbox, self.client, clock, window, wants_checkpoint)

    # -- life

    def load(self, saved_subscriptions: str, saved_drops: str = "", *, begun_anew: bool = False) -> None:
        """Before there is any flow. `saved_subscriptions`: what `save_subscriptions` was last given, or `to_save` gave;
        `saved_drops`: what `drops.to_save` last gave. Both are empty at the first start. `begun_anew`: the database
        took the place of a damaged one, so they may be older than what the broker knows."""
        subscriptions = self._subscriptions
        self.known_session.load(bool(saved_subscriptions) or begun_anew)
        try:
            if not saved_subscriptions and self.inbox.next_index > 1:
                raise ValueError("messages had come, and nothing was subscribed")
            subscriptions.load(saved_subscriptions)
        except ValueError as error:
            log.error("what was subscribed is damaged and begun anew: %s", error)
            subscriptions.lost = True
        if subscriptions.lost or begun_anew:
            subscriptions.lose(unused_id())
        self._saved = saved_subscriptions
        self.inbox.table.emptied = subscriptions.emptied
        if subscriptions.speaks_5 == self._broker:
            self.client.knows_5()
        self.drops.load(saved_drops)
        subscriptions.watch = self.drops.source

    def to_save(self) -> str:
        """The subscriptions as a text to store."""
        return self._subscriptions.dump()

    async def start(self) -> None:
        self.publishing.start(self.client)
        await self.client.start()

    def close(self) -> None:
        """Takes in nothing more: arriving messages stay with the broker (`Inbox.leave`). Its answers to our messages
        are read."""
        self._closed = True
        self.pressure.close()

    async def stop(self) -> None:
        self._closed = True
        self.pressure.stop()
        await self.client.stop()
        if left := self.inbox.counters.left:
            log.warning("%d messages of QoS 0 came while the gateway ended, and no broker keeps those", left)

    # -- sources

    @contextmanager
    def swap(self, remove: Iterable[Source], add: Iterable[Source]) -> Iterator[None]:
        """Changes what is read in one step, together with what the body changes: no message goes to both or to
        neither."""
        with self.lock:
            self._subscriptions.swap(set(remove), add)
            yield
            self._routes.rebuild()
        if self.client.status.connected:
            self._tasks.begin(self._subscribe())

    def forget(self, flow: str) -> None:
        """A flow that was removed; also if a crash kept that from being saved."""
        self._subscriptions.forget(flow)

    @property
    def hears(self) -> bool:
        """True if the broker has answered to the subscriptions of all flows, so that nothing is missed any more."""
        return self._open and not self._unanswered and bool(self._subscriptions.sent or not self._subscriptions.sources)

    async def subscribed(self, timeout_s: float) -> None:
        """Waits until the broker has answered to what the flows want by now: no longer than that, and not at all for a
        broker that is away."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._subscribe()
                while self._unanswered:
                    self._answer.clear()
                    await self._answer.wait()
                    await self._subscribe()

    async def _subscribe(self) -> None:
        """Brings what the broker has to what the flows want; never before the session was opened, one at a time."""
        async with self._subscribing:
            if self._open and not self._subscriptions.pending:
                await self._subscribe_changes()

    async def _subscribe_changes(self) -> None:
        subscriptions = self._subscriptions
        known = set(subscriptions.subscribed)
        while True:
            wanted = subscriptions.wanted(self._by_id)
            if subscriptions.dump() == self._saved:
                break
            await self._save()  # before any message can carry a new identifier
        if not self._open:
            return
        before = set(subscriptions.sent) or known  # just connected: the session may have what an earlier run wanted
        stale = sorted(before - set(wanted))
        if stale and self._by_id:
            self.client.unsubscribe(stale)
        unsent = subscriptions.unsent(wanted)
        subscriptions.sent = wanted
        self.grants.keep(wanted)
        if unsent:
            with self.lock:
                self._routes.rebuild()  # there may be new identifiers
                waiting = subscriptions.open(unsent, self._by_id)
            token = self.client.subscribe(unsent)
            self._unanswered.add(token)
            subscriptions.asked(token, waiting)
            if any(subscriptions.serves_watch(s.filter, self._by_id) for s in unsent):
                self.drops.asked()
        if stale and not self._by_id:
            # merged filters: others may read by the new one what came by the old one, and in between it came by none
            self.client.unsubscribe(stale)

    async def _save(self) -> None:
        """Until it succeeds: without it nothing may be subscribed, or a retained message may count twice."""
        said = ""
        while True:
            try:
                text = self._subscriptions.dump()
                await self._save_subscriptions(text)
                self._saved = text
                return
            except StoreError as error:
                if str(error) != said:
                    log.error("the subscriptions could not be written, which is tried again: %s", error)
                said = str(error)
                await asyncio.sleep(1.0)

    # -- the connection's events

    def _connected(self, event: Connected) -> None:
        five = event.protocol == "5"
        self._by_id = five and event.properties.get("subscription_identifier_available", 1) != 0
        self.pressure.window.connected()
        if five:
            self._subscriptions.speaks_5 = self._broker
        self._subscriptions.connected()
        self._open = False
        unknown = self.known_session.is_unknown(event.session_present)
        with self.lock:
            if unknown:
                self.known_session.lose(self.inbox, self._subscriptions, self._broker)
            self._routes.rebuild()
            self.inbox.connection_lost()
        self.pressure.regulate()
        self._tasks.begin(self._open_session(event))

    async def _open_session(self, event: Connected) -> None:
        if not event.session_present:
            had = self.inbox.next_index > 1
            with self.lock:
                self.inbox.session_lost()
                self._subscriptions.session_lost()
                self._subscriptions.emptied = self.inbox.table.emptied
                self._routes.rebuild()
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
                    self._tasks.begin(self._open_session(event))
                return
        if event.connection == self.client.connection:
            self._open = True
            await self._subscribe()
            self._ask_watch()

    def _step_failed(self, error: BaseException) -> None:
        # What a broker that hangs up has cut short is done anew with the next connection.
        if not isinstance(error, ProtocolError) or self.client.status.connected:
            log.error("a step of the connection failed: %r", error)

    def _disconnected(self, reason: str) -> None:
        self._open = False
        self.drops.disconnected()
        self.publishing.disconnected()
        self._subscriptions.watch = self.drops.source
        self._unanswered.clear()
        self._answer.set()
        with self.lock:
            self.inbox.connection_lost()
        self.pressure.regulate()

    def _answered(self, event: Subscribed) -> None:
        of_flows = {s.filter for s in self._subscriptions.sources}
        for topic_filter, reason in event.results:
            if reason in (ID_IN_USE, HUNG_UP):
                left_out = self.client.filters_refused() if reason == HUNG_UP else {}
                self._tasks.begin(self._subscribe_again(topic_filter, left_out.get(topic_filter, ASK_AGAIN_S)))
            if self._subscriptions.serves_watch(topic_filter, self._by_id):
                if reason != ID_IN_USE:
                    self.drops.answered(reason_text(reason) if reason >= 0x80 else "")
                if topic_filter == self.drops.topic and topic_filter not in of_flows:
                    continue  # no flow misses anything
            asked = self._subscriptions.sent.get(topic_filter)
            self.grants.answered(topic_filter, asked.qos if asked else 0, reason)
        pending = self._subscriptions.pending
        if self._subscriptions.answered(event.token, {f for f, _ in event.refused}):
            self._tasks.begin(self._save())
        if pending:
            self._tasks.begin(self._subscribe())  # what was to be changed meanwhile
        self._unanswered.discard(event.token)
        self._answer.set()
        self._ask_watch()

    async def _subscribe_again(self, topic_filter: str, wait_s: float) -> None:
        """A broker that takes its own packet identifiers for ours refuses this one; the next may be free. One that
        hangs up at a filter may have got other rules."""
        connection = self.client.connection
        await asyncio.sleep(wait_s)
        if connection == self.client.connection:  # else it was asked anew
            self._subscriptions.sent.pop(topic_filter, None)
            await self._subscribe()

    def _ask_watch(self) -> None:
        """Subscribes to the broker's counter of drops once the broker has answered the flows' subscriptions: some hang
        up at it."""
        if self._open and not self._unanswered and self.drops.may_be_asked():
            self._subscriptions.watch = self.drops.source
            self._tasks.begin(self._subscribe())

    # -- messages

    def _messages(self, messages: Publishes) -> None:
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
            log.warning(NO_DUP, self._broker)
        self.acknowledge()
        self.pressure.check()
        self.pressure.look_later()

    def _not_fed(self, messages: Publishes, error: Exception) -> None:
        """A fault of our own: the messages of this read stay unacknowledged, and come again on another connection."""
        with self.lock:
            self.inbox.take_back(messages)
        self.failed = f"what was read could not be taken in, and is not acknowledged: {type(error).__name__}: {error}"
        self.client.reconnect()

    def feed(self, messages: Publishes) -> None:
        """Routes one read's messages onto the queues of the flows that take them."""
        with self.lock:
            routes, now, wall = self._routes, self.clock.monotonic(), self.clock.wall()
            lookup = routes.by_id if self._by_id else routes.by_topic
            before = self.pressure.open_count()
            batches = self.inbox.receive(messages, lookup, now, wall, by_id=self._by_id, others=routes.others)
            if (count := self.pressure.open_count()) > before:
                self.pressure.window.came(count, now)
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
            self.pressure.check()

    # -- acknowledgements

    def acknowledge(self) -> None:
        """Sends every PUBACK, PUBREC and PUBCOMP that is due."""
        with self.lock:
            before = self.pressure.open_count()
            due, complete = self.inbox.due(), self.inbox.complete()
        if self.pressure.open_count() < before:
            self.pressure.window.acknowledged(before, self.clock.monotonic())
        if due:
            self.client.acknowledge(due, self.client.connection)
        if complete:
            self.client.complete(complete, self.client.connection)

    def committed(self, *, freed: bool = True) -> None:
        """To be called after each commit: sends the acknowledgements that are due, and stops or resumes reading. With
        `freed` false the commit covered no input, and no other checkpoint is asked for: it would not cover any either.
        """
        self.acknowledge()  # PUBCOMPs may be due though no flow had anything to write
        if freed:
            self.pressure.check()
        else:
            self.pressure.regulate()
