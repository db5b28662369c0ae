"""A broker that hangs up at topics or filters stops nothing else: it is played by hand, as in the access rules of EMQX,
HiveMQ and AWS IoT."""

from __future__ import annotations

from contextlib import suppress

import pytest

from edgert.mqtt.hang_ups.forbidden import FIRST_S
from edgert.mqtt.hang_ups.rules import HUNG_UP, TOPIC_REFUSED, Found, HangUps
from edgert.mqtt.hang_ups.suspicion import Sent
from edgert.mqtt.packets.packets import V5, Disconnect, Subscription
from edgert.mqtt.packets.reasons import TAKEN_OVER
from edgert.mqtt.session.events import Published, Subscribed
from edgert.mqtt.session.options import SessionOptions
from edgert.mqtt.session.outgoing import PublishRefused
from edgert.mqtt.session.session import Session
from tests.mqtt.hanging_up import HangingUp, decoded
from tests.mqtt.sessions import ACCEPT_5, ACCEPT_5_ONE


def test_a_topic_at_which_the_broker_hangs_up_is_refused_and_the_connection_goes_on() -> None:
    """Forbidden topics at one message a second, beside one that is not."""
    broker, refused = HangingUp(topics={"secret"}), 0
    for n in range(50):
        for topic in ("secret", "open"):
            try:
                broker.session.publish(topic, b"%s %d" % (topic.encode(), n), qos=1)
            except PublishRefused:
                refused += 1
        broker.run(1.0)
    broker.run(5.0)
    assert broker.taken == [b"open %d" % n for n in range(50)]
    assert broker.hang_ups <= 8
    assert broker.reasons().count(HUNG_UP) == 2
    assert refused + broker.reasons().count(TOPIC_REFUSED) == 48
    assert list(broker.session.hang_ups.topics.refused(broker.now)) == ["secret"]


def test_a_refused_topic_is_tried_again_with_one_hang_up_and_taken_when_the_rules_were_mended() -> None:
    broker = HangingUp(topics={"secret"})
    for _ in range(2):
        broker.session.publish("secret", b"x", qos=1)
    broker.run(20.0)
    before = broker.hang_ups
    broker.run(FIRST_S)
    broker.session.publish("secret", b"once more", qos=1)
    broker.run(5.0)
    assert broker.hang_ups == before + 1
    with pytest.raises(PublishRefused, match="at which it hangs up"):
        broker.session.publish("secret", b"x", qos=1)
    broker.topics = set()
    broker.run(2 * FIRST_S)
    broker.session.publish("secret", b"allowed now", qos=1)
    broker.run(5.0)
    assert broker.taken == [b"allowed now"]
    assert not broker.session.hang_ups.topics


@pytest.mark.parametrize("level", [V5, 4])
def test_a_filter_at_which_the_broker_hangs_up_is_left_out_and_the_others_are_subscribed(level: int) -> None:
    """Without identifiers all filters go in one packet."""
    broker = HangingUp(filters={"b/+"}, level=level)
    broker.wanted = [Subscription(f"{name}/+", 1, n + 1 if level == V5 else None) for n, name in enumerate("abc")]
    broker.run(20.0)
    assert broker.subscribed == {"a/+", "c/+"}
    assert broker.hang_ups <= 6
    told = [event for event in broker.events if isinstance(event, Subscribed)]
    assert told[-1].results == (("a/+", 1), ("b/+", HUNG_UP), ("c/+", 1))
    assert not broker.reasons()


def test_messages_beside_a_forbidden_filter_are_not_blamed() -> None:
    broker = HangingUp(filters={"b/+"})
    broker.wanted = [Subscription("b/+", 1, 1)]
    for n in range(5):
        broker.session.publish("open", b"%d" % n, qos=1)
        broker.run(1.0)
    broker.run(10.0)
    assert broker.taken == [b"%d" % n for n in range(5)]
    assert not broker.reasons()
    only = [event for event in broker.events if isinstance(event, Subscribed)]
    assert only[-1].results == (("b/+", HUNG_UP),)


def test_messages_that_are_given_up_are_not_sent_and_those_in_flight_are_answered() -> None:
    broker = HangingUp()
    session = broker.session
    session.connect(0.0)
    session.receive_untrusted(ACCEPT_5_ONE, 0.0)
    sent, waits, stays = (session.publish(topic, topic.encode(), 1) for topic in ("s", "w", "t"))
    assert session.give_up([sent, waits]) == [waits]
    broker.connected = True
    broker.turn()
    assert broker.taken == [b"s", b"t"]
    assert broker.events == [Published(sent), Published(stays)]
    session.lost("closed by the broker")
    last = session.publish("u", b"", 1)
    assert session.give_up([last, waits]) == [last]
    assert len(session.outgoing) == 0


def test_a_session_that_another_client_takes_over_is_no_sign_against_what_was_in_flight() -> None:
    hang_ups, session = HangUps(), Session(SessionOptions("id", protocol="5"))
    for _ in range(6):
        session.connect(0.0)
        session.receive_untrusted(ACCEPT_5, 0.0)
        session.subscribe([Subscription("a/+", 1, 1)])
        session.receive_untrusted(bytes([0xE0, 2, TAKEN_OVER, 0]), 0.1)
    assert not session.hang_ups.filters
    assert hang_ups.ended(True, {}, (), 0.0) is None
    assert decoded(bytes([0xE0, 2, TAKEN_OVER, 0]), V5) == [Disconnect(TAKEN_OVER)]


def test_a_message_that_may_be_too_large_brings_no_blame_upon_its_topic() -> None:
    hang_ups = HangUps(1_000)
    for n in range(5):
        found = None
        while found is None:
            found = hang_ups.ended(True, {n: Sent("results", 5_000)}, (), 0.0)
        assert found == Found(n, "results", 0.0)
    assert hang_ups.topics.admits("results", 0.0)


def test_a_topic_of_qos_0_at_which_the_broker_hangs_up_is_refused_and_no_message_beside_it_is_blamed() -> None:
    """At one message a second, beside messages of QoS 1 and others of QoS 0."""
    broker, refused = HangingUp(topics={"secret"}), 0
    for n in range(50):
        for topic, qos in (("open", 1), ("secret", 0), ("free", 0)):
            try:
                broker.session.publish(topic, b"%s %d" % (topic.encode(), n), qos=qos)
            except PublishRefused:
                refused += topic == "secret"
            broker.turn()
        broker.run(1.0)
    broker.run(5.0)
    assert [payload for payload in broker.taken if payload.startswith(b"open")] == [b"open %d" % n for n in range(50)]
    assert sum(payload.startswith(b"free") for payload in broker.taken) >= 40
    assert broker.hang_ups <= 8
    assert refused >= 40
    assert not broker.reasons()
    assert list(broker.session.hang_ups.topics.refused(broker.now)) == ["secret"]


def test_a_bad_link_refuses_no_topic_of_qos_0() -> None:
    broker = HangingUp()
    for n in range(200):
        with suppress(PublishRefused):
            broker.session.publish("free", b"%d" % n)
        if n % 5 < 2 and broker.connected:
            broker.session.take_output(broker.now)  # it does not arrive
            broker.connected, broker.hang_ups = False, 1
            broker.events += broker.session.lost("gone")
        broker.run(1.0)
        assert not broker.session.hang_ups.topics.refused(broker.now)
