"""When not to read (coalescing) and when not to connect (back-off)."""

from __future__ import annotations

import random

import pytest

from edgert.mqtt.clients.coalesce import Coalescer
from edgert.mqtt.clients.reconnect import Attempts, Backoff


def pauses(rate: float, budget_s: float, seconds: float = 1.0, size: int = 400) -> list[float]:
    """What the coalescer answers to one message per read at `rate` per second."""
    coalescer = Coalescer(budget_s, 0.0)
    return [coalescer.pause_s(1, size, i / rate) for i in range(int(rate * seconds))]


@pytest.mark.parametrize(("rate", "expected"), [(1, 0.0), (100, 0.0), (390, 0.0), (410, 0.005), (20_000, 0.005)])
def test_pause_is_made_only_where_two_messages_fit_the_budget(rate: float, expected: float) -> None:
    assert max(pauses(rate, 0.005, 2.0)[-2:]) == expected


def reads(rate: float, budget_s: float, held_back: bool, seconds: float = 1.0) -> list[tuple[int, float]]:
    """(messages, pause) of each read where a pause makes `rate` times its length wait. `held_back`: the broker sends
    the rest only when the first is acknowledged, which is when it is read."""
    coalescer, now, taken, out = Coalescer(budget_s, 0.0), 0.0, 0, list[tuple[int, float]]()
    held = False
    while now < seconds:
        waiting = int(now * rate) - taken
        held = held_back and not held and waiting > 1
        messages = 1 if held else waiting
        taken += messages
        out.append((messages, coalescer.pause_s(messages, 400 * messages, now)))
        now += out[-1][1] or 0.0002
    return out


@pytest.mark.parametrize("rate", [2_000, 5_000, 20_000])
def test_every_read_that_brings_what_was_due_is_followed_by_a_pause(rate: int) -> None:
    assert {pause for _, pause in reads(rate, 0.005, held_back=False)[-20:]} == {0.005}


@pytest.mark.parametrize("rate", [2_000, 5_000, 20_000])
def test_a_read_that_sets_free_what_the_broker_held_back_is_followed_by_the_next_at_once(rate: int) -> None:
    late = reads(rate, 0.005, held_back=True)[-20:]
    assert [pause for _, pause in late] in ([0.0, 0.005] * 10, [0.005, 0.0] * 10)
    assert {messages == 1 for messages, pause in late if pause == 0.0} == {True}


def test_of_two_reads_that_bring_too_little_one_is_followed_by_a_pause() -> None:
    coalescer = Coalescer(0.005, 0.0)
    answers = [coalescer.pause_s(100 if i < 40 else 1, 400, i * 0.005) for i in range(50)]
    assert answers[-8:] == [0.0, 0.005] * 4


def test_a_full_read_between_two_reads_that_bring_too_little_changes_nothing() -> None:
    coalescer = Coalescer(0.005, 0.0)
    for i in range(40):
        coalescer.pause_s(100, 400, i * 0.005)
    assert coalescer.pause_s(1, 400, 0.2) == 0.0
    assert coalescer.pause_s(1, 256 << 10, 0.2) == 0.0
    assert coalescer.pause_s(1, 400, 0.2) == 0.005


def test_no_budget_means_no_pause() -> None:
    assert set(pauses(20_000, 0.0)) == {0.0}


def test_pause_ends_with_the_burst() -> None:
    coalescer = Coalescer(0.005, 0.0)
    assert [coalescer.pause_s(50, 4000, i * 0.01) for i in range(20)][-2:] == [0.005, 0.005]
    assert coalescer.pause_s(1, 400, 5.0) == 0.0


def test_full_read_is_followed_by_the_next_at_once() -> None:
    assert pauses(20_000, 0.005, size=256 << 10)[-2:] == [0.0, 0.0]


def test_back_off_doubles_to_its_bound_with_half_of_it_drawn() -> None:
    backoff = Backoff(first_s=0.5, max_s=30.0)
    assert [backoff.delay(i, lambda: 0.0) for i in (0, 1, 2, 6, 7, 10_000)] == [0.25, 0.5, 1.0, 15.0, 15.0, 15.0]
    draw = random.Random(7).random
    delays = [backoff.delay(1, draw) for _ in range(1000)]
    assert all(0.5 <= delay < 1.0 for delay in delays)
    assert max(delays) - min(delays) > 0.4


def test_back_off_without_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="first_s <= max_s, got 2 and 1"):
        Backoff(first_s=2, max_s=1)


def test_the_wait_grows_until_a_connection_was_stable() -> None:
    attempts = Attempts(Backoff(first_s=1.0, max_s=60.0, stable_s=10.0), lambda: 1.0)
    assert [attempts.ended() for _ in range(3)] == [1.0, 2.0, 4.0]
    assert attempts.ended(stood_s=9.9) == 8.0, "as with a twin that takes the session over"
    assert attempts.ended(stood_s=10.0) == 1.0
    assert [attempts.ended() for _ in range(7)][-1] == 60.0
    attempts.begin_anew()
    assert attempts.ended() == 1.0, "the reason is found"


def test_the_wait_grows_too_where_ever_new_messages_are_found_at_which_the_broker_hangs_up() -> None:
    """Each is found by three connections."""
    attempts = Attempts(Backoff(first_s=1.0, max_s=60.0, stable_s=10.0), lambda: 1.0)
    waits = []
    for _ in range(100):
        waits += [attempts.ended() for _ in range(2)]
        attempts.begin_anew()
        waits.append(attempts.ended())
    assert waits[:12] == [1.0, 2.0, *[1.0, 2.0, 4.0] * 3, 1.0], "of a few bad topics each is found soon"
    assert waits[-3:] == [60.0] * 3
    assert attempts.ended(stood_s=10.0) == 1.0
    attempts.ended()
    attempts.begin_anew()
    assert attempts.ended() == 1.0, "what was found before a connection was stable does not count"
