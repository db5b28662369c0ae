"""Messages at QoS 1 and subscriptions of ours on their way, in the order that the rules of `hang_ups.rules` want."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from edgert.mqtt.hang_ups.rules import HUNG_UP, NOT_OF_A_PACKET, TOPIC_REFUSED, HangUps
from edgert.mqtt.hang_ups.suspicion import STABLE_S
from edgert.mqtt.hang_ups.unproven import Unproven
from edgert.mqtt.packets import encode
from edgert.mqtt.packets.packets import MAX_PACKET_ID, V5
from edgert.mqtt.session.events import MqttEvent, Published
from edgert.mqtt.session.options import SessionOptions
from edgert.mqtt.session.outgoing import BrokerLimits, Outgoing, OutgoingMessage, PublishRefused, refusal
from edgert.mqtt.session.subscribing import Subscribing


class Sending:
    """The sending side of one session. Times are the session's, monotonic seconds."""

    def __init__(self, options: SessionOptions) -> None:
        self.outgoing = Outgoing(options.max_outgoing_messages, options.max_outgoing_bytes, options.max_in_flight)
        self.subscribing = Subscribing()
        self.limits = BrokerLimits()
        self.hang_ups = HangUps()
        self.unproven = Unproven()

    def connected(self, limits: BrokerLimits, session_present: bool) -> None:
        """CONNACK has come."""
        self.limits = limits
        self.hang_ups.connected()
        self.outgoing.reconnected(session_present)

    def check(self, topic: str, now: float) -> None:
        """Raises PublishRefused for a topic at which the broker hangs up."""
        if not self.hang_ups.topics.admits(topic, now):
            raise PublishRefused("expected a topic that the broker takes, got one at which it hangs up")

    def unacknowledged(self, message: OutgoingMessage, level: int) -> tuple[bytes, bool]:
        """The packet of a message at QoS 0, to be written now; and whether a ping has to follow it. Raises
        PublishRefused where the broker does not take it, or may hang up at it while something else is under way that
        would be blamed."""
        packet, topic = message.encode(level), message.topic
        if problem := self.limits.problem(0, message.retain, len(packet)):
            raise refusal(problem)
        alone = self.hang_ups.alone
        watched = alone or self.unproven.watches(topic)
        if watched and (self.unproven.busy or (alone and (self.outgoing.count_in_flight or self.subscribing.filters))):
            raise PublishRefused("expected an answer first of a broker that hung up, got another message of QoS 0")
        self.unproven.sent(topic)
        return packet, watched

    def together(self, messages: Sequence[tuple[str, bytes, bool]], level: int) -> list[bytes] | None:
        """Returns the packets of messages at QoS 0, to be written now; or None where a message needs a look of its own:
        the broker has hung up lately, or its limits are below what one needs. Raises ValueError as `encode` does."""
        if self.hang_ups.alone or self.hang_ups.topics or self.unproven.watching:
            return None
        packets = encode.publishes(level, messages)
        retained = not self.limits.retain_available and any(retain for _, _, retain in messages)
        if retained or max(map(len, packets), default=0) > self.limits.maximum_packet_size:
            return None
        self.unproven.sent_together([topic for topic, _, _ in messages])
        return packets

    def add(self, packet_id: int, message: OutgoingMessage, connected: bool) -> None:
        """A message at QoS 1, which waits for its turn. Raises PublishRefused where the broker of this connection does
        not take it, ValueError for one that cannot be encoded."""
        size = len(message.encode(V5, packet_id))
        if connected and (problem := self.limits.problem(1, message.retain, size)):
            raise refusal(problem)
        self.outgoing.add(packet_id, message)

    def ponged(self) -> None:
        """PINGRESP has come."""
        for topic in self.unproven.ponged():
            self.hang_ups.topics.taken(topic)

    def due(self, level: int, output: list[bytes], events: list[MqttEvent]) -> None:
        """Adds what may be written now to `output`, and to `events` the messages that the broker would not take.

        Subscriptions come first: input waits for them. Where packets go alone, one of either kind is in flight."""
        alone = self.hang_ups.alone
        if alone and self.unproven.busy:
            return
        output += self.subscribing.due(level, 1 - self.outgoing.count_in_flight if alone else MAX_PACKET_ID)
        if not alone or not self.subscribing.filters:
            refused = self.outgoing.send(level, self.limits, output.append, alone)
            events.extend(Published(packet_id, reason) for packet_id, reason in refused)

    def acknowledged(self, packet_id: int) -> bool:
        """PUBACK has come. False if no message is in flight under this id."""
        topic = self.outgoing.acknowledged(packet_id)
        if topic is not None:
            self.hang_ups.message_answered(packet_id, topic)
        return topic is not None

    def subscribed(self, packet_id: int) -> None:
        """SUBACK has come."""
        for topic_filter in self.subscribing.answered(packet_id):
            self.hang_ups.filter_answered(topic_filter)

    def is_stable(self, stood_s: float) -> bool:
        """Takes suspicion back on a connection that has stood for long enough. True if more may be sent then."""
        if not self.hang_ups.alone or not self._is_good(stood_s):
            return False
        self.hang_ups.stable()
        return True

    def _is_good(self, stood_s: float) -> bool:
        """True for a connection that has stood for long, unless something waits and the broker answers to nothing."""
        waits = self.outgoing.count_in_flight or self.subscribing.filters
        return stood_s >= STABLE_S and (self.hang_ups.answers or not waits)

    def give_up(self, packet_ids: Collection[int], connected: bool) -> list[int]:
        """Messages are not sent any more. Returns the packet ids of those given up: on a connection that stands the
        broker still answers to what is in flight, and the packet id is not free until then."""
        in_flight = self.outgoing.in_flight() if connected else {}
        gone = [n for n in packet_ids if n in self.outgoing and n not in in_flight]
        self._give_up(gone)
        return gone

    def _give_up(self, packet_ids: Collection[int]) -> None:
        self.outgoing.give_up(packet_ids)
        for packet_id in packet_ids:
            self.hang_ups.given_up(packet_id)

    def ended(self, stood_s: float, now: float, reason: int) -> list[MqttEvent]:
        """A connection is over that had stood for so long; `reason`: of the broker's DISCONNECT. A message at which it
        hung up is given up, and with a topic all that wait for it."""
        early = not self._is_good(stood_s) and reason not in NOT_OF_A_PACKET
        if (topic := self.unproven.ended()) is not None and reason not in NOT_OF_A_PACKET:
            self.hang_ups.blame_topic(topic, now)
            return []
        found = self.hang_ups.ended(early, self.outgoing.in_flight(), self.subscribing.filters, now)
        if found is None or isinstance(found.suspect, str):
            return []
        gone = {found.suspect, *(self.outgoing.of_topic(found.name) if found.refused_s else ())}
        self._give_up(gone)
        return [Published(n, HUNG_UP if n == found.suspect else TOPIC_REFUSED) for n in sorted(gone)]
