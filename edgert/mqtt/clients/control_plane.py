"""The control plane's connection: configuration, commands, results and acknowledgements, over paho-mqtt.

Its rate is no matter here (ingest has a client of its own, `transport`). What paho leaves to its user is done once in
this file: version 5 with 3.1.1 as fallback, TLS and credentials from settings, subscriptions made anew at each connect.
"""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edgert.core.errors import EdgertError, show
from edgert.core.log_sampling import is_told
from edgert.core.settings.connection import Connection
from edgert.mqtt.clients.connection_hints import hint, short_lived
from edgert.mqtt.clients.message_limits import MessageLimits
from edgert.mqtt.clients.paho_client import PahoClient, paho_client
from edgert.mqtt.clients.reconnect import Attempts, Backoff
from edgert.mqtt.hang_ups.suspicion import STABLE_S
from edgert.mqtt.packets.encode import check_topic
from edgert.mqtt.packets.reasons import TAKEN_OVER, sentence
from edgert.mqtt.session.versions import PROBE_TIMEOUT_S, PROTOCOLS, Versions

log = logging.getLogger(__name__)

RECONNECT: Final = Backoff(first_s=1.0, max_s=60.0, stable_s=STABLE_S)
MAX_MESSAGE_BYTES = 1 << 20
MOST_SHORT = 3
"""Connections in a row that end early, after which the log says that they look like those of two clients with one id:
not every broker says that another took a session over."""
OnMessage = Callable[[str, bytes, "MqttRequest | None"], object]


class MqttRequest:
    """Where an answer to a message is wanted (MQTT 5, section 4.10)."""

    def __init__(self, topic: str, correlation: bytes | None) -> None:
        self.topic = topic
        self.correlation = correlation


