"""A message from outside of the board goes in, and a result comes out: over the board's own broker."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from hardware.verdict import Verdict, bad, good, skipped

WITHIN_S: Final = 60.0
CONNECT_S: Final = 10.0
FIRST_S: Final = 1_700_000_000
"""Event time (s) of the first message."""
MESSAGES: Final = 60
WINDOW_S: Final = 10
CLOSED: Final = MESSAGES - WINDOW_S
"""Messages in windows that are over: the last one stays open."""
FLOW: Final = """
name = "{name}"
[checkpoint]
interval_s = 1.0
[operators.readings]
type = "mqtt_source"
topic = "{name}/in/{{source}}"
[operators.by_source]
type = "key_by"
input = "readings"
keys = ["source"]
[operators.windows]
type = "tumbling_window"
input = "by_source"
size_s = {window}.0
aggregates = {{ n = "count()" }}
[operators.out]
type = "publish"
input = "windows"
topic = "{name}/out/{{source}}"
"""
"""The document of a flow that sends nothing to the central side."""


class NotReached(Exception):
    """The board's broker takes no connection, or no flow comes from it to the gateway."""


def judge(host: str, port: int, fleet: str, gateway: str, *, asked: bool) -> Verdict:
    """Deploys a flow of its own, sends messages, waits for the counts, and removes the flow. A broker that cannot be
    reached is bad if the user named it (`asked`): by default a board's broker is for the board alone."""
    client = Probe(host, port, f"edgert/v1/{fleet}/{gateway}/flows/")
    try:
        began = client.begin()
        counted = client.count()
    except NotReached as error:
        return bad(str(error)) if asked else skipped(str(error))
    finally:
        client.end()
    lasted = f"{time.monotonic() - began:.1f} s"
    if counted != CLOSED:
        return bad(f"{MESSAGES} messages sent, expected {CLOSED} of them in results, got {counted} within {lasted}")
    return good(f"{MESSAGES} messages sent, {counted} of {CLOSED} in closed windows came out after {lasted}")


class Probe:
    """A client outside of the board, with a flow of a name that no other has."""

    def __init__(self, host: str, port: int, flows: str) -> None:
        self._host, self._port = host, port
        self._name = f"hw-test-{secrets.token_hex(4)}"
        self._flow = flows + self._name
        self._connected = self._deployed = False
        self._counted = 0
        self._refused = ""
        self._client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self._client.on_connect, self._client.on_message = self._on_connect, self._on_message

    def _on_connect(self, client: paho.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self._connected = not reason.is_failure
        client.subscribe([(f"{self._name}/out/#", 1), (f"{self._flow}/state", 1)])

    def _on_message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        try:
            plain = json.loads(message.payload)
            if message.topic.endswith("/state"):
                self._deployed = bool(plain["accepted"])
                self._refused = "" if self._deployed else str(plain)[:200]
            else:
                self._counted += int(plain["n"])
        except (ValueError, LookupError, TypeError):
            return  # of somebody else

    def begin(self) -> float:
        """Connects and deploys; returns the time (monotonic clock) at which the flow runs. Raises `NotReached`."""
        where = f"{self._host}:{self._port}"
        try:
            self._client.connect_timeout = CONNECT_S
            self._client.connect(self._host, self._port, keepalive=30)
        except OSError as error:
            raise NotReached(f"{where} takes no connection ({error}): see [broker] listen of edgert.toml") from None
        self._client.loop_start()
        if not _holds(lambda: self._connected, CONNECT_S):
            raise NotReached(f"{where} is no broker that lets everybody in")
        self._client.publish(self._flow, FLOW.format(name=self._name, window=WINDOW_S).encode(), qos=1, retain=True)
        if not _holds(lambda: self._deployed, WITHIN_S):
            why = self._refused or "no answer: see [broker] control of edgert.toml"
            raise NotReached(f"{where}: the flow was not taken: {why}")
        return time.monotonic()

    def count(self) -> int:
        """Sends the messages; returns the number of them in results, when all have come or time is up."""
        for number in range(MESSAGES):
            payload = json.dumps({"time": FIRST_S + number, "v": number}).encode()
            self._client.publish(f"{self._name}/in/probe", payload, qos=1)
        _holds(lambda: self._counted >= CLOSED, WITHIN_S)
        return self._counted

    def end(self) -> None:
        """Removes the flow, if there is a connection."""
        if self._connected:
            self._client.publish(self._flow, b"", qos=1, retain=True).wait_for_publish(CONNECT_S)
        self._client.disconnect()
        self._client.loop_stop()


def _holds(condition: Callable[[], object], within_s: float) -> bool:
    ends = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True
