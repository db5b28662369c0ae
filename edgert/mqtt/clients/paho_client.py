"""paho's client with what its public face lacks: a window that may change, a look at what is not acknowledged, and a
thread that no error ends."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from edgert.core.settings.connection import Connection
from edgert.mqtt.clients.credentials import read_password, tls_context
from edgert.mqtt.hang_ups.suspicion import Sent
from edgert.mqtt.packets.packets import V5

log = logging.getLogger(__name__)


class _Messages(OrderedDict[int, Any]):
    """Messages by packet id. Code that looks through them looks through a copy, so that they may change meanwhile: paho
    does that while it sends, and what it meets there may make us forget some."""

    def values(self) -> Any:
        return list(super().values())


class PahoClient(paho.Client):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._out_messages = _Messages()

    def limit_in_flight(self, most: int) -> None:
        """At most so many messages of ours are in flight from now on. paho's own setter refuses while there is a
        connection, and CONNACK is where the broker says how many it bears."""
        with self._out_message_mutex:
            self._max_inflight_messages = most

    def begin_window(self, most: int) -> None:
        """Sets the window at CONNACK, before anything is sent again. paho chose when the connection began what to send,
        by the window of the connection before: a broker with a smaller one would hang up at that."""
        with self._out_message_mutex:
            self._max_inflight_messages = most
            for index, message in enumerate(self._out_messages.values()):
                if message.state in (paho.mqtt_ms_publish, paho.mqtt_ms_queued):
                    message.state = paho.mqtt_ms_publish if index < most else paho.mqtt_ms_queued

    def wait_before_next(self, seconds: float) -> None:
        """The wait before the next attempt to connect, instead of paho's own. While there is no connection."""
        with self._reconnect_delay_mutex:
            self._reconnect_min_delay = self._reconnect_max_delay = seconds  # type: ignore[assignment]
            self._reconnect_delay = None

    def unacknowledged(self) -> dict[int, Sent]:
        """Messages of ours by packet id, in the order of sending; paho sends them again on the next connection."""
        with self._out_message_mutex:
            messages = list(self._out_messages.items())
        return {mid: _sent(m) for mid, m in messages}

    def sent(self, packet_id: int) -> Sent | None:
        """One of these; None if it was acknowledged or forgotten."""
        message = self._out_messages.get(packet_id)
        return None if message is None else _sent(message)

    def forget(self, packet_ids: Collection[int]) -> None:
        """Messages that are not to be sent again. Between two connections, where the window is counted anew."""
        with self._out_message_mutex:
            for packet_id in packet_ids:
                self._out_messages.pop(packet_id, None)

    def loop_forever(self, timeout: float = 1.0, retry_first_connection: bool = False) -> Any:
        """paho's thread. An error in it would end the connection for good, unseen: it ends this one only."""
        while True:
            try:
                return super().loop_forever(timeout, retry_first_connection)
            except Exception:
                log.exception("the connection's thread failed; the connection is made anew")
                self._loop_rc_handle(paho.MQTT_ERR_UNKNOWN)

    def _messages_reconnect_reset_out(self) -> None:
        """On a new connection messages go out in order, up to the window: paho itself would send all of them, and a
        broker that hangs up could not be asked which one it does not take."""
        super()._messages_reconnect_reset_out()
        with self._out_message_mutex:
            for message in list(self._out_messages.values())[self._max_inflight_messages :]:
                message.state = paho.mqtt_ms_queued


def paho_client(settings: Connection, client_id: str, level: int, will: tuple[str, bytes] | None) -> PahoClient:
    """A client of the central broker for a version of MQTT. Raises `EdgertError` naming a file of the settings that
    cannot be read."""
    # nothing rests on this session: what matters is asked for and sent anew after each connect
    clean = {} if level == V5 else {"clean_session": True}
    version = MQTTProtocolVersion(level)
    client = PahoClient(CallbackAPIVersion.VERSION2, client_id, protocol=version, **clean)
    if settings.username:
        client.username_pw_set(settings.username, read_password(settings.password_file, "central"))
    if settings.tls:
        client.tls_set_context(tls_context(settings, "central"))
    if will:
        client.will_set(*will, qos=1, retain=True)
    return client


def _sent(message: paho.MQTTMessage) -> Sent:
    return Sent(message.topic, len(message.topic.encode()) + len(message.payload))
