"""A broker that hangs up at topics and filters, played by hand on a virtual clock."""

from __future__ import annotations

from typing import Any

from edgert.mqtt.packets.decode import Decoder
from edgert.mqtt.packets.packets import V5, Subscription
from edgert.mqtt.session.events import MqttEvent, Published
from edgert.mqtt.session.options import SessionOptions
from edgert.mqtt.session.session import Session
from tests.mqtt.sessions import ACCEPT_5, ACCEPT_5_SESSION, ACCEPT_311


class HangingUp:
    """A broker with a session, on a virtual clock: it takes packets in order and hangs up at forbidden ones."""

    def __init__(self, topics: set[str] = frozenset(), filters: set[str] = frozenset(), level: int = V5) -> None:  # type: ignore[assignment]
        self.session = Session(SessionOptions("id", protocol="5" if level == V5 else "3.1.1"))
        self.topics, self.filters, self.level = topics, filters, level
        self.wanted: list[Subscription] = []
        """Subscribed at each connect, as the gateway does."""
        self.now = 0.0
        self.hang_ups = 0
        self.connected = False
        self.taken: list[bytes] = []
        self.subscribed: set[str] = set()
        self.events: list[MqttEvent] = []

    def run(self, seconds: float) -> None:
        """Reconnects after a second each time."""
        until = self.now + seconds
        while self.now < until:
            if not self.connected:
                self.session.connect(self.now)
                accept = ACCEPT_311 if self.level != V5 else ACCEPT_5_SESSION if self.hang_ups else ACCEPT_5
                self.events += self.session.receive_untrusted(accept, self.now)
                self.connected = True
                if self.wanted:
                    self.session.subscribe(self.wanted)
            self.turn()
            self.now += 1.0
            if self.connected:
                self.events += self.session.tick(self.now)

    def turn(self) -> None:
        while self.connected and self.session.has_output:
            for packet in packets(self.session.take_output(self.now)):
                if not self.takes(packet):
                    self.hang_ups += 1
                    self.connected = False
                    self.events += self.session.lost("closed by the broker")
                    return

    def takes(self, packet: bytes) -> bool:
        kind = packet[0] >> 4
        if kind == 3:
            (run,) = decoded(packet, self.level)
            (message,) = run
            if message.topic in self.topics:
                return False
            self.taken.append(message.payload)
            if message.qos:
                self.answer(b"\x40\x02" + message.packet_id.to_bytes(2, "big"))
        elif kind == 8:
            names = [f for f in ("a/+", "b/+", "c/+") if f.encode() in packet]
            if self.filters.intersection(names):
                return False
            self.subscribed.update(names)
            body = packet[2:4] + (b"\x00" if self.level == V5 else b"") + b"\x01" * len(names)
            self.answer(b"\x90" + bytes([len(body)]) + body)
        elif kind == 12:
            self.answer(b"\xd0\x00")
        return True

    def answer(self, data: bytes) -> None:
        self.events += self.session.receive_untrusted(data, self.now)

    def reasons(self) -> list[int]:
        return [event.reason for event in self.events if isinstance(event, Published) and event.reason]


def packets(data: bytes) -> list[bytes]:
    """Cuts what was written at packets' ends; all of these tests are below 128 bytes."""
    found = []
    while data:
        found.append(data[: 2 + data[1]])
        data = data[2 + data[1] :]
    return found


def decoded(packet: bytes, level: int) -> list[Any]:
    out: list[Any] = []
    Decoder(level).feed_untrusted(packet, out)
    return out
