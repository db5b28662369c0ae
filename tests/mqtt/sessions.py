"""A broker played by hand: what tests of the session share."""

from __future__ import annotations

from typing import Any

from edgert.mqtt.hang_ups.suspicion import STABLE_S
from edgert.mqtt.packets import encode
from edgert.mqtt.packets.decode import Decoder
from edgert.mqtt.packets.packets import V5
from edgert.mqtt.session.events import Connected, MqttEvent
from edgert.mqtt.session.options import SessionOptions
from edgert.mqtt.session.session import Session

ACCEPT_5 = b"\x20\x03\x00\x00\x00"
ACCEPT_5_SESSION = b"\x20\x03\x01\x00\x00"
ACCEPT_5_ONE = b"\x20\x06\x00\x00\x03\x21\x00\x01"
"""With Receive Maximum 1."""
ACCEPT_311 = b"\x20\x02\x00\x00"


def connected(answer: bytes = ACCEPT_5, **options: Any) -> Session:
    session = Session(SessionOptions("id", **({"protocol": "3.1.1" if answer == ACCEPT_311 else "5"} | options)))
    session.connect(0.0)
    (event,) = session.receive_untrusted(answer, 0.0)
    assert isinstance(event, Connected)
    return session


def reconnect(session: Session, answer: bytes = ACCEPT_5_SESSION, now: float = 100.0) -> list[MqttEvent]:
    """After a connection that was stable."""
    session.tick(now + STABLE_S, reading=False)
    session.lost("gone")
    session.connect(now)
    return session.receive_untrusted(answer, now)


def publish(payload: bytes = b"x", qos: int = 1, packet_id: int = 1, dup: bool = False, level: int = V5) -> bytes:
    return encode.publish(level, "t", payload, qos=qos, packet_id=packet_id if qos else 0, dup=dup)


def sent(session: Session, level: int = V5) -> list[tuple[int, bool, bytes]]:
    """(packet id, DUP, payload) of the publishes in the output."""
    out: list[Any] = []
    Decoder(level).feed_untrusted(session.take_output(), out)
    return [(m.packet_id, m.dup, m.payload) for run in out for m in run]
