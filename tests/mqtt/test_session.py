"""The session with a broker played by hand: bytes and times in, events and bytes out."""

from __future__ import annotations

import pytest

from edgert.core.errors import ProtocolError
from edgert.mqtt.hang_ups.rules import HUNG_UP
from edgert.mqtt.hang_ups.suspicion import STABLE_S
from edgert.mqtt.packets import encode
from edgert.mqtt.packets.packets import V5, V311, Oversized, Publish, Subscription, Will
from edgert.mqtt.packets.reasons import sentence
from edgert.mqtt.session.events import (
    Closed,
    Connected,
    Messages,
    Published,
    Refused,
    Released,
    Subscribed,
    Unsubscribed,
)
from edgert.mqtt.session.options import SessionOptions
from edgert.mqtt.session.session import Session
from edgert.mqtt.session.states import TRANSITIONS, Input, State
from edgert.mqtt.session.versions import PROBE_TIMEOUT_S, REMEMBER_S
from tests.mqtt.sessions import ACCEPT_5, ACCEPT_5_SESSION, ACCEPT_311, connected, publish, reconnect, sent

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
    assert session.protocol == "3.1.1"
    assert session.connect(1.0) == encode.connect(V311, "id", clean=False, keep_alive_s=30)
    (event,) = session.receive_untrusted(ACCEPT_311, 1.0)
    assert isinstance(event, Connected)
    assert event.protocol == "3.1.1"


def test_auto_tries_three_one_one_once_when_the_broker_closes_or_hangs_before_connack() -> None:
    session = Session(SessionOptions("id"))
    session.connect(0.0)
    assert session.lost("closed") == [Closed("closed before CONNACK", retry=True)]
    session.connect(0.0)
    assert session.protocol == "3.1.1"
    assert session.lost("closed") == [Closed("closed before CONNACK")]
    session.connect(0.0)
    assert session.protocol == "5"
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
    assert session.protocol == "5"


def test_auto_stays_with_five_where_the_broker_has_spoken_it_to_an_earlier_process_unless_it_says_no() -> None:
    session = Session(SessionOptions("id"))
    session.versions.knows_5()
    session.connect(0.0)
    assert session.tick(9.9) == []
    assert session.lost("closed") == [Closed("closed before CONNACK")]
    session.connect(10.0)
    (refused,) = session.receive_untrusted(b"\x20\x03\x00\x84\x00", 10.0)
    assert isinstance(refused, Refused)
    assert (refused.retry, session.protocol) == (True, "3.1.1")


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
    assert session.protocol == "3.1.1"
    session.connect(PROBE_TIMEOUT_S)
    session.receive_untrusted(ACCEPT_311, PROBE_TIMEOUT_S)
    session.tick(lost_at)
    session.lost("gone")
    assert session.protocol == then


def test_refusal_is_told_in_words() -> None:
    session = Session(SessionOptions("id", protocol="5"))
    session.connect(0.0)
    assert session.receive_untrusted(b"\x20\x08\x00\x87\x05\x1f\x00\x02no", 0.0) == [
        Refused(0x87, f"the broker refused the connection: {sentence(0x87, 'id', 'no')}"),
    ]
    assert session.state is State.IDLE


def test_session_after_a_clean_start_breaks_the_protocol() -> None:
    session = Session(SessionOptions("id", protocol="5", clean_start=True))
    session.connect(0.0)
    (event,) = session.receive_untrusted(ACCEPT_5_SESSION, 0.0)
    assert isinstance(event, Closed)
    assert "no session after a clean start" in event.text


# -- the table


def test_every_transition_not_in_the_table_is_refused() -> None:
    for state in State:
        for what in Input:
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
    assert session.state is State.IDLE


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


# -- messages in


def test_messages_of_a_read_are_one_event_and_nothing_is_acknowledged_unasked() -> None:
    session = connected()
    events = session.receive_untrusted(publish(b"a") + publish(b"b", packet_id=2) + publish(b"c", qos=0), 1.0)
    assert events == [Messages([Publish("t", b"a", 1, packet_id=1), Publish("t", b"b", 1, packet_id=2),
                                Publish("t", b"c")])]  # fmt: skip
    assert session.take_output() == b""


def test_acknowledgements_go_out_in_the_order_given() -> None:
    session = connected()
    assert session.acknowledge([(1, 1), (0, 0), (2, 1), (3, 2), (4, 1)])
    assert session.take_output() == b"\x40\x02\0\x01\x40\x02\0\x02\x50\x02\0\x03\x40\x02\0\x04"


