"""The client's side of an MQTT session, sans-IO: bytes and times in, events and bytes out.

One `Session` outlives its connections: `connect` begins the next one. The application knows which incoming messages it
has had before, and decides when one is acknowledged and, at QoS 2, completed; everything else that the standard asks of
a client is done here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from edgert.core.errors import ProtocolError
from edgert.mqtt.hang_ups.rules import HUNG_UP
from edgert.mqtt.packets import encode
from edgert.mqtt.packets.decode import Decoder
from edgert.mqtt.packets.packets import (
    V5,
    Connack,
    Disconnect,
    Oversized,
    Packet,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publishes,
    Pubrec,
    Pubrel,
    Suback,
    Subscription,
    Unsuback,
)
from edgert.mqtt.packets.reasons import sentence
from edgert.mqtt.session.events import Closed, Connected, Messages, MqttEvent, Published, Refused, Released, Subscribed
from edgert.mqtt.session.incoming import answers, completions
from edgert.mqtt.session.keepalive import KeepAlive, KeepaliveVerdict
from edgert.mqtt.session.options import SessionOptions, connect_packet
from edgert.mqtt.session.outgoing import BrokerLimits, OutgoingMessage, PublishRefused
from edgert.mqtt.session.packet_ids import PacketIds
from edgert.mqtt.session.requests import Requests
from edgert.mqtt.session.sending import Sending
from edgert.mqtt.session.states import TRANSITIONS, SessionInput, SessionState
from edgert.mqtt.session.subscribing import groups
from edgert.mqtt.session.versions import PROBE_TIMEOUT_S, PROTOCOLS, Versions
from edgert.mqtt.topics import check_filter

__all__ = ["Session", "SessionOptions", "SessionState"]


class Session:
    """Raises ValueError for options that no CONNECT can carry."""

    def __init__(self, options: SessionOptions) -> None:
        self.options = options
        self.state = SessionState.IDLE
        self.connection = 0
        self.client_id = options.client_id
        for level in PROTOCOLS:
            connect_packet(options, level)  # what cannot be encoded is told now
        self.versions = Versions(options.protocol)
        self._decoder = Decoder(self.versions.level, options.max_packet_bytes)
        self._output: list[bytes] = []
        self._sending = Sending(options)
        self.outgoing = self._sending.outgoing
        self._requests = Requests()
        self._packet_ids = PacketIds(self.outgoing, self._requests)
        self._began_at = self._accepted_at = self._now = 0.0
        self.hang_ups = self._sending.hang_ups
        self._later: list[MqttEvent] = []
        """Events that nothing which came has brought about."""
        self._left = False
        """We have said good-bye, and the broker may not have read it yet."""
        self._keep_alive = KeepAlive(0.0, 0.0, 0.0)
        self._handlers: dict[type, Callable[[Any, list[MqttEvent]], None]] = {
            list: self._on_messages,
            Oversized: self._on_oversized,
            Puback: self._on_puback,
            Pubrel: self._on_pubrel,
            Pubrec: self._on_unexpected,
            Pubcomp: self._on_unexpected,
            Suback: self._on_suback,
            Unsuback: self._on_unsuback,
            Pingresp: self._on_pingresp,
            Disconnect: self._on_disconnect,
        }

    # -- the connection

    def connect(self, now: float) -> bytes:
        """CONNECT for a connection just made. What was owed to the last one is forgotten."""
        self._move(SessionInput.CONNECT)
        self._decoder = Decoder(self.versions.level, self.options.max_packet_bytes)
        self._output.clear()
        self._requests.clear()
        self._sending.subscribing.clear()
        self._later.clear()
        self._began_at = self._now = now
        self._left = False
        return connect_packet(self.options, self.versions.level)

    def lost(self, text: str, unanswered: str = "") -> list[MqttEvent]:
        """The transport's connection was closed from over there, or broke. `unanswered`: stands behind the text if the
        broker had not answered."""
        if self._idle():
            return []
        return self._give_up(f"{text} before CONNACK{unanswered}" if self.state is SessionState.CONNECTING else text)

    def _give_up(self, text: str) -> list[MqttEvent]:
        unanswered = self.state is SessionState.CONNECTING
        events = [] if unanswered else self._suspect()
        self._move(SessionInput.LOST)
        return [*events, Closed(text, retry=self._next_version(unanswered))]

    def _next_version(self, unanswered: bool) -> bool:
        """The connection ended, `unanswered`: without CONNACK. Whether to connect again at once, in another version."""
        silent = self.versions.probing and unanswered and self._now - self._began_at >= PROBE_TIMEOUT_S
        return self.versions.ended(self._now, unanswered=unanswered, silent=silent)

    def _suspect(self, reason: int = 0) -> list[MqttEvent]:
        """A connection that had stood is over, `reason`: with that of a DISCONNECT."""
        return self._sending.ended(self._now - self._accepted_at, self._now, reason)

    def disconnect(self, reason: int = 0) -> bool:
        """Say good-bye: returns whether there is one to say, a DISCONNECT in the output. The Will is not published
        unless `reason` is 4. What the broker sends until it has read that is told as any other message, and cannot be
        acknowledged."""
        connected = self.state is SessionState.CONNECTED
        if connected:
            self._left = True
            self._output.append(encode.disconnect(self.versions.level, reason))
        if self.state is not SessionState.IDLE:
            self._move(SessionInput.LEAVE)
        return connected

    def tick(self, now: float, reading: bool = True) -> list[MqttEvent]:
        """Keep-alive and time-outs; to be called about once a second.

        `reading` is False while the application lets nothing be read: then silence proves nothing.
        """
        self._now = now
        if self.state is SessionState.CONNECTING:
            limit = min(self.options.connect_timeout_s, PROBE_TIMEOUT_S if self.versions.probing else float("inf"))
            return self._give_up(f"no CONNACK within {limit:g} s") if now - self._began_at >= limit else []
        if self.state is not SessionState.CONNECTED:
            return []
        if self._sending.is_stable(now - self._accepted_at):
            self._send_waiting(self._later)
        verdict = self._keep_alive.tick(now, reading)
        if verdict is KeepaliveVerdict.GONE:
            return self._give_up(f"no answer to a ping within {self.options.ping_timeout_s:g} s")
        if verdict is KeepaliveVerdict.PING:
            self._ping()
        return self._take_later()

    def _ping(self) -> None:
        self._output.append(encode.PINGREQ)
        self._sending.unproven.pinged()

    def _take_later(self) -> list[MqttEvent]:
        events, self._later = self._later, []
        return events

    @property
    def has_output(self) -> bool:
        return bool(self._output)

    def take_output(self, now: float | None = None) -> bytes:
        """Bytes to be written. With `now`, they count as sent for the keep-alive."""
        if not self._output:
            return b""
        if now is not None:
            self._keep_alive.sent_at = now
        data = b"".join(self._output)
        self._output.clear()
        return data

    # -- what the application asks for

    def subscribe(self, subscriptions: Sequence[Subscription]) -> int:
        """SUBSCRIBE, one packet per subscription identifier. Returns a token that `Subscribed` carries, with `HUNG_UP`
        for a filter that is left out since the broker hangs up at it.

        Raises ValueError for a bad filter, ProtocolError while not connected.
        """
        for one in subscriptions:
            check_filter(one.filter)
        filters, known = [one.filter for one in subscriptions], self.hang_ups.filters
        left_out = {n: HUNG_UP for n, name in enumerate(filters) if not known.admits(name, self._now)}
        if filters and len(left_out) == len(filters):
            token = self._packet_ids.free()
            self._later.append(Subscribed(token, tuple((name, HUNG_UP) for name in filters)))
            return token
        packets = groups(subscriptions, by_id=self.versions.level == V5, alone=self.hang_ups.alone)
        asked = self._ask(filters, packets, adds=True, results=left_out)
        for packet_id, indexes in asked.items():
            self._sending.subscribing.add(packet_id, [subscriptions[i] for i in indexes])
        self._send_waiting(self._later)
        return next(iter(asked))

    def unsubscribe(self, filters: Sequence[str]) -> int:
        """UNSUBSCRIBE; returns a token that `Unsubscribed` carries. ProtocolError while not connected."""
        (token,) = self._ask(filters, [range(len(filters))], adds=False)
        self._output.append(encode.unsubscribe(self.versions.level, token, filters))
        return token

    def acknowledge(self, packets: Iterable[tuple[int, int]], connection: int | None = None) -> bool:
        """PUBACK or PUBREC for (packet id, QoS), which must come in order of arrival; QoS 0 is passed over.

        `connection` says on which one the messages came. Returns False, and does nothing, if that is over: the broker
        delivers them again, and the same id may mean another message by now.
        """
        if self.state is not SessionState.CONNECTED or connection not in (None, self.connection):
            return False
        if data := answers(packets):
            self._output.append(data)
        return True

    def complete(self, packet_ids: Iterable[int], connection: int | None = None) -> bool:
        """PUBCOMP for messages that are `Released`; for the rest as `acknowledge`."""
        if self.state is not SessionState.CONNECTED or connection not in (None, self.connection):
            return False
        if data := completions(packet_ids):
            self._output.append(data)
        return True

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> int:
        """Send a message of ours; returns its packet id (0 at QoS 0), which `Published` carries when it has arrived.

        QoS 1 waits for the window or the connection, within bounds. Raises PublishRefused, also for a topic at which
        the broker hangs up, or ValueError for a topic with wildcards.
        """
        self._sending.check(topic, self._now)
        message, connected = OutgoingMessage(topic, payload, retain, properties), self.state is SessionState.CONNECTED
        if qos == 0:
            if not connected:
                raise PublishRefused("expected a connection for a message of QoS 0, got none")
            packet, wants_ping = self._sending.unacknowledged(message, self.versions.level)
            self._output.append(packet)
            if wants_ping:
                self._ping()
            return 0
        packet_id = self._packet_ids.free()
        self._sending.add(packet_id, message, connected)
        self._send_waiting(self._later)
        return packet_id

    def publish_together(self, messages: Sequence[tuple[str, bytes, bool]]) -> bool:
        """Sends messages at QoS 0, each as (topic, payload, retain). Returns False, and sends none, where `publish` has
        to be called for each. Raises ValueError for a topic with wildcards."""
        if self.state is not SessionState.CONNECTED:
            return False
        packets = self._sending.together(messages, self.versions.level)
        self._output += packets or ()
        return packets is not None

    def give_up(self, packet_ids: Collection[int]) -> list[int]:
        """See `Sending.give_up`. `Published` tells of the others."""
        return self._sending.give_up(packet_ids, self.state is SessionState.CONNECTED)

    # -- what comes from the broker

    def receive_untrusted(self, data: bytes, now: float) -> list[MqttEvent]:
        """Events from `data`. A broker that breaks the rules yields `Closed`, after what was in order before."""
        events = self._take_later()
        self._now = now
        if self._idle():
            return self._behind_good_bye(data) if self._left else events
        self._keep_alive.received_at = now
        packets: list[Packet] = []
        fault: ProtocolError | None = None
        try:
            self._decoder.feed_untrusted(data, packets)
        except ProtocolError as error:
            fault = error
        try:
            for packet in packets:
                if self._idle():
                    return events
                if type(packet) is Connack:
                    self._on_connack(packet, now, events)
                else:
                    self._move(SessionInput.TRAFFIC)
                    self._handlers[type(packet)](packet, events)
        except ProtocolError as error:
            fault = error
        if fault is not None and not self._idle():
            self._fail(fault, events)
        return events

    def _behind_good_bye(self, data: bytes) -> list[MqttEvent]:
        """Messages only: they come again, and what they are may have to be known then."""
        packets: list[Packet] = []
        try:
            self._decoder.feed_untrusted(data, packets)
        except ProtocolError:
            self._left = False  # nothing that follows can be read
        return [Messages(packet) for packet in packets if type(packet) is list]

    def _fail(self, fault: ProtocolError, events: list[MqttEvent]) -> None:
        early = self.state is SessionState.CONNECTING
        if not early and self.versions.level == V5:
            self._output.append(encode.disconnect(self.versions.level, 0x82))
        if not early:
            events += self._suspect()
        self._move(SessionInput.LOST)
        retry = self._next_version(early)
        events.append(Closed(f"the broker broke the protocol: {fault}", 0x82, retry))

    def _on_connack(self, packet: Connack, now: float, events: list[MqttEvent]) -> None:
        if packet.reason:
            self._move(SessionInput.REFUSED)
            retry = self.versions.refused(packet.reason, now)
            text = sentence(packet.reason, self.client_id, packet.properties.get("reason_string", ""))
            events.append(Refused(packet.reason, f"the broker refused the connection: {text}", retry))
            return
        if packet.session_present and self.options.clean_start:
            raise ProtocolError("expected no session after a clean start, got one")
        self._move(SessionInput.ACCEPTED)
        self._accepted_at = now
        self.connection += 1
        self.versions.accepted()
        self._sending.connected(BrokerLimits.of(packet.properties), packet.session_present)
        interval_s = packet.properties.get("server_keep_alive", self.options.keep_alive_s)
        self._keep_alive = KeepAlive(interval_s, self.options.ping_timeout_s, now)
        self.client_id = packet.properties.get("assigned_client_identifier", self.options.client_id)
        events.append(
            Connected(
                packet.session_present, self.versions.protocol, self.connection, self.client_id,
                self._sending.limits.receive_maximum, packet.properties,
            )
        )  # fmt: skip
        self._send_waiting(events)

    def _on_messages(self, messages: Publishes, events: list[MqttEvent]) -> None:
        events.append(Messages(messages))

    def _on_oversized(self, packet: Oversized, events: list[MqttEvent]) -> None:
        events.append(packet)

    def _on_pubrel(self, packet: Pubrel, events: list[MqttEvent]) -> None:
        events.append(Released(packet.packet_id))  # also of a message that we answered before our restart

    def _on_puback(self, packet: Puback, events: list[MqttEvent]) -> None:
        if self._sending.acknowledged(packet.packet_id):
            events.append(Published(packet.packet_id, packet.reason))
            self._send_waiting(events)

    def _on_suback(self, packet: Suback, events: list[MqttEvent]) -> None:
        self._answered(packet.packet_id, packet.reasons, True, events)
        self._sending.subscribed(packet.packet_id)
        self._send_waiting(events)

    def _on_unsuback(self, packet: Unsuback, events: list[MqttEvent]) -> None:
        self._answered(packet.packet_id, packet.reasons or None, False, events)

    def _answered(self, packet_id: int, reasons: Sequence[int] | None, adds: bool, events: list[MqttEvent]) -> None:
        event = self._requests.answered(packet_id, reasons, adds)
        if event is not None:
            events.append(event)

    def _on_pingresp(self, _packet: Pingresp, events: list[MqttEvent]) -> None:
        self._keep_alive.answered()
        self._sending.ponged()
        self._send_waiting(events)

    def _on_disconnect(self, packet: Disconnect, events: list[MqttEvent]) -> None:
        events += self._suspect(packet.reason)
        self._move(SessionInput.LOST)
        self.versions.ended(self._now)
        text = sentence(packet.reason, self.client_id, packet.properties.get("reason_string", ""))
        events.append(Closed(f"the broker disconnected us: {text}", packet.reason))

    def _on_unexpected(self, packet: Pubrec | Pubcomp, _events: list[MqttEvent]) -> None:
        raise ProtocolError(f"expected no {type(packet).__name__.upper()} (nothing of ours is QoS 2), got one")

    # -- helpers

    def _idle(self) -> bool:
        return self.state is SessionState.IDLE

    def _move(self, what: SessionInput) -> None:
        state = TRANSITIONS.get((self.state, what))
        if state is None:
            raise ProtocolError(f"expected no '{what.value}' while {self.state.value}")
        self.state = state

    def _ask(
        self, filters: Sequence[str], packets: Sequence[Sequence[int]], adds: bool, results: Mapping[int, int] = {}
    ) -> dict[int, Sequence[int]]:
        if self.state is not SessionState.CONNECTED:
            raise ProtocolError(f"expected a connection to subscribe or unsubscribe, got '{self.state.value}'")
        return self._requests.add(filters, packets, adds, self._packet_ids.free, results)

    def _send_waiting(self, events: list[MqttEvent]) -> None:
        if self.state is SessionState.CONNECTED:
            self._sending.due(self.versions.level, self._output, events)
