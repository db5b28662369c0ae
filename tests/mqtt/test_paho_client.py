"""What paho's client gets from us: a window that a new connection keeps to, and a thread that outlives its errors."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from edgert.mqtt.clients.paho_client import PahoClient
from tests.proxy import is_publish, packets
from tests.waiting import wait_until

CONNACK = b"\x20\x02\0\0"
QUIET_S = 0.3
"""Nothing more comes from a client that has sent nothing for so long."""


class Broker:
    """Takes connections, answers CONNECT, and acknowledges nothing."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.came: list[list[bytes]] = []
        """Messages of each connection."""
        self.now: socket.socket | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.now = connection
                self.came.append([])
                threading.Thread(target=self._read, args=(connection, self.came[-1]), daemon=True).start()

    def _read(self, connection: socket.socket, came: list[bytes]) -> None:
        buffer = bytearray()
        with suppress(OSError):
            while data := connection.recv(65_536):
                buffer += data
                for packet in packets(buffer):
                    if packet[0] == 0x10:
                        connection.sendall(CONNACK)
                    elif is_publish(packet):
                        came.append(packet)

    def hang_up(self) -> None:
        assert self.now is not None
        self.now.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        if self.now is not None:
            self.now.close()


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.close()


@contextmanager
def client(port: int) -> Iterator[PahoClient]:
    made = PahoClient(CallbackAPIVersion.VERSION2, "c", protocol=MQTTProtocolVersion.MQTTv311, clean_session=True)
    made.wait_before_next(0.05)
    made.connect("127.0.0.1", port)
    made.loop_start()
    try:
        yield made
    finally:
        made.disconnect()
        made.loop_stop()


def settled(messages: list[bytes]) -> int:
    """How many have come when no more come."""
    known, since = len(messages), time.monotonic()
    while time.monotonic() - since < QUIET_S:
        if len(messages) != known:
            known, since = len(messages), time.monotonic()
        time.sleep(0.01)
    return known


def test_what_is_sent_again_keeps_to_the_window(broker: Broker) -> None:
    with client(broker.port) as made:
        wait_until(made.is_connected, "the connection")
        for n in range(20):
            made.publish("t", b"%d" % n, 1)
        wait_until(lambda: len(broker.came[0]) == 20, "all messages")
        made.limit_in_flight(1)
        broker.hang_up()
        wait_until(lambda: len(broker.came) == 2, "another connection")
        wait_until(lambda: broker.came[1], "the first message")
        assert settled(broker.came[1]) == 1
        assert broker.came[1][0].endswith(b"0")
        made.limit_in_flight(5)
        broker.hang_up()
        wait_until(lambda: len(broker.came) == 3, "another connection")
        wait_until(lambda: len(broker.came[2]) >= 5, "the first messages")
        assert settled(broker.came[2]) == 5


def test_an_error_in_its_thread_ends_the_connection_and_no_more(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handle = PahoClient._handle_connack
    faults = [RuntimeError("OrderedDict mutated during iteration")]

    def fails_once(self: PahoClient) -> Any:
        if faults:
            raise faults.pop()
        return handle(self)

    monkeypatch.setattr(PahoClient, "_handle_connack", fails_once)
    with client(broker.port) as made:
        wait_until(made.is_connected, "the connection")
        assert len(broker.came) == 2
    assert "the connection's thread failed" in caplog.text


def test_messages_may_be_forgotten_while_paho_looks_through_them(broker: Broker) -> None:
    with client(broker.port) as made:
        wait_until(made.is_connected, "the connection")
        numbers = [made.publish("t", b"x", 1).mid for _ in range(4)]
        for _ in made._out_messages.values():
            made.forget(numbers)
        assert made.unacknowledged() == {}