def test_acknowledgements_of_another_connection_are_not_sent() -> None:
    session = connected()
    reconnect(session)
    assert session.acknowledge([(1, 1)], connection=1) is False
    assert session.take_output() == b""
    assert session.acknowledge([(1, 1)], connection=2) is True
    assert session.take_output() == b"\x40\x02\0\x01"
    session.lost("gone")
    assert session.acknowledge([(1, 1)], connection=2) is False


def test_qos_2_is_completed_when_the_application_says_so() -> None:
    session = connected()
    session.receive_untrusted(publish(qos=2, packet_id=5), 1.0)
    session.acknowledge([(5, 2)])
    assert session.take_output() == b"\x50\x02\x00\x05"
    assert session.receive_untrusted(b"\x62\x02\x00\x05", 2.0) == [Released(5)]
    assert session.take_output() == b""
    assert session.complete([5], connection=1)
    assert session.take_output() == b"\x70\x02\x00\x05"


def test_completions_die_with_their_connection() -> None:
    session = connected()
    reconnect(session)
    assert session.complete([5], connection=1) is False
    assert session.take_output() == b""
    session.lost("gone")
    assert session.complete([5], connection=2) is False


@pytest.mark.parametrize("answer", [ACCEPT_5, ACCEPT_311])
def test_pubrel_of_a_message_from_before_a_restart_is_told(answer: bytes) -> None:
    session = connected(answer)
    assert session.receive_untrusted(b"\x62\x02\x00\x05", 2.0) == [Released(5)]


def test_what_comes_again_is_told_whatever_was_answered() -> None:
    """Whether it is a redelivery the application knows, by what the message says."""
    session = connected(max_packet_bytes=1000)
    session.receive_untrusted(publish(qos=2, packet_id=5), 1.0)
    session.acknowledge([(5, 2)])
    reconnect(session)
    again = publish(qos=2, packet_id=5, dup=True) + publish(bytes(2000), qos=2, packet_id=5, dup=True)
    messages, oversized = session.receive_untrusted(again, 2.0)
    assert messages == Messages([Publish("t", b"x", 2, dup=True, packet_id=5)])
    assert isinstance(oversized, Oversized)
    session.acknowledge([(5, 2), (5, 2)])
    assert session.take_output() == b"\x50\x02\x00\x05" * 2


def test_answers_keep_their_order_over_both_qualities_of_service() -> None:
    session = connected()
    session.acknowledge([(1, 1), (9, 0), (2, 1), (5, 2), (3, 1)])
    assert session.take_output() == b"\x40\x02\0\x01\x40\x02\0\x02\x50\x02\0\x05\x40\x02\0\x03"


def test_oversized_message_is_an_event_between_the_others() -> None:
    session = connected(max_packet_bytes=1000)
    large = publish(bytes(2000), packet_id=2)
    events = session.receive_untrusted(publish() + large + publish(packet_id=3), 1.0)
    assert [type(event) for event in events] == [Messages, Oversized, Messages]
    assert events[1] == Oversized("t", 1, 2, len(large))


# -- subscribing


def test_subscriptions_with_their_own_identifiers_go_in_packets_of_their_own_and_are_answered_once() -> None:
    session = connected()
    token = session.subscribe([Subscription("a", 1, 1), Subscription("b", 2, 2), Subscription("c", 0, 1)])
    first, second = Subscription("a", 1, 1), Subscription("c", 0, 1)
    assert session.take_output() == encode.subscribe(V5, 0xFFFF, [first, second]) + encode.subscribe(
        V5, 0xFFFE, [Subscription("b", 2, 2)]
    )
    assert session.receive_untrusted(b"\x90\x04\xff\xfe\x00\x87", 1.0) == []
    (event,) = session.receive_untrusted(b"\x90\x05\xff\xff\x00\x01\x00", 1.0)
    assert event == Subscribed(token, (("a", 1), ("b", 0x87), ("c", 0)))
    assert isinstance(event, Subscribed)
    assert event.refused == (("b", 0x87),)


def test_three_one_one_subscribes_in_one_packet() -> None:
    session = connected(ACCEPT_311)
    session.subscribe([Subscription("a", 1, 1), Subscription("b", 2, 2)])
    assert session.take_output() == b"\x82\x0a\xff\xff\x00\x01a\x01\x00\x01b\x02"


