"""Messages of ours: the window, what waits for it, and what is sent again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.mqtt.hang_ups.suspicion import STABLE_S
from edgert.mqtt.session.events import Published
from edgert.mqtt.session.options import SessionOptions
from edgert.mqtt.session.outgoing import PublishRefused
from edgert.mqtt.session.session import Session
from tests.mqtt.sessions import ACCEPT_5, ACCEPT_5_SESSION, connected, reconnect, sent

IDS = [0xFFFF, 0xFFFE, 0xFFFD, 0xFFFC, 0xFFFB]
"""Packet identifiers of the first messages: brokers count from 1, so ours come from the other end."""


def test_window_of_the_broker_bounds_what_is_in_flight() -> None:
    session = connected(b"\x20\x06\x00\x00\x03\x21\x00\x02")
    for i in range(5):
        assert session.publish("t", b"%d" % i, qos=1) == IDS[i]
    assert sent(session) == [(IDS[0], False, b"0"), (IDS[1], False, b"1")]
    assert session.receive_untrusted(b"\x40\x02\xff\xff", 1.0) == [Published(IDS[0])]
    assert sent(session) == [(IDS[2], False, b"2")]
    assert len(session.outgoing) == 4


def test_unacknowledged_messages_are_sent_again_with_dup_before_what_waited() -> None:
    session = connected(b"\x20\x06\x00\x00\x03\x21\x00\x02")
    for i in range(3):
        session.publish("t", b"%d" % i, qos=1)
    session.take_output()
    session.hang_ups.answers = True  # as to a subscription
    session.tick(STABLE_S, reading=False)
    session.lost("gone")
    assert session.publish("t", b"3", qos=1) == IDS[3]
    session.connect(1.0)
    session.receive_untrusted(ACCEPT_5_SESSION, 1.0)
    told = zip(IDS[:4], (True, True, False, False), (b"0", b"1", b"2", b"3"), strict=True)
    assert sent(session) == list(told)


def test_broker_without_a_session_gets_them_as_new() -> None:
    session = connected()
    session.publish("t", b"0", qos=1)
    reconnect(session, ACCEPT_5)
    assert sent(session) == [(IDS[0], False, b"0")]


def test_refusal_of_a_message_is_told() -> None:
    session = connected()
    session.publish("t", b"", qos=1)
    assert session.receive_untrusted(b"\x40\x03\xff\xff\x87", 1.0) == [Published(IDS[0], 0x87)]
    assert session.receive_untrusted(b"\x40\x02\xff\xff", 1.0) == []


def test_limits_of_the_broker_are_kept() -> None:
    limits = b"\x24\x00\x25\x00\x27\x00\x00\x00\x20"  # QoS 0 only, nothing retained, 32 bytes
    session = connected(bytes((0x20, 3 + len(limits), 0, 0, len(limits))) + limits)
    with pytest.raises(PublishRefused, match="QoS not supported"):
        session.publish("t", b"", qos=1)
    with pytest.raises(PublishRefused, match="retain not supported"):
        session.publish("t", b"", retain=True)
    with pytest.raises(PublishRefused, match="packet too large"):
        session.publish("t", bytes(40))
    assert session.take_output() == b""


def test_message_that_waited_and_that_the_broker_would_not_take_is_given_back() -> None:
    session = Session(SessionOptions("id", protocol="5"))
    session.publish("t", bytes(100), qos=1)
    session.publish("t", b"", qos=1)
    session.connect(0.0)
    events = session.receive_untrusted(b"\x20\x08\x00\x00\x05\x27\x00\x00\x00\x20", 0.0)
    assert events[1:] == [Published(IDS[0], 0x95)]
    assert sent(session) == [(IDS[1], False, b"")]


def test_what_waits_is_bounded() -> None:
    session = Session(SessionOptions("id", max_outgoing_messages=2, max_outgoing_bytes=100))
    with pytest.raises(PublishRefused, match="expected a connection"):
        session.publish("t", b"")
    with pytest.raises(PublishRefused, match="100 bytes to wait for the broker, got 1 and 101"):
        session.publish("t", bytes(101), qos=1)
    with pytest.raises(PublishRefused, match="100 bytes to wait for the broker, got 1 and "):
        session.publish("t" * 101, b"", qos=1)
    session.publish("t", b"", qos=1)
    session.publish("t", b"", qos=1)
    with pytest.raises(PublishRefused, match="at most 2 messages"):
        session.publish("t", b"", qos=1)


def test_nothing_that_cannot_be_encoded_is_kept() -> None:
    session = Session(SessionOptions("id"))
    with pytest.raises(ValueError, match="without wildcards"):
        session.publish("t/+", b"", qos=1)
    with pytest.raises(ValueError, match="a property of publish"):
        session.publish("t", b"", qos=1, properties={"receive_maximum": 1})
    assert len(session.outgoing) == 0


@given(st.lists(st.sampled_from(["publish", "ack", "lose", "forget"]), max_size=60))
def test_every_qos_1_message_is_in_flight_or_acknowledged_once_whatever_happens(steps: list[str]) -> None:
    """A broker with a window of 3 that acknowledges its oldest; connections come and go."""
    accept = b"\x20\x06\x00\x00\x03\x21\x00\x03"
    session = connected(accept)
    published, done, flying = 0, list[int](), list[tuple[int, bytes]]()
    for step in steps:
        if step == "publish":
            session.publish("t", b"%d" % published, qos=1)
            published += 1
        elif step == "ack" and flying:
            packet_id, payload = flying.pop(0)
            assert session.receive_untrusted(b"\x40\x02" + packet_id.to_bytes(2, "big"), 1.0) == [Published(packet_id)]
            done.append(int(payload))
        elif step in ("lose", "forget"):
            present = step == "lose"
            session.hang_ups.answers = True  # as to a subscription
            reconnect(session, accept[:2] + bytes((present,)) + accept[3:])
            flying.clear()
        flying += [(packet_id, payload) for packet_id, _, payload in sent(session)]
        assert len(flying) <= 3
        assert len({packet_id for packet_id, _ in flying}) == len(flying)
    assert done == list(range(len(done)))
    assert [int(payload) for _, payload in flying] == list(range(len(done), len(done) + len(flying)))
    assert len(session.outgoing) == published - len(done)
