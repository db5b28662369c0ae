"""A sensors' broker that means harm, and the gateway as a process: it stays small, answers, and ends in time."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.ports import free_port
from edgert.mqtt.packets.properties import encode_varint
from tests.integration.rig import Gateway
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

CONNACK = b"\x20\x03\0\0\0"
PIECE = 1 << 16
MOST_MB = 64
"""That the gateway may grow by."""


class HostileBroker:
    """Accepts a connection and then sends, without end and without reading."""

    def __init__(self, sends: bytes) -> None:
        self._sends = sends
        self.sent = self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                self.connections += 1
                threading.Thread(target=self._attack, args=(connection,), daemon=True).start()

    def _attack(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.recv(4_096)
            connection.sendall(CONNACK)
            while True:
                for at in range(0, len(self._sends), PIECE):
                    connection.sendall(memoryview(self._sends)[at : at + PIECE])
                    self.sent += PIECE

    def close(self) -> None:
        self._listener.close()
        for connection in self._open:
            connection.close()


def pubrels(identifiers: range) -> bytes:
    return b"".join(b"\x62\x02" + number.to_bytes(2, "big") for number in identifiers)


def publishes(topics: range) -> bytes:
    """Of QoS 1, under few identifiers; none of them is for any flow."""
    packets = []
    for n in topics:
        topic = b"x/%06d" % n
        packets.append(
            b"\x32" + bytes([2 + len(topic) + 3]) + bytes([0, len(topic)]) + topic + bytes([0, 1 + n % 200, 0])
        )
    return b"".join(packets)


def publish_5(topic: bytes, properties: bytes) -> bytes:
    """Of QoS 0 and version 5, without a payload."""
    body = len(topic).to_bytes(2, "big") + topic + encode_varint(len(properties)) + properties
    return b"\x30" + encode_varint(len(body)) + body


def sets_of_identifiers() -> bytes:
    """Each message by other subscriptions than all before it."""
    first = (b"".join(b"\x0b" + encode_varint(128 + n * 500 + k) for k in range(500)) for n in range(4_000))
    return b"".join(publish_5(b"x/y", identifiers) for identifiers in first)


def long_topics() -> bytes:
    return b"".join(publish_5(b"x/%060000d" % n, b"") for n in range(1_200))


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[Callable[[int], Gateway]]:
    made: list[Gateway] = []

    def make(port: int) -> Gateway:
        made.append(Gateway(tmp_path, "g1", port, free_port(), {"central": {"enabled": False}}))
        return made[-1]

    yield make
    for gateway in made:
        if gateway.running:
            gateway.kill()


@pytest.mark.parametrize(
    "sends",
    [
        lambda: pubrels(range(1, 65_536)),
        lambda: pubrels(range(1, 2)) * 60_000,
        lambda: publishes(range(20_000)),
        lambda: b"\xd0\0" * 100_000,
        sets_of_identifiers,
        long_topics,
    ],
    ids=["pubrels", "one pubrel", "publishes", "pingresps", "sets of identifiers", "long topics"],
)
def test_a_broker_that_sends_without_end_and_never_reads(
    gateways: Callable[[int], Gateway], sends: Callable[[], bytes]
) -> None:
    broker = HostileBroker(attack := sends())
    gateway = gateways(broker.port)
    gateway.start()
    gateway.wait(lambda status: status["ingest"]["connected"], "the connection")  # it answers to no subscription
    assert gateway.process is not None
    process = psutil.Process(gateway.process.pid)
    before = process.memory_info().rss
    wait_until(lambda: broker.sent > len(attack), "the attack", 20.0, lambda: broker.sent)
    costs, until = [], time.monotonic() + 6.0
    while time.monotonic() < until:
        used_s = gateway.cpu_s
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{gateway.port}/healthz", timeout=60).read()
        costs.append(gateway.cpu_s - used_s)  # not the time, which a busy machine makes longer
        time.sleep(0.1)
    grown = (process.memory_info().rss - before) >> 20
    begun = time.monotonic()
    gateway.terminate()
    ended_s = time.monotonic() - begun
    broker.close()
    slowest = sorted(costs)[-2:][0]  # but one: within it this process may have stood still, while the gateway works on
    print(f"{broker.sent >> 20} MB sent, {grown} MB grown, health for {slowest:.2f} s of CPU, end in {ended_s:.1f} s")
    assert grown < MOST_MB
    assert slowest < 3.0
    assert ended_s < 40.0


def test_a_broker_that_hangs_up_at_once_makes_no_noise(gateways: Callable[[int], Gateway]) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    gateway = gateways(listener.getsockname()[1])
    gateway.start()
    for _ in range(4):
        connection, _ = listener.accept()
        connection.recv(4_096)
        connection.sendall(CONNACK)
        connection.close()
    wait_until(lambda: "connection lost" in gateway.text(), "what the gateway says of it")
    listener.close()
    assert "a step of the connection failed" not in gateway.text()
    assert "Traceback" not in gateway.text()