class ControlConnection:
    """Keeps one connection for ever. Callbacks run on paho's thread; `publish` may be called from any thread.

    `on_subscribed` is called after each connect, once the broker has taken all `subscriptions`. `on_retained` takes the
    messages that the broker had kept; without it they go to `on_message` like all others. A message of more than
    `max_message_bytes` goes to neither: it is counted in `oversized`. `on_refused` is told why the broker did not
    take a message of ours, which 3.1.1 does not say.
    """

    def __init__(
        self,
        settings: Connection,
        client_id: str,
        *,
        subscriptions: Sequence[tuple[str, int]] = (),
        will: tuple[str, bytes] | None = None,
        on_message: OnMessage = lambda topic, payload, request: None,
        on_retained: OnMessage | None = None,
        on_connected: Callable[[], None] = lambda: None,
        on_subscribed: Callable[[], None] = lambda: None,
        on_disconnected: Callable[[str], None] = lambda reason: None,
        on_refused: Callable[[str], None] = lambda reason: None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        reconnect: Backoff = RECONNECT,
        probe_timeout_s: float = PROBE_TIMEOUT_S,
    ) -> None:
        self.probe_timeout_s = probe_timeout_s
        """A broker that does not answer to version 5 for so long is asked in 3.1.1."""
        self._settings = settings
        self._client_id = client_id
        self._subscriptions = list(subscriptions)
        self._subscribing = threading.Lock()
        """Held so that a connection that is just being made misses no change."""
        self._will = will
        self._on_message, self._on_retained = on_message, on_retained or on_message
        self._on_connected, self._on_disconnected = on_connected, on_disconnected
        self._on_subscribed, self._on_refused = on_subscribed, on_refused
        self._max_message_bytes = max_message_bytes
        self._versions = Versions(settings.protocol)
        self._level = self._versions.level
        """The version that the client speaks."""
        self._reconnect, self._attempts = reconnect, Attempts(reconnect, random.random)
        self._answered = False
        self._stopping = threading.Event()
        self._replacing = False
        self._life = threading.Lock()
        """Held while a client is made or ended, so that none is left behind."""
        self._probe: threading.Timer | None = None
        self.connected = False
        self.error = ""
        """Why there is no connection; empty while none has failed (an answer may still come)."""
        self.connects = 0
        self.oversized = self.unhandled = 0
        self.limits = MessageLimits(time.monotonic)
        self._connected_at = 0.0
        self._unpublished = 0
        self._short = 0
        """Connections in a row that ended before they were stable."""
        self._noted = ""
        self._refused: dict[int, str] = {}
        """Reasons why the broker did not take a message, by packet id (so there are 65,535 at most)."""
        self.client = self._make()

    @property
    def protocol(self) -> str:
        """The MQTT version in use: "5" or "3.1.1"."""
        return PROTOCOLS[self._level]

    @property
    def address(self) -> str:
        """The broker, as host:port."""
        return f"{self._settings.host}:{self._settings.port}"

    # -- life

    def start(self) -> None:
        """Begins to connect and returns at once; a broker that is away is waited for."""
        client = self.client
        client.connect_async(self._settings.host, self._settings.port, self._settings.keep_alive_s or 65_535)
        client.loop_start()

    def subscribe(self, subscriptions: Sequence[tuple[str, int]]) -> None:
        """These instead of what was subscribed to, now and at each connect. From any thread."""
        with self._subscribing:
            gone = [name for name, _ in self._subscriptions if name not in dict(subscriptions)]
            self._subscriptions = list(subscriptions)
            if self.connected and gone:
                self.client.unsubscribe(gone)
            if self.connected and self._subscriptions:
                self.client.subscribe(self._subscriptions)

    def stop(self, farewell: tuple[str, bytes] | None = None, timeout_s: float = 2.0) -> None:
        """Publishes `farewell` (retained) if the connection stands, and ends it. Returns within twice the time: paho
        waits for its thread, and that one for a name server or a host that does not answer."""
        self._stopping.set()
        ending = threading.Thread(target=self._end, args=(farewell, timeout_s), name="mqtt-end", daemon=True)
        ending.start()
        ending.join(2 * timeout_s)

    def _end(self, farewell: tuple[str, bytes] | None, timeout_s: float) -> None:
        with self._life:
            self._end_probe()
            if self.connected and farewell:
                try:
                    self.client.publish(*farewell, qos=1, retain=True).wait_for_publish(timeout_s)
                except (ValueError, RuntimeError) as error:
                    log.warning("the last message of this connection was not sent: %s", error)
            self.client.disconnect()
            self.client.loop_stop()

    def publish(
        self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False, request: MqttRequest | None = None,
        answer_to: str = "",
    ) -> bool:  # fmt: skip
        """Hands one message over; false when there is no connection (it is then not kept). `request`: that the message
        answers, or the message's own; `answer_to`: the topic on which an answer is wanted, which MQTT 5 alone can
        say."""
        if not self.connected:
            return False
        properties = None
        if self.protocol == "5" and (answer_to or (request is not None and request.correlation is not None)):
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            if answer_to:
                properties.ResponseTopic = answer_to
            if request is not None and request.correlation is not None:
                properties.CorrelationData = request.correlation
        try:
            check_topic(topic)
            self.limits.check(topic, payload)
            info = self.client.publish(topic, payload, qos, retain, properties)
        except ValueError as error:  # a response topic is whatever the asker wrote
            self._unpublished += 1
            if is_told(self._unpublished):
                log.warning("nothing was published on %s: %s (%d so far)", show(topic), error, self._unpublished)
            return False
        return bool(info.rc == paho.MQTT_ERR_SUCCESS)

    def refuses(self, topic: str, payload: bytes) -> str:
        """The reason for which the broker takes no such message, counted in `limits`; empty: there is none."""
        try:
            check_topic(topic)
            self.limits.check(topic, payload)
        except ValueError as error:
            return str(error)
        return ""

    def deliver(self, topic: str, payload: bytes, *, retain: bool = False, timeout_s: float = 10.0) -> str:
        """Publishes one message at QoS 1 and waits for the broker's answer; empty if it has it, else why not.

        Not from a callback.
        """
        if not self.connected:
            return self.error or "there is no connection"
        if refused := self.refuses(topic, payload):
            return refused
        try:
            info = self.client.publish(topic, payload, 1, retain)
            info.wait_for_publish(timeout_s)
        except (ValueError, RuntimeError) as error:
            return str(error)
        if not info.is_published():
            return f"no answer within {timeout_s:g} s"
        return self._refused.pop(info.mid, "")

    # -- paho

    def _make(self) -> PahoClient:
        client = paho_client(self._settings, self._client_id, self._level, self._will)
        client.on_connect, client.on_disconnect, client.on_message = self._connected, self._lost, self._message
        client.on_connect_fail, client.on_subscribe = self._unreachable, self._subscribed
        client.on_socket_open, client.on_publish = self._opened, self._published
        self._refused.clear()
        self.limits.begin(client)
        return client

    def _published(self, client: Any, data: Any, mid: int, reason: ReasonCode, properties: Any) -> None:
        self.limits.answered(client, mid)
        self._refused.pop(mid, None)  # an earlier message of this number
        if reason.is_failure:
            self._refused[mid] = f"the broker refused: {reason}"
            self._guarded(lambda: self._on_refused(str(reason)))

    def _opened(self, client: paho.Client, data: Any, sock: Any) -> None:
        self._end_probe()
        if self._versions.probing:
            self._probe = threading.Timer(self.probe_timeout_s, self._unanswered)
            self._probe.daemon = True
            self._probe.start()

    def _end_probe(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None

    def _unanswered(self) -> None:
        if not self._answered and not self._replacing:
            log.info("no answer to a version 5 CONNECT within %g s: trying 3.1.1", self.probe_timeout_s)
            self._versions.ended(time.monotonic(), silent=True)
            self._change_version()

    def _connected(self, client: Any, data: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        self._answered = True
        self._end_probe()
        if reason.is_failure:
            if not self._replacing and self._versions.refused(reason.value, time.monotonic()):
                self._change_version()
            else:
                self._note(f"the broker at {self.address} refused: {sentence(reason.value, self._client_id)}")
            return
        self.limits.connected(client, properties)
        self._versions.accepted()
        with self._subscribing:
            if self._subscriptions:
                client.subscribe(self._subscriptions)
            self.connected, self.error = True, ""
        self.connects += 1
        self._connected_at = time.monotonic()
        log.log(logging.DEBUG if self._short else logging.INFO, "connected to %s, MQTT %s", self.address, self.protocol)
        self._guarded(self._on_connected)

    def _subscribed(
        self, client: paho.Client, data: Any, packet_id: int, reasons: Sequence[ReasonCode], properties: Any
    ) -> None:
        for (name, _), reason in zip(self._subscriptions, reasons, strict=False):
            if reason.is_failure:
                self.error = f"the broker refused the subscription to {name}: {reason}"
                log.error("%s", self.error)
        self._guarded(self._on_subscribed)

    def _lost(self, client: Any, data: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        was, self.connected = self.connected, False
        silent, self._answered = not was and not self._answered, False
        if was and not self._stopping.is_set():
            self._ended(client)
        if self._ours:
            pass
        elif silent and self._versions.ended(time.monotonic(), unanswered=True):
            self._change_version()
        else:
            more = "" if was else hint(f"closed: {reason}", tls=self._settings.tls, port=self._settings.port)
            self._note(self.error or f"connection to {self.address} lost: {self._meaning(reason)}{more}")
            self._try_again(time.monotonic() - self._connected_at if was else 0.0)
        if was:
            self._guarded(lambda: self._on_disconnected(self.error))

    def _ended(self, client: PahoClient) -> None:
        """A connection is over that had stood."""
        early = time.monotonic() - self._connected_at < self._reconnect.stable_s
        self._short = self._short + 1 if early else 0
        if not early:
            self._noted = ""
        if self.limits.ended(client, early=early):
            self._attempts.begin_anew()  # there may be several steps to the broker's limit, but not many

    def _meaning(self, reason: ReasonCode) -> str:
        if self._short >= MOST_SHORT and reason.value != TAKEN_OVER:
            return f"{reason}{short_lived(self._reconnect.stable_s, self._client_id)}"
        return sentence(reason.value, self._client_id) if reason.is_failure else str(reason)

    def _unreachable(self, client: paho.Client, data: Any) -> None:
        why = sys.exc_info()[1]  # paho calls this while it handles the error, which it does not hand over
        told = (why.strerror if isinstance(why, OSError) else None) or str(why or "no answer came")
        refused = isinstance(why, ConnectionRefusedError)
        more = hint(f"{told} {why}", tls=self._settings.tls, port=self._settings.port, accepted=not refused)
        self._note(f"no connection to {self.address}: {told}{more}")
        if not self._ours:
            self._try_again()

    def _note(self, error: str) -> None:
        """Keeps the reason, and says it once."""
        if error != self._noted:
            log.warning("%s; trying again", error)
        self.error = self._noted = error

    @property
    def _ours(self) -> bool:
        """True if this client ends the connection itself."""
        return self._stopping.is_set() or self._replacing

    def _try_again(self, stood_s: float = 0.0) -> None:
        """A connection has ended that had stood for so long, or none was made. The next may speak another version: that
        it came to 3.1.1 may have been a broker's restart."""
        wait_s = self._attempts.ended(stood_s)
        self._versions.ended(time.monotonic())
        if self._versions.level != self._level:
            self._change_version(wait_s)
        else:
            self.client.wait_before_next(wait_s)

    def _change_version(self, wait_s: float = 0.0) -> None:
        """Some 3.1.1 brokers refuse version 5 with a reason, others close or say nothing; then it is the other's turn.

        A client that is being replaced has no say any more.
        """
        if self._ours:
            return
        self._replacing = True
        self._level = self._versions.level
        threading.Thread(target=self._replace, args=(wait_s,), name="mqtt-version", daemon=True).start()

    def _replace(self, wait_s: float) -> None:
        with self._life:
            self._end_probe()
            self.client.disconnect()
            self.client.loop_stop()
            self._end_probe()
        while not self._stopping.wait(wait_s) and not self._replaced():
            wait_s = self._reconnect.first_s

    def _replaced(self) -> bool:
        with self._life:
            if self._stopping.is_set():
                return True
            try:
                self.client = self._make()
            except (EdgertError, OSError, ValueError) as error:  # a file that is just being written
                self._note(f"no connection to {self.address}: {error}")
                return False
            self._answered = self._replacing = False
            self.start()
            return True

    def _message(self, client: paho.Client, data: Any, message: paho.MQTTMessage) -> None:
        size = len(message.payload)
        if size > self._max_message_bytes:
            self.oversized += 1
            if is_told(self.oversized):
                log.warning(
                    "%s: expected at most %d bytes, got %d: dropped (%d so far)",
                    show(message.topic), self._max_message_bytes, size, self.oversized,
                )  # fmt: skip
            return
        properties = message.properties
        answer = getattr(properties, "ResponseTopic", None)
        request = MqttRequest(answer, getattr(properties, "CorrelationData", None)) if answer else None
        handle = self._on_retained if message.retain else self._on_message
        self._guarded(lambda: handle(message.topic, bytes(message.payload), request))

    def _guarded(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:
            self.unhandled += 1
            if is_told(self.unhandled):
                log.exception("a message of the control plane could not be handled (%d so far)", self.unhandled)
