"""Messages at QoS 0 published together: the bytes of each alone, and none where one needs a look of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.mqtt.hang_ups.unproven import MOST_TOPICS, Unproven
from edgert.mqtt.packets import encode
from edgert.mqtt.packets.packets import V5, V311
from edgert.mqtt.session.outgoing import PublishRefused
from tests.mqtt.sessions import connected

TOPICS = st.text("ab/é", min_size=1, max_size=300)


@given(
    level=st.sampled_from([V311, V5]),
    messages=st.lists(st.tuples(TOPICS, st.binary(max_size=200), st.booleans()), max_size=5),
)
def test_packets_made_together_are_those_made_alone(level: int, messages: list[tuple[str, bytes, bool]]) -> None:
    alone = [encode.publish(level, topic, payload, retain=retain) for topic, payload, retain in messages]
    assert encode.publishes(level, messages) == alone


@pytest.mark.parametrize("topic", ["a/+", "", "a\0b", "x" * 70_000])
def test_a_topic_that_cannot_be_published_to_raises_each_time(topic: str) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="expected"):
            encode.publishes(V5, [("good", b"", False), (topic, b"", False)])


def test_messages_leave_in_one_write_in_their_order() -> None:
    session = connected()
    session.take_output()
    messages = [("a", b"1", False), ("b", b"2", True), ("a", b"3", False)]
    assert session.publish_together(messages)
    assert session.take_output() == b"".join(encode.publishes(V5, messages))


def test_without_a_connection_none_is_sent() -> None:
    session = connected()
    session.lost("closed by the broker")
    assert not session.publish_together([("a", b"1", False)])
    assert not session.has_output


@pytest.mark.parametrize("limits", [b"\x20\x05\x00\x00\x02\x25\x00", b"\x20\x08\x00\x00\x05\x27\x00\x00\x00\x10"])
def test_a_message_beyond_the_brokers_limits_is_left_to_publish(limits: bytes) -> None:
    session = connected(limits)
    session.take_output()
    assert not session.publish_together([("a", b"1", False), ("b", b"x" * 20, True)])
    assert not session.has_output
    with pytest.raises(PublishRefused):
        session.publish("b", b"x" * 20, retain=True)
    assert session.publish_together([("a", b"1", False)])


def test_topics_in_doubt_after_a_hang_up_are_those_sent_together() -> None:
    session = connected()
    assert session.publish_together([("a", b"1", False), ("b", b"2", False)])
    session.lost("closed by the broker")
    unproven = session._sending.unproven
    assert unproven.watches("a")
    assert unproven.watches("b")
    assert not session.publish_together([("c", b"3", False)])


def test_the_newest_topics_are_kept_of_many_sent_together() -> None:
    one, together = Unproven(), Unproven()
    topics = [f"t{n % 150}" for n in range(400)]
    for topic in topics:
        one.sent(topic)
    together.sent_together(topics[:170])
    together.sent_together(topics[170:])
    one.ended()
    together.ended()
    kept = [topic for topic in dict.fromkeys(topics) if together.watches(topic)]
    assert len(kept) == MOST_TOPICS
    assert kept == [topic for topic in dict.fromkeys(topics) if one.watches(topic)]
