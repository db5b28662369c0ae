"""Messages and subscriptions of a session, with a broker played by hand."""

from __future__ import annotations

import pytest

from edgert.core.errors import ProtocolError
from edgert.mqtt.hang_ups.rules import HUNG_UP
from edgert.mqtt.hang_ups.suspicion import STABLE_S
from edgert.mqtt.packets import encode
from edgert.mqtt.packets.packets import V5, V311, Oversized, Publish, Subscription, Will
from edgert.mqtt.session.events import (
    Closed,
    Messages,
    Published,
    Released,
    Subscribed,
    Unsubscribed,
)
from edgert.mqtt.session.options import SessionOptions
from edgert.mqtt.session.session import Session
from tests.mqtt.sessions import ACCEPT_5, ACCEPT_311, connected, publish, reconnect, sent

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
