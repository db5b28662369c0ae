"""Bounds of what a sensor without a password leaves in a board's broker, by the settings of the image."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers import Broker

ETC = Path(__file__).parents[2] / "images/files/etc/mosquitto"
MIB = 1 << 20


def packet(head: int, body: bytes) -> bytes:
    length, size = len(body), b""
    while length >= 128:
        size, length = size + bytes([length % 128 | 128]), length // 128
    return bytes([head]) + size + bytes([length]) + body


def text(content: bytes) -> bytes:
    return struct.pack(">H", len(content)) + content


def retained(broker: Broker, number: int, size: int) -> bytes:
    """Returns the broker's answer to a retained message; empty: the broker hung up."""
    with socket.create_connection((broker.host, broker.port), timeout=60) as sensor:
        sensor.sendall(packet(0x10, text(b"MQTT") + b"\4\2\0\x3c" + text(b"sensor%d" % number)))
        assert sensor.recv(4) == b"\x20\2\0\0"
        try:
            sensor.sendall(packet(0x33, text(b"s/%d" % number) + b"\0\1" + bytes(size)))
            return sensor.recv(4)
        except ConnectionError:
            return b""


@pytest.mark.integration
def test_large_and_many_retained_messages_of_a_sensor_are_refused(mosquitto: Callable[..., Broker]) -> None:
    limits = (ETC / "conf.d/limits.conf").read_text(encoding="utf-8")
    broker = mosquitto(settings=limits.replace("memory_limit 268435456", f"memory_limit {4 * MIB}"))
    assert retained(broker, 0, 100_000) == b"\x40\2\0\1"
    assert retained(broker, 1, 2 * MIB) == b""
    assert any(retained(broker, number, MIB - 1000) == b"" for number in range(2, 8))
    assert broker.running


def test_the_broker_of_a_board_writes_no_log_to_the_card() -> None:
    lines = (ETC / "mosquitto.conf").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("log_dest")] == ["log_dest stderr"]
