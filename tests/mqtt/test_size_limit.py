"""The size that a broker takes, found by what it hung up at: within a factor of two, and not for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgert.mqtt.packets.packets import MAX_PACKET_BYTES
from edgert.mqtt.session.size_limit import MOST_TOPICS, RAISE_S, SMALL_BYTES, SizeLimit

HOUR = RAISE_S


def send(limit: SizeLimit, broker: int, topic: str, size: int, now: float) -> int:
    """Sends `size` bytes in packets that the limit allows, to a broker that takes `broker` bytes; returns hang-ups."""
    hang_ups = 0
    while (packet := min(size, limit.most(topic))) > broker:
        limit.hung_up(topic, packet, now)
        hang_ups += 1
    limit.taken(packet)
    return hang_ups


@given(st.integers(64, 1 << 20), st.integers(64, 1 << 22))
def test_a_limit_is_found_within_a_factor_of_two_with_few_hang_ups(broker: int, size: int) -> None:
    limit = SizeLimit()
    hang_ups = send(limit, broker, "a", size, 0.0) + send(limit, broker, "b", size, 0.0)
    if size > broker:
        assert broker // 2 <= min(limit.most("a"), limit.most("b")) <= max(limit.most("a"), limit.most("b")) <= broker
    assert hang_ups <= 2 * (size // broker).bit_length() + 2


def test_a_limit_below_1024_bytes_is_learned_too() -> None:
    """A birth of 300 bytes at a broker that takes 200: it was sent anew at each connect, and hung up again."""
    limit = SizeLimit()
    limit.hung_up("status", 300, 0.0)
    assert limit.most("status") == 150
    assert limit.most("results") == MAX_PACKET_BYTES  # it may have been for the topic
    limit.hung_up("results", 300, 1.0)
    assert limit.most("results") == limit.most("another") == 150


def test_a_topic_that_the_broker_does_not_take_says_nothing_of_the_size_of_others() -> None:
    limit = SizeLimit()
    limit.taken(20_000)
    limit.hung_up("forbidden", 10_000, 0.0)
    assert limit.most("forbidden") == 5_000
    assert limit.most("another") == MAX_PACKET_BYTES
    limit.hung_up("results", 10_000, 1.0)  # the second one: the broker takes less than it did
    assert limit.most("another") == 5_000


def test_no_limit_is_found_below_what_the_broker_takes() -> None:
    limit = SizeLimit()
    limit.taken(7_000)
    limit.hung_up("t", 8_001, 0.0)
    assert limit.most() == 7_000


def test_a_connack_an_hour_later_raises_the_limits_again_and_none_before() -> None:
    limit = SizeLimit()
    for topic in ("a", "b"):
        limit.hung_up(topic, 2_000, 0.0)
    limit.connected(MAX_PACKET_BYTES, HOUR - 1)
    assert limit.most("a") == limit.most("c") == 1_000
    limit.connected(MAX_PACKET_BYTES, HOUR)
    assert limit.most("a") == limit.most("c") == 2_000
    limit.connected(MAX_PACKET_BYTES, HOUR + 1)
    assert limit.most("c") == 2_000
    for hour in range(2, 30):
        limit.connected(MAX_PACKET_BYTES, hour * HOUR)
    assert limit.most("a") == limit.most("c") == MAX_PACKET_BYTES


def test_a_stated_limit_holds_beside_the_learned_one() -> None:
    limit = SizeLimit()
    limit.connected(8_000, 0.0)
    assert limit.most() == 8_000
    limit.hung_up("t", 6_000, 0.0)
    assert limit.most() == 3_000
    limit.connected(2_000, 1.0)
    assert limit.most() == 2_000


def test_topics_are_bounded() -> None:
    limit = SizeLimit()
    limit.taken(SMALL_BYTES)
    for n in range(MOST_TOPICS + 10):
        limit.hung_up(f"t{n}", 100, 0.0)
    assert len(limit._by_topic) == MOST_TOPICS
