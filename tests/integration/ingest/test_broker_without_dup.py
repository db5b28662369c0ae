"""A sensors' broker that leaves DUP out and hangs up at `$SYS`, as rumqttd 0.20 does, and the gateway as a process."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.rig import Rig
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

MESSAGES, WINDOW = 3_000, 100
HANG_UPS = (400, 1_100, 2_000)
"""At so many acknowledgements."""


class BrokerWithoutDup:
    """MQTT 3.1.1, for one client, whose session it keeps. All messages are equal, so that nothing but their packet ids
    tells them apart. It reads every acknowledgement before it closes a connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._free = deque(range(1, WINDOW + 1))
        self._unanswered: dict[int, None] = {}
        self._hang_ups = list(HANG_UPS)
        self.begun = self.answered = self.again = self.asked_sys = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with contextlib.suppress(OSError), connection:
                    self._one(connection)

    def _one(self, connection: socket.socket) -> None:
        hung_up = False
        for first, body in packets(connection):
            if first == 0x10:
                connection.sendall(bytes((0x20, 2, int(self.begun > 0), 0)))
                for number in self._unanswered:
                    self.again += 1
                    connection.sendall(publish(number))
            elif first == 0x82 and b"$SYS" in body:
                self.asked_sys += 1
                return
            elif first == 0x82:
                connection.sendall(bytes((0x90, 3, *body[:2], 1)))
            elif first == 0x40:
                number = int.from_bytes(body, "big")
                del self._unanswered[number]
                self._free.append(number)
                self.answered += 1
            elif first == 0xC0:
                connection.sendall(b"\xd0\0")
            if not hung_up and self._hang_ups and self.answered >= self._hang_ups[0]:
                del self._hang_ups[0]
                hung_up = True
                connection.shutdown(socket.SHUT_WR)
            while not hung_up and first in (0x82, 0x40) and self._free and self.begun < MESSAGES:
                number = self._free.popleft()
                self._unanswered[number] = None
                self.begun += 1
                connection.sendall(publish(number))

    def close(self) -> None:
        self._listener.close()


def publish(number: int) -> bytes:
    body = b"\0\x06room/a" + number.to_bytes(2, "big") + b'{"v": 1}'
    return bytes((0x32, len(body))) + body


def packets(connection: socket.socket) -> Iterator[tuple[int, bytes]]:
    """(first byte, body) of packets below 16 kB, until the other side closes."""
    stream = connection.makefile("rb")
    while head := stream.read(1):
        length = stream.read(1)[0]
        if length > 127:
            length += (stream.read(1)[0] - 1) << 7
        yield head[0], stream.read(length)


def document() -> dict[str, Any]:
    window = {"type": "tumbling_window", "input": "in", "size_s": 1, "aggregates": {"n": "count()"}}
    return {
        "name": "f",
        "checkpoint": {"interval_s": 0.5},
        "operators": {
            "in": {"type": "mqtt_source", "topic": "room/{source}"},
            "window": window,
            "central": {"type": "ship", "input": "window"},
        },
    }


def test_each_message_counts_once_though_nothing_says_that_it_comes_again(rig: Rig) -> None:
    broker = BrokerWithoutDup()
    gateway = rig.gateway(sensors={"port": broker.port, "protocol": "3.1.1"})
    rig.collector().start()
    gateway.start()
    assert rig.deploy(gateway, document())["accepted"]
    wait_until(lambda: broker.answered >= MESSAGES, "every acknowledgement", 60.0, lambda: broker.answered)
    status = gateway.wait_anew(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")
    assert rig.tell(gateway, "flows/f", b"", "flows/f/state")["accepted"]
    rig.drained(gateway)
    broker.close()
    print(f"{broker.again} sent again, {broker.asked_sys} times asked for $SYS; {status['ingest']['without_dup']} told")
    assert sum(row["n"] for row in rig.landed("f")) == MESSAGES
    assert broker.again > 0
    assert status["ingest"]["without_dup"] == broker.again
    assert gateway.text().count("delivers messages again without saying so (no flag DUP)") == 1
    assert broker.asked_sys <= 2, "a broker that hangs up at it is asked no more"
