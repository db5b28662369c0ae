"""A topic or filter at which a broker hangs up is refused for a time that doubles, and tried again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgert.mqtt.hang_ups.forbidden import FIRST_S, MOST_NAMES, MOST_S, Forbidden


def test_a_name_is_refused_from_its_second_blame_on_and_only_for_a_time() -> None:
    topics: Forbidden[str] = Forbidden(2)
    assert topics.blamed("t", 0.0) == 0.0
    assert topics.admits("t", 0.0)
    assert topics.blamed("t", 1.0) == FIRST_S
    assert not topics.admits("t", FIRST_S)
    assert topics.admits("u", 1.0)
    assert topics.refused(1.0) == {"t": FIRST_S}
    assert topics.admits("t", 1.0 + FIRST_S)
    assert topics.on_probation("t", 1.0 + FIRST_S)


def test_what_was_sent_before_a_name_was_refused_does_not_lengthen_the_time() -> None:
    senders: Forbidden[str] = Forbidden(1)
    senders.blamed("s", 0.0)
    for second in range(1, 50):
        assert senders.blamed("s", float(second)) == FIRST_S - second
    assert senders.admits("s", FIRST_S)
    assert senders.blamed("s", FIRST_S) == 2 * FIRST_S


def test_a_name_that_the_broker_has_taken_is_as_new() -> None:
    topics: Forbidden[str] = Forbidden(2)
    topics.blamed("t", 0.0)
    topics.taken("t")
    assert topics.blamed("t", 0.0) == 0.0


@given(st.integers(1, 20))
def test_the_time_doubles_up_to_its_bound(times: int) -> None:
    topics, now, periods = Forbidden[str](1), 0.0, []
    for _ in range(times):
        periods.append(topics.blamed("t", now))
        now += periods[-1]
    assert periods == [min(MOST_S, FIRST_S * 2.0**n) for n in range(times)]


def test_a_thousand_names_are_remembered() -> None:
    topics: Forbidden[int] = Forbidden(1)
    for n in range(MOST_NAMES + 10):
        topics.blamed(n, float(n))
    refused = topics.refused(float(MOST_NAMES))
    assert len(refused) <= MOST_NAMES
    assert topics.admits(0, float(MOST_NAMES))
    assert not topics.admits(MOST_NAMES + 9, float(MOST_NAMES + 10))
