"""The message at which a broker hangs up is found; messages beside it are not taken for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgert.mqtt.hang_ups.suspicion import PacketSuspicion, Sent

SMALL, LARGE = Sent("t", 100), Sent("t", 100_000)


def test_what_was_in_flight_goes_alone_next_and_is_given_up_when_the_broker_hangs_up_again() -> None:
    suspicion, flying = PacketSuspicion(), {1: SMALL, 2: LARGE, 3: SMALL}
    assert (suspicion.ended(True, list(flying)), suspicion.alone) == (None, True)
    suspicion.answered(1)
    del flying[1]
    assert suspicion.ended(True, list(flying)) is None  # alone in flight for the first time
    assert suspicion.ended(True, list(flying)) == 2
    suspicion.answered(3)
    assert not suspicion.alone


def test_a_connection_that_was_stable_takes_suspicion_back() -> None:
    suspicion = PacketSuspicion()
    for _ in range(10):
        assert suspicion.ended(True, [1]) is None
        assert suspicion.ended(False, [1]) is None
        assert not suspicion.alone


def test_nothing_in_flight_is_nothing_to_suspect() -> None:
    suspicion = PacketSuspicion()
    assert [suspicion.ended(True, []) for _ in range(3)] == [None] * 3


@given(st.integers(1, 20), st.data())
def test_the_one_that_a_broker_does_not_take_is_found_and_no_other(count: int, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(1, count))
    flying, suspicion, ends = dict.fromkeys(range(1, count + 1), SMALL), PacketSuspicion(), 0
    found = None
    while found is None:
        most = 1 if suspicion.alone else len(flying)
        for n in list(flying)[:most] if most > 1 else list(flying):
            if n == culprit:
                break
            if most == 1:  # one after the other: those before it are taken
                del flying[n]
                suspicion.answered(n)
        found = suspicion.ended(True, list(flying))
        ends += 1
    assert found == culprit
    assert ends <= 3
