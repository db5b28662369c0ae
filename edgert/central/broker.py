"""The collector's connection to the MQTT broker (by `paho-mqtt`: its rate is no matter here).

It connects when the broker is there, again and again with a growing back-off, and never gives up. Protocol `auto` is
MQTT 5 first; a broker that breaks the connection off before it accepts gets 3.1.1 the next time, and so on in turn.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from edgert.core.errors import EdgertError
from edgert.core.settings import Connection

log = logging.getLogger("edgert.central.broker")
_VERSIONS: Final = {"5": mqtt.MQTTv5, "3.1.1": mqtt.MQTTv311}
_LONGEST_WAIT_S: Final = 30
_ANSWER_S: Final = 5.0


class Broker:
    """Subscribes one filter at QoS 1. `arrive(topic, payload)` is called on the network's thread.

    `will` is (topic, payload), retained, which the broker publishes when we are gone.
    """

    def __init__(
        self,
        settings: Connection,
        client_id: str,
        topic_filter: str,
        arrive: Callable[[str, bytes], object],
        will: tuple[str, bytes],
    ) -> None:
        self._settings = settings
        self._client_id = client_id
        self._filter = topic_filter
        self._arrive = arrive
        self._will = will
        self._protocol = "5" if settings.protocol == "auto" else settings.protocol
        self._accepted = False
        self._client: mqtt.Client | None = None
        self._opened_at: float | None = None
        self._turn = threading.Event()
        self.connected = threading.Event()
        self.error = ""

    def start(self) -> None:
        """Begin to connect. Raises `EdgertError` if the settings name files that cannot be used."""
        self._opened_at = None
        self._client = client = self._make()
        client.connect_async(self._settings.host, self._settings.port, self._settings.keep_alive_s)
        client.loop_start()

    def tend(self) -> None:
        """To be called now and then: changes the protocol when the broker does not take the first."""
        # A broker that does not know a protocol may leave its CONNECT without an answer and the connection open.
        opened = self._opened_at
        if not self._accepted and opened is not None and time.monotonic() - opened > _ANSWER_S:
            self._take_turn()
        if self._turn.is_set():
            self._turn.clear()
            self.stop()
            self._protocol = "3.1.1" if self._protocol == "5" else "5"
            log.info("the broker did not take the connection, trying MQTT %s", self._protocol)
            self.start()

    def publish(self, topic: str, payload: bytes) -> bool:
        """Publish retained, at QoS 1. False when not connected: then it is lost, and has to be said again."""
        if self._client is None or not self.connected.is_set():
            return False
        return self._client.publish(topic, payload, qos=1, retain=True).rc == mqtt.MQTT_ERR_SUCCESS

    def flush(self, topic: str, payload: bytes, patience_s: float) -> None:
        """Publish, and wait until the broker has it."""
        if self._client is not None and self.connected.is_set():
            try:
                self._client.publish(topic, payload, qos=1, retain=True).wait_for_publish(patience_s)
            except (RuntimeError, ValueError) as error:
                log.debug("%s: %s", topic, error)

    def stop(self) -> None:
        """Disconnect and end the network's thread."""
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()
            self._client = None
        self.connected.clear()

    def _make(self) -> mqtt.Client:
        version = _VERSIONS[self._protocol]
        extra: dict[str, Any] = {} if self._protocol == "5" else {"clean_session": True}
        client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=self._client_id, protocol=version, **extra)
        s = self._settings
        if s.username:
            client.username_pw_set(s.username, _password(s.password_file))
        if s.tls:
            try:
                client.tls_set(s.ca_file or None, s.cert_file or None, s.key_file or None, ssl.CERT_REQUIRED)
            except (OSError, ValueError) as error:
                raise EdgertError(f"TLS: expected certificates that can be used, got {error}") from error
        client.will_set(*self._will, qos=1, retain=True)
        client.reconnect_delay_set(1, _LONGEST_WAIT_S)
        client.max_inflight_messages_set(1000)
        client.max_queued_messages_set(10_000)
        client.on_socket_open = self._on_socket_open
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        return client

    def _on_connect(self, client: mqtt.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._note(f"the broker refused: {reason}")
            if "protocol version" in str(reason).lower():
                self._take_turn()
            return
        self._accepted = True
        self.error = ""
        client.subscribe(self._filter, qos=1)
        self.connected.set()
        log.info("connected to %s:%d (MQTT %s)", self._settings.host, self._settings.port, self._protocol)

    def _on_socket_open(self, _client: mqtt.Client, _data: Any, _socket: Any) -> None:
        self._opened_at = time.monotonic()

    def _on_connect_fail(self, _client: mqtt.Client, _data: Any) -> None:
        self._note("no connection yet")

    def _on_disconnect(self, _client: mqtt.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        was = self.connected.is_set()
        self.connected.clear()
        if was and reason.is_failure:
            self._note(f"connection lost: {reason}")
        elif not self._accepted:
            self._take_turn()

    def _on_message(self, _client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        if not message.retain:
            self._arrive(message.topic, bytes(message.payload))

    def _take_turn(self) -> None:
        if self._settings.protocol == "auto":
            self._turn.set()

    def _note(self, error: str) -> None:
        if error != self.error:
            log.warning("%s:%d: %s; trying again", self._settings.host, self._settings.port, error)
        self.error = error


def _password(file: str) -> str | None:
    if not file:
        return None
    try:
        return Path(file).read_text().splitlines()[0]
    except (OSError, IndexError, UnicodeDecodeError) as error:
        raise EdgertError(f"{file}: expected a file whose first line is the password: {error}") from error
