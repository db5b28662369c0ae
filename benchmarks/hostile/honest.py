"""An honest gateway's uplink: one result after the other, and the time until each is acknowledged."""

from __future__ import annotations

import threading
import time
from typing import Any, Final, Self

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.hostile.gateway import FLEET, FLOW, Gateway
from edgert.core.results.results import (
    EpochHello,
    acks_topic,
    pack_result,
    results_topic,
    unpack_acknowledgement_untrusted,
)

NAME: Final = "g1"
AGAIN_S: Final = 1.0
"""After so long without an acknowledgement a result is sent again."""
PATIENCE_S: Final = 120.0


class Honest:
    """Connected once it is made; ends with the block."""

    def __init__(self, port: int) -> None:
        self._gateway = Gateway(NAME)
        self._landed = threading.Condition()
        self._acknowledged = 0
        self._client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv311)
        self._client.on_message = self._message
        self._client.on_connect = lambda client, *_: client.subscribe(acks_topic(FLEET, NAME), 1)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def begin(self) -> None:
        """Says hello and opens its epoch. Raises `TimeoutError` if that is not acknowledged."""
        hello = pack_result(EpochHello(gateway=NAME, flow=FLOW))
        self._await(1, hello, pack_result(self._gateway.open()))

    def one(self) -> float:
        """One result; seconds until its acknowledgement, at most `PATIENCE_S` (then `TimeoutError`)."""
        begun = time.monotonic()
        result = pack_result(self._gateway.rows(self._gateway.sequence % 7))
        self._await(self._gateway.sequence, result)
        return time.monotonic() - begun

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _await(self, number: int, *payloads: bytes) -> None:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            for payload in payloads:
                self._client.publish(results_topic(FLEET, NAME, FLOW), payload, qos=1)
            with self._landed:
                if self._landed.wait_for(lambda: self._acknowledged >= number, AGAIN_S):
                    return
        raise TimeoutError(f"expected an acknowledgement of result {number} within {PATIENCE_S:g} s")

    def _message(self, client: Any, data: Any, message: paho.MQTTMessage) -> None:
        heard = unpack_acknowledgement_untrusted(bytes(message.payload))
        with self._landed:
            self._acknowledged = max([self._acknowledged, *(n for (f, *_), n in heard.acks.items() if f == FLOW)])
            self._landed.notify_all()
