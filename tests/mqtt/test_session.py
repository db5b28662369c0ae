"""A session's connections with a broker played by hand: bytes and times in, events and bytes out."""

from __future__ import annotations

import pytest

from edgert.core.errors import ProtocolError
from edgert.mqtt.packets import encode
from edgert.mqtt.packets.packets import V5, V311
from edgert.mqtt.packets.reasons import sentence
from edgert.mqtt.session.events import (
    Closed,
    Connected,
    Messages,
    Refused,
)
from edgert.mqtt.session.options import SessionOptions
from edgert.mqtt.session.session import Session
from edgert.mqtt.session.states import TRANSITIONS, SessionInput, SessionState
from edgert.mqtt.session.versions import PROBE_TIMEOUT_S, REMEMBER_S
from tests.mqtt.sessions import ACCEPT_5, ACCEPT_5_SESSION, ACCEPT_311, connected, publish

# -- connecting


def test_connect_asks_for_a_persistent_session_and_the_whole_receive_window() -> None:
    session = Session(SessionOptions("id", protocol="5", user_properties=(("a", "b"),)))
    assert session.connect(0.0) == encode.connect(
        V5, "id", clean=False, keep_alive_s=30,
        properties={
            "session_expiry_interval": 0xFFFF_FFFF, "receive_maximum": 65_535, "user_property": [("a", "b")],
        },
    )  # fmt: skip


@pytest.mark.parametrize(("expiry_s", "clean"), [(0xFFFF_FFFF, False), (0, True)])
def test_three_one_one_says_clean_session_only_if_nothing_is_to_be_kept(expiry_s: int, clean: bool) -> None:
    session = Session(SessionOptions("id", protocol="3.1.1", session_expiry_s=expiry_s))
    assert session.connect(0.0) == encode.connect(V311, "id", clean=clean, keep_alive_s=30)


def test_connected_tells_what_the_broker_said() -> None:
    session = Session(SessionOptions("", protocol="5", clean_start=True))
    session.connect(0.0)
    section = b"\x21\x00\x14\x12\x00\x03abc"
    (event,) = session.receive_untrusted(bytes((0x20, 3 + len(section), 0, 0, len(section))) + section, 0.0)
    assert isinstance(event, Connected)
    assert (event.session_present, event.protocol, event.connection) == (False, "5", 1)
    assert (event.client_id, event.server_receive_maximum) == ("abc", 20)


@pytest.mark.parametrize("answer", [b"\x20\x02\x00\x01", b"\x20\x03\x00\x84\x00"])
def test_auto_tries_three_one_one_when_five_is_refused_and_says_so(answer: bytes) -> None:
    session = Session(SessionOptions("id"))
    session.connect(0.0)
    (refused,) = session.receive_untrusted(answer, 0.0)
    assert isinstance(refused, Refused)
    assert refused.retry
    assert "unsupported protocol version" in refused.text
    assert session.versions.protocol == "3.1.1"
    assert session.connect(1.0) == encode.connect(V311, "id", clean=False, keep_alive_s=30)
    (event,) = session.receive_untrusted(ACCEPT_311, 1.0)
    assert isinstance(event, Connected)
    assert event.protocol == "3.1.1"


def test_auto_tries_three_one_one_once_when_the_broker_closes_or_hangs_before_connack() -> None:
    session = Session(SessionOptions("id"))
    session.connect(0.0)
    assert session.lost("closed") == [Closed("closed before CONNACK", retry=True)]
    session.connect(0.0)
    assert session.versions.protocol == "3.1.1"
    assert session.lost("closed") == [Closed("closed before CONNACK")]
    session.connect(0.0)
    assert session.versions.protocol == "5"
    assert session.tick(2.9) == []
    assert session.tick(3.0) == [Closed("no CONNACK within 3 s", retry=True)]


def test_auto_stays_with_five_once_the_broker_has_spoken_it() -> None:
    session = connected(protocol="auto")
    session.lost("gone")
    session.connect(1.0)
    assert session.lost("closed") == [Closed("closed before CONNACK")]
    session.connect(2.0)
    assert session.tick(5.5) == []
    assert session.tick(12.0) == [Closed("no CONNACK within 10 s")]
    assert session.versions.protocol == "5"


def test_auto_stays_with_five_where_the_broker_has_spoken_it_to_an_earlier_process_unless_it_says_no() -> None:
    session = Session(SessionOptions("id"))
    session.versions.knows_5()
    session.connect(0.0)
    assert session.tick(9.9) == []
    assert session.lost("closed") == [Closed("closed before CONNACK")]
    session.connect(10.0)
    (refused,) = session.receive_untrusted(b"\x20\x03\x00\x84\x00", 10.0)
    assert isinstance(refused, Refused)
    assert (refused.retry, session.versions.protocol) == (True, "3.1.1")


@pytest.mark.parametrize(
    ("first", "lost_at", "then"),
    [("closed", 10.0, "5"), ("refused", 10.0, "3.1.1"), ("refused", REMEMBER_S, "5"), ("silent", 10.0, "3.1.1")],
)
def test_auto_tries_five_again_after_three_one_one_unless_the_broker_showed_lately_that_it_knows_it_not(
    first: str, lost_at: float, then: str
) -> None:
    session = Session(SessionOptions("id"))
    session.connect(0.0)
    if first == "closed":
        session.lost("closed")
    elif first == "refused":
        session.receive_untrusted(b"\x20\x02\x00\x01", 0.0)
    else:
        session.tick(PROBE_TIMEOUT_S)
    assert session.versions.protocol == "3.1.1"
    session.connect(PROBE_TIMEOUT_S)
    session.receive_untrusted(ACCEPT_311, PROBE_TIMEOUT_S)
    session.tick(lost_at)
    session.lost("gone")
    assert session.versions.protocol == then


