"""MQTT out: what the flows' `publish` sinks give out, and what became of it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from edgert.core.errors import show
from edgert.core.text.mqtt_text import fitting
from edgert.mqtt.clients.transport import MqttClient
from edgert.mqtt.hang_ups.forbidden import MOST_NAMES, Forbidden
from edgert.mqtt.hang_ups.rules import HUNG_UP, TOPIC_REFUSED
from edgert.mqtt.packets.packets import reason_text
from edgert.mqtt.session.outgoing import PublishRefused
from edgert.operators.base.logic import PlainMessage
from edgert.runtime.instance.instance import Instance

log = logging.getLogger(__name__)

SENDER_BLAMES: Final = 4
"""Topics of one operator at which the broker hung up: a topic made from the row is another one with each row, so the
operator is refused then. Each costs two connections and about a second, in which nothing else is sent."""


class PublishingOperator(NamedTuple):
    """The operator of a flow that gave a message."""

    flow: str
    operator: str


class Publishing:
    """Lives on the daemon's loop; `send` is for any thread."""

    def __init__(self) -> None:
        self._client: MqttClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = threading.Lock()
        self._early: list[tuple[Instance, Sequence[PlainMessage]]] = []
        """Messages from before the start: of what a checkpoint had found in queues."""
        self._unanswered: dict[int, tuple[Instance, PlainMessage]] = {}
        """Messages of QoS 1 and 2 that the broker has not acknowledged, by packet id."""
        self._answer = asyncio.Event()
        """Set when the broker has answered to the last of them, or is away."""
        self._forbidden: Forbidden[PublishingOperator] = Forbidden(SENDER_BLAMES)
        self._blamed: dict[str, PublishingOperator] = {}
        """The sender of the last message of a topic at which the broker hung up, by topic. At most `MOST_NAMES`."""

    def start(self, client: MqttClient) -> None:
        """From now on messages go to `client`, those that came before first. On its loop."""
        with self._waiting:
            self._client, self._loop = client, asyncio.get_running_loop()
            early, self._early = self._early, []
        for instance, messages in early:
            self._publish(instance, messages)

    def send(self, instance: Instance, messages: Sequence[PlainMessage]) -> None:
        """Publishes what an instance of a flow gave out."""
        if self._loop is None:
            with self._waiting:
                if self._loop is None:
                    self._early.append((instance, messages))
                    return
        self._loop.call_soon_threadsafe(self._publish, instance, messages)

    def answered(self, packet_id: int, reason: int) -> None:
        """The broker's answer to a message, MQTT's reason code."""
        instance, message = self._unanswered.pop(packet_id, (None, None))
        if instance is not None and message is not None and reason >= 0x80:
            operator = instance.giver(message)
            instance.delivery.unsent[operator] += 1
            why = "the broker hangs up at it" if reason in (HUNG_UP, TOPIC_REFUSED) else reason_text(reason)
            instance.delivery.newest_unsent[operator] = f"to {show(message[0])}: {why}"
            if reason == HUNG_UP:
                self._hung_up(_sender(instance, operator), message)
            elif reason != TOPIC_REFUSED:
                log.debug("a message of %s was refused by the broker: %s", instance.name, reason_text(reason))
        if not self._unanswered:
            self._answer.set()

    def _hung_up(self, sender: PublishingOperator, message: PlainMessage) -> None:
        topic, now, more = message[0], self._now(), ""
        first = sender not in self._blamed.values()
        new = self._blamed.pop(topic, None) is None
        self._blamed[topic] = sender
        if len(self._blamed) > MOST_NAMES:
            del self._blamed[next(iter(self._blamed))]
        if (wait_s := self._topics().get(topic)) is not None:
            more = f"; nothing is sent to that topic for {wait_s:.0f} s (do the broker's access rules allow it?)"
        if new and (wait_s := self._forbidden.blamed(sender, now)):
            more += (
                f"; nothing of that operator is sent for {wait_s:.0f} s, since the broker hung up at so many of its "
                f"topics, and {self._give_up(sender)} messages of it that waited are counted too"
            )
        log.log(
            logging.ERROR if first or more else logging.INFO,
            "the sensors' broker hung up at a message of flow %s (operator %s) of %d bytes to %r: it is not sent "
            "again, and counted%s",
            sender.flow, sender.operator, len(message[1]), topic, more,
        )  # fmt: skip

    def _give_up(self, sender: PublishingOperator) -> int:
        """Gives up what waits of an operator that is refused now: each message would cost hang-ups too. Returns how
        many messages."""
        assert self._client is not None, "it has sent"
        its = [n for n, (instance, message) in self._unanswered.items() if _sender_of(instance, message) == sender]
        gone = self._client.give_up(its)
        for packet_id in gone:
            instance, message = self._unanswered.pop(packet_id)
            instance.delivery.unsent[instance.giver(message)] += 1
        return len(gone)

    def refused(self) -> list[dict[str, Any]]:
        """Topics to which, and operators of which, nothing is sent now, since the broker hung up there: for the status.
        An operator has the topic `#`."""
        found = [
            (*self._blamed.get(topic, PublishingOperator("", "")), topic, wait_s)
            for topic, wait_s in self._topics().items()
        ]
        found += [(*sender, "#", wait_s) for sender, wait_s in self._forbidden.refused(self._now()).items()]
        return [
            {"flow": flow, "operator": operator, "topic": topic, "for_s": round(wait_s, 1)}
            for flow, operator, topic, wait_s in found
        ]

    def _topics(self) -> dict[str, float]:
        return self._client.topics_refused() if self._client is not None else {}

    def _now(self) -> float:
        return self._client.clock() if self._client is not None else 0.0

    def disconnected(self) -> None:
        """The broker is away."""
        self._answer.set()

    async def settled(self, timeout_s: float) -> None:
        """Waits until the broker has answered to all messages: many may wait for its window. No longer than that, and
        not at all for a broker that is away."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._unanswered and self._client is not None and self._client.status.connected:
                    self._answer.clear()
                    await self._answer.wait()

    def give_up(self) -> None:
        """The process ends: what the broker has not acknowledged by now counts as that, since the input it was made
        from is committed next and nobody makes it again."""
        if self._unanswered:
            log.warning(
                "%d messages of publish sinks were not acknowledged by the broker: whether they came is not known",
                len(self._unanswered),
            )
        for instance, message in self._unanswered.values():
            instance.delivery.unacknowledged[instance.giver(message)] += 1
        self._unanswered.clear()

    def _publish(self, instance: Instance, messages: Sequence[PlainMessage]) -> None:
        client = self._client
        assert client is not None, "it was started"
        if not self._forbidden and _publish_together(client, messages):
            return
        for message in messages:
            topic, payload, qos, retain, reason = message
            if self._forbidden and not self._admits(instance, message):
                continue
            properties = None
            if reason and client.status.protocol == "5":
                properties = {"user_property": [("reason", fitting(reason[:1_000]))]}
            try:
                packet_id = client.publish(topic, payload, qos, retain, properties)
            except (PublishRefused, ValueError) as error:
                stage = instance.giver(message)
                instance.delivery.unsent[stage] += 1
                refused = not client.session.hang_ups.topics.admits(topic, self._now())
                if refused and topic not in self._blamed:  # at QoS 0 nobody is told of the hang-up
                    self._hung_up(_sender(instance, stage), message)
                log.debug("a message to %s was not sent: %s", topic, error)
                continue
            if packet_id:
                self._unanswered[packet_id] = instance, message

    def _admits(self, instance: Instance, message: PlainMessage) -> bool:
        stage = instance.giver(message)
        admitted = self._forbidden.admits(_sender(instance, stage), self._now())
        instance.delivery.unsent[stage] += not admitted
        return admitted


def _publish_together(client: MqttClient, messages: Sequence[PlainMessage]) -> bool:
    """Publishes messages at QoS 0. Returns False, with nothing sent, where one of them has to be published alone."""
    plain = [(topic, payload, retain) for topic, payload, qos, retain, reason in messages if not (qos or reason)]
    if len(plain) < len(messages):
        return False
    try:
        return client.publish_together(plain)
    except ValueError:
        return False


def _sender_of(instance: Instance, message: PlainMessage) -> PublishingOperator:
    return _sender(instance, instance.giver(message))


def _sender(instance: Instance, stage: int) -> PublishingOperator:
    boundary = instance.boundaries[stage]
    return PublishingOperator(boundary.flow, boundary.operator or instance.name)
