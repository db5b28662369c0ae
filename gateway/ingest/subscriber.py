"""The sensors' broker is asked for what the flows want, and its answers are kept."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

from edgert.core.errors import StoreError
from edgert.mqtt.clients.transport import MqttClient
from edgert.mqtt.hang_ups.rules import HUNG_UP
from edgert.mqtt.packets.packets import reason_text
from edgert.mqtt.session.events import Subscribed
from gateway.base.tasks import Tasks
from gateway.ingest.broker_drops import BrokerDrops
from gateway.ingest.grants import FilterGrants
from gateway.ingest.routes import Routes
from gateway.ingest.subscriptions import Subscriptions

log = logging.getLogger(__name__)

ID_IN_USE = 0x91
"""mochi-mqtt refuses a subscription so while it has a message in flight under the same number."""
ASK_AGAIN_S = 1.0
PATIENCE_S = 5.0


class Subscriber:
    """Lives on the daemon's loop. `lock`: that of the ingest, which guards the routes."""

    client: MqttClient

    def __init__(
        self,
        subscriptions: Subscriptions,
        drops: BrokerDrops,
        lock: threading.Lock,
        tasks: Tasks,
        save: Callable[[str], Awaitable[None]],
    ) -> None:
        self.subscriptions, self.drops, self.grants = subscriptions, drops, FilterGrants()
        self.routes = Routes(subscriptions)
        self.by_id = False
        """The broker tells by which subscription a message came."""
        self.open = False
        """The session with the broker stands, and what it must know was committed."""
        self.saved = ""
        """Subscriptions as they were saved last."""
        self.unanswered: set[int] = set()
        """Tokens of subscriptions that the broker has not answered."""
        self.ask_again_s = ASK_AGAIN_S
        """A subscription that the broker refuses for its packet identifier is sent again after so long."""
        self.patience_s = PATIENCE_S
        """How long `subscribed` waits for the broker's answers."""
        self._lock, self._tasks, self._save_text = lock, tasks, save
        self._subscribing = asyncio.Lock()
        self._answer = asyncio.Event()

    @property
    def hears(self) -> bool:
        """True if the broker has answered to the subscriptions of all flows, so that nothing is missed any more."""
        return self.open and not self.unanswered and bool(self.subscriptions.sent or not self.subscriptions.sources)

    async def subscribed(self) -> None:
        """Waits until the broker has answered to what the flows want by now: no longer than `patience_s`, and not at
        all for a broker that is away."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.patience_s):
                await self.subscribe()
                while self.unanswered:
                    self._answer.clear()
                    await self._answer.wait()
                    await self.subscribe()

    async def subscribe(self) -> None:
        """Brings what the broker has to what the flows want; never before the session was opened, one at a time."""
        async with self._subscribing:
            if self.open and not self.subscriptions.pending:
                await self._subscribe_changes()

    async def _subscribe_changes(self) -> None:
        subscriptions = self.subscriptions
        known = set(subscriptions.subscribed)
        while True:
            wanted = subscriptions.wanted(self.by_id)
            if subscriptions.dump() == self.saved:
                break
            await self._save()  # before any message can carry a new identifier
        if not self.open:
            return
        before = set(subscriptions.sent) or known  # just connected: the session may have what an earlier run wanted
        stale = sorted(before - set(wanted))
        if stale and self.by_id:
            self.client.unsubscribe(stale)
        unsent = subscriptions.unsent(wanted)
        subscriptions.sent = wanted
        self.grants.keep(wanted)
        if unsent:
            with self._lock:
                self.routes.rebuild()  # there may be new identifiers
                waiting = subscriptions.open(unsent, self.by_id)
            token = self.client.subscribe(unsent)
            self.unanswered.add(token)
            subscriptions.asked(token, waiting)
            if any(subscriptions.serves_watch(s.filter, self.by_id) for s in unsent):
                self.drops.asked()
        if stale and not self.by_id:
            # merged filters: others may read by the new one what came by the old one, and in between it came by none
            self.client.unsubscribe(stale)

    async def _save(self) -> None:
        """Until it succeeds: without it nothing may be subscribed, or a retained message may count twice."""
        said = ""
        while True:
            try:
                text = self.subscriptions.dump()
                await self._save_text(text)
                self.saved = text
                return
            except StoreError as error:
                if str(error) != said:
                    log.error("the subscriptions could not be written, which is tried again: %s", error)
                said = str(error)
                await asyncio.sleep(1.0)

    def answered(self, event: Subscribed) -> None:
        of_flows = {s.filter for s in self.subscriptions.sources}
        for topic_filter, reason in event.results:
            if reason in (ID_IN_USE, HUNG_UP):
                left_out = self.client.filters_refused() if reason == HUNG_UP else {}
                self._tasks.begin(self._subscribe_again(topic_filter, left_out.get(topic_filter, self.ask_again_s)))
            if self.subscriptions.serves_watch(topic_filter, self.by_id):
                if reason != ID_IN_USE:
                    self.drops.answered(reason_text(reason) if reason >= 0x80 else "")
                if topic_filter == self.drops.topic and topic_filter not in of_flows:
                    continue  # no flow misses anything
            asked = self.subscriptions.sent.get(topic_filter)
            self.grants.answered(topic_filter, asked.qos if asked else 0, reason)
        pending = self.subscriptions.pending
        if self.subscriptions.answered(event.token, {f for f, _ in event.refused}):
            self._tasks.begin(self._save())
        if pending:
            self._tasks.begin(self.subscribe())  # what was to be changed meanwhile
        self.unanswered.discard(event.token)
        self._answer.set()
        self.ask_watch()

    async def _subscribe_again(self, topic_filter: str, wait_s: float) -> None:
        """A broker that takes its own packet identifiers for ours refuses this one; the next may be free. One that
        hangs up at a filter may have got other rules."""
        connection = self.client.connection
        await asyncio.sleep(wait_s)
        if connection == self.client.connection:  # else it was asked anew
            self.subscriptions.sent.pop(topic_filter, None)
            await self.subscribe()

    def ask_watch(self) -> None:
        """Subscribes to the broker's counter of drops once the broker has answered the flows' subscriptions: some hang
        up at it."""
        if self.open and not self.unanswered and self.drops.may_be_asked():
            self.subscriptions.watch = self.drops.source
            self._tasks.begin(self.subscribe())

    def disconnected(self) -> None:
        """The broker answers nothing any more that it was asked."""
        self.open = False
        self.drops.disconnected()
        self.subscriptions.watch = self.drops.source
        self.unanswered.clear()
        self._answer.set()