def test_refusal_is_told_in_words() -> None:
    session = Session(SessionOptions("id", protocol="5"))
    session.connect(0.0)
    assert session.receive_untrusted(b"\x20\x08\x00\x87\x05\x1f\x00\x02no", 0.0) == [
        Refused(0x87, f"the broker refused the connection: {sentence(0x87, 'id', 'no')}"),
    ]
    assert session.state is SessionState.IDLE


def test_session_after_a_clean_start_breaks_the_protocol() -> None:
    session = Session(SessionOptions("id", protocol="5", clean_start=True))
    session.connect(0.0)
    (event,) = session.receive_untrusted(ACCEPT_5_SESSION, 0.0)
    assert isinstance(event, Closed)
    assert "no session after a clean start" in event.text


# -- the table


def test_every_transition_not_in_the_table_is_refused() -> None:
    for state in SessionState:
        for what in SessionInput:
            session = Session(SessionOptions("id"))
            session.state = state
            if (state, what) in TRANSITIONS:
                session._move(what)
                assert session.state is TRANSITIONS[state, what]
            else:
                with pytest.raises(ProtocolError, match=f"expected no '{what.value}' while {state.value}"):
                    session._move(what)


@pytest.mark.parametrize("data", [publish(), b"\xd0\x00", b"\x40\x02\x00\x01", b"\x90\x04\x00\x01\x00\x00"])
def test_anything_before_connack_ends_the_connection(data: bytes) -> None:
    session = Session(SessionOptions("id", protocol="5"))
    session.connect(0.0)
    (event,) = session.receive_untrusted(data, 0.0)
    assert isinstance(event, Closed)
    assert "while connecting" in event.text
    assert session.receive_untrusted(ACCEPT_5, 0.0) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ACCEPT_5, "expected no 'CONNACK, accepted' while connected"),
        (b"\x50\x02\x00\x01", "expected no PUBREC"),
        (b"\x70\x02\x00\x01", "expected no PUBCOMP"),
        (b"\x90\x04\x00\x09\x00\x00", "an answer to a request of ours, got one to packet 9"),
        (b"\xb0\x04\x00\x09\x00\x00", "an answer to a request of ours, got one to packet 9"),
        (b"\x36\x00", "QoS 0, 1 or 2, got 3"),
    ],
)
def test_broker_that_breaks_the_rules_is_left_after_its_good_packets_were_taken(data: bytes, message: str) -> None:
    session = connected()
    messages, closed = session.receive_untrusted(publish() + data, 1.0)
    assert isinstance(messages, Messages)
    assert isinstance(closed, Closed)
    assert message in closed.text
    assert session.take_output() == b"\xe0\x02\x82\x00"
    assert session.state is SessionState.IDLE


def test_disconnect_of_the_broker_is_told_with_its_reason() -> None:
    session = connected()
    assert session.receive_untrusted(b"\xe0\x01\x8e", 1.0) == [
        Closed(
            "the broker disconnected us: session taken over (0x8E); another client uses the id id: two gateways with "
            "one identity?",
            0x8E,
        )
    ]


def test_our_good_bye_is_sent_once() -> None:
    session = connected()
    session.disconnect()
    session.disconnect()
    assert session.take_output() == b"\xe0\x00"
    assert session.lost("closed") == []


# -- keep-alive


def test_ping_is_sent_when_either_side_was_silent_and_its_answer_awaited() -> None:
    session = connected(keep_alive_s=40)
    assert session.tick(29.0) == []
    assert session.take_output() == b""
    session.tick(30.0)
    assert session.take_output(30.0) == encode.PINGREQ
    assert session.tick(39.0) == []
    assert session.tick(40.0) == [Closed("no answer to a ping within 10 s")]


def test_busy_sender_still_pings_a_broker_that_says_nothing() -> None:
    session = connected(keep_alive_s=40)
    for now in range(1, 31):
        session.publish("t", b"")
        session.take_output(float(now))
        session.tick(float(now))
    assert session.take_output() == encode.PINGREQ


def test_any_byte_received_shows_that_the_broker_lives() -> None:
    session = connected(keep_alive_s=40)
    session.tick(30.0)
    for now in range(31, 100, 5):
        session.receive_untrusted(publish(qos=0), float(now))
        assert session.tick(float(now)) == []
    session.receive_untrusted(b"\xd0\x00", 100.0)
    session.take_output(100.0)
    assert session.tick(129.0) == []
    assert session.take_output() == b""


def test_silence_proves_nothing_while_the_application_does_not_read() -> None:
    session = connected(keep_alive_s=40)
    for now in range(30, 300):
        assert session.tick(float(now), reading=False) == []
    session.tick(300.0)
    assert session.tick(310.0) == [Closed("no answer to a ping within 10 s")]


def test_keep_alive_of_the_broker_wins_and_zero_means_none() -> None:
    session = connected(b"\x20\x06\x00\x00\x03\x13\x00\x04", keep_alive_s=40)
    session.tick(3.0)
    assert session.take_output() == encode.PINGREQ
    session = connected(keep_alive_s=0)
    session.tick(1e9)
    assert session.take_output() == b""
