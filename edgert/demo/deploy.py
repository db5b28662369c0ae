"""Deploys the demo's flow as any operator would: a retained document over MQTT, and the answer to it."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from paho.mqtt.client import Client, ConnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edgert.core.errors import EdgertError
from edgert.demo.setup import FLEET, Setup


class Rejected(EdgertError):
    """The gateway refused the document; the message names every error."""


class Deployment:
    """One document on its way. `state` moves from `""` to `"accepted"`, or `error` says why not."""

    def __init__(self, setup: Setup) -> None:
        self._topic = f"edgert/v1/{FLEET}/{setup.gateway}/flows/{setup.flow_name}"
        self._document = setup.document.encode()
        self._sent = threading.Event()
        self.accepted = False
        self.error = ""
        self._client = Client(CallbackAPIVersion.VERSION2, client_id=f"edgert-demo-{os.getpid()}")
        self._client.reconnect_delay_set(1, 2)
        self._client.on_connect = self._connected
        self._client.on_subscribe = self._subscribed
        self._client.on_message = self._answered
        self._client.connect_async(setup.broker_host, setup.broker_port)
        self._client.loop_start()

    def _connected(
        self, client: Client, _: Any, flags: ConnectFlags, code: ReasonCode, properties: Properties | None
    ) -> None:
        if not code.is_failure:
            client.subscribe(f"{self._topic}/state", qos=1)

    def _subscribed(self, client: Client, *_: Any) -> None:
        """Only now, so that the answer cannot come before we listen."""
        client.publish(self._topic, self._document, qos=1, retain=True)
        self._sent.set()

    def _answered(self, client: Client, _: Any, message: MQTTMessage) -> None:
        if message.retain:  # an answer to an earlier document
            return
        self.accepted, self.error = read_state_untrusted(message.payload)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def read_state_untrusted(payload: bytes | bytearray) -> tuple[bool, str]:
    """(accepted, what was wrong) of a flow's state."""
    try:
        state = json.loads(payload)
    except ValueError:
        state = None
    if not isinstance(state, dict):
        return False, "expected a flow's state as a JSON object, got something else"
    if state.get("accepted") is True:
        return True, ""
    errors = state.get("errors") or []
    return False, "\n".join(_line(e) for e in errors if isinstance(e, dict)) or "refused without a reason"


def _line(error: dict[str, Any]) -> str:
    return f"  {error.get('path', '?')}: expected {error.get('expected', '?')}, got {error.get('got', '?')}"