def test_unsubscribe_is_confirmed() -> None:
    session = connected(ACCEPT_311)
    token = session.unsubscribe(["a", "b"])
    assert session.receive_untrusted(b"\xb0\x02\xff\xff", 1.0) == [Unsubscribed(token, ("a", "b"))]


def test_wrong_number_of_results_ends_the_connection() -> None:
    session = connected()
    session.subscribe([Subscription("a"), Subscription("b")])
    (event,) = session.receive_untrusted(b"\x90\x04\xff\xff\x00\x00", 1.0)
    assert isinstance(event, Closed)
    assert "expected 2 results, got 1" in event.text


def test_what_comes_behind_our_good_bye_is_told_and_nothing_else() -> None:
    session = connected()
    assert session.disconnect()
    publish = b"\x32\x06\x00\x01t\x00\x07\x00"
    (event,) = session.receive_untrusted(b"\xd0\x00" + publish[:3], 1.0) + session.receive_untrusted(publish[3:], 1.0)
    assert isinstance(event, Messages)
    assert [m.packet_id for m in event.messages if isinstance(m, Publish)] == [7]
    session.acknowledge([(7, 1)])
    session.take_output()
    assert session.receive_untrusted(b"\xff" + publish, 1.0) == []
    assert session.receive_untrusted(publish, 1.0) == [], "nobody knows where a packet begins"
    assert not session.has_output


def test_bad_filters_and_a_missing_connection_are_errors() -> None:
    session = connected()
    with pytest.raises(ValueError, match="# only as the whole last level"):
        session.subscribe([Subscription("a/#/b")])
    with pytest.raises(ValueError, match="at least one filter"):
        session.subscribe([])
    session.lost("gone")
    with pytest.raises(ProtocolError, match="expected a connection"):
        session.subscribe([Subscription("a")])


def test_options_that_make_no_sense_are_refused() -> None:
    for options, message in (
        ({"protocol": "4"}, "protocol auto, 5 or 3.1.1, got 4"),
        ({"password": b"p"}, "a user name with the password"),
        ({"receive_maximum": 0}, "1..65535, got 0"),
        ({"keep_alive_s": 70_000}, "0..65535 s, got 70000"),
        ({"client_id": ""}, "a client id for a session that the broker keeps"),
        ({"will": Will("t/#", b"")}, "a topic without wildcards, got 't/#'"),
    ):
        with pytest.raises(ValueError, match=message.replace(".", r"\.")):
            Session(SessionOptions(**({"client_id": "id"} | options)))
    assert "secret" not in repr(SessionOptions("id", username="u", password=b"secret", will=Will("t", b"")))


def test_a_message_at_which_the_broker_hangs_up_is_given_up_and_stops_no_other() -> None:
    """As in 3.1.1, where a broker does not say how large a message may be."""
    session, connections = Session(SessionOptions("id", protocol="3.1.1")), 0
    taken, given_up = list[bytes](), list[tuple[int, int]]()
    ids = {session.publish("t", payload, qos=1): payload for payload in (b"a", bytes(20_000), b"b", b"c")}
    large = next(n for n, payload in ids.items() if len(payload) > 1)
    while session.outgoing:
        connections += 1
        assert connections < 10, "it goes on for ever"
        session.connect(0.0)
        events = session.receive_untrusted(b"\x20\x02\x01\x00", 0.0)
        while (told := sent(session, V311)) and all(len(payload) == 1 for _, _, payload in told):
            for packet_id, _, payload in told:
                taken.append(payload)
                events += session.receive_untrusted(b"\x40\x02" + packet_id.to_bytes(2, "big"), 0.2)
        if session.outgoing:
            events += session.lost("closed by the broker")
        given_up += [(e.packet_id, e.reason) for e in events if isinstance(e, Published) and e.reason]
    assert given_up == [(large, HUNG_UP)]
    assert taken == [b"a", b"b", b"c"]
    assert connections == 4


def test_messages_in_flight_on_stable_connections_are_sent_again_however_often_these_end() -> None:
    """Where the broker has answered to others."""
    session = Session(SessionOptions("id", protocol="3.1.1"))
    session.publish("t", b"a", qos=1)
    for _ in range(5):
        session.connect(0.0)
        session.receive_untrusted(b"\x20\x02\x01\x00", 0.0)
        other = session.publish("u", b"b", qos=1)
        assert session.take_output(0.1)
        session.receive_untrusted(b"\x40\x02" + other.to_bytes(2, "big"), 0.2)
        session.tick(STABLE_S)
        assert not [e for e in session.lost("closed") if isinstance(e, Published)]
    assert len(session.outgoing) == 1
