"""A broker that hangs up some seconds after what it does not take, or where a second message is in flight: what it
takes arrives, and nothing of that is blamed. It is played by hand, on a virtual clock."""

from __future__ import annotations

from contextlib import suppress

import pytest

from edgert.mqtt.hang_ups.rules import HUNG_UP, TOPIC_REFUSED
from edgert.mqtt.session.outgoing import PublishRefused
from edgert.mqtt.session.states import SessionState
from tests.mqtt.hanging_up import HangingUp, packets


class Late(HangingUp):
    """Hangs up `late_s` seconds after a forbidden message. Until then it takes what follows, or if `deaf` nothing."""

    def __init__(self, late_s: float, deaf: bool) -> None:
        super().__init__(topics={"secret"})
        self.late_s, self.deaf = late_s, deaf
        self.due = float("inf")

    def turn(self) -> None:
        left = self.session.state is SessionState.IDLE  # for want of an answer to a ping
        if self.connected and (left or self.now >= self.due):
            self.due = float("inf")
            self.hang_ups += 1
            self.connected = False
            self.events += self.session.lost("closed by the broker")
        while self.connected and self.session.has_output:
            for packet in packets(self.session.take_output(self.now)):
                if self.deaf and self.due < float("inf"):
                    continue
                if not self.takes(packet):
                    self.due = min(self.due, self.now + self.late_s)


@pytest.mark.parametrize(
    ("late_s", "deaf"),
    [(1.0, False), (8.0, False), (1.0, True), (8.0, True), (12.0, True), (30.0, True), (300.0, True)],
)
def test_a_broker_that_hangs_up_late_loses_its_forbidden_topic_and_no_other(late_s: float, deaf: bool) -> None:
    broker = Late(late_s, deaf)
    for n in range(300):
        for topic in ("secret", "open"):
            with suppress(PublishRefused):
                broker.session.publish(topic, b"%s %d" % (topic.encode(), n), qos=1)
        broker.run(1.0)
    broker.run(1_500.0)
    assert {*broker.taken} == {b"open %d" % n for n in range(300)}
    assert 2 <= broker.reasons().count(HUNG_UP) <= 5
    assert set(broker.reasons()) <= {HUNG_UP, TOPIC_REFUSED}
    assert len(broker.session.outgoing) == 0


def test_a_broker_that_hangs_up_after_a_while_and_takes_what_follows_holds_nothing_else_up() -> None:
    broker = Late(30.0, deaf=False)
    broker.session.publish("secret", b"x", qos=1)
    for n in range(300):
        broker.session.publish("open", b"open %d" % n, qos=1)
        broker.run(1.0)
    assert broker.taken == [b"open %d" % n for n in range(300)]
    assert broker.hang_ups <= 10


class OneAtATime(HangingUp):
    """Hangs up at a second message while the first is not answered, and does not say so in CONNACK."""

    def turn(self) -> None:
        while self.connected and self.session.has_output:
            messages = packets(self.session.take_output(self.now))
            if sum(packet[0] >> 4 == 3 for packet in messages) > 1:
                self.hang_ups += 1
                self.connected = False
                self.events += self.session.lost("closed by the broker")
                return
            for packet in messages:
                self.takes(packet)


def test_a_broker_that_hangs_up_at_the_second_message_in_flight_gets_each_once_alone() -> None:
    broker = OneAtATime()
    for n in range(100):
        for topic in ("a", "b", "c"):
            broker.session.publish(topic, b"%s %d" % (topic.encode(), n), qos=1)
        broker.run(1.0)
    broker.run(60.0)
    assert sorted({*broker.taken}) == sorted(b"%s %d" % (topic, n) for n in range(100) for topic in (b"a", b"b", b"c"))
    assert not broker.reasons()
