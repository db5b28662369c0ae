"""The broker's window is found out, and what is none is not taken for one; on a virtual clock."""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ingest.inflight_window import OF_MOSQUITTO_311, STILL_S, UNKNOWN, BrokerWindow

INTERVAL_S = 5.0
COMMIT_S, ROUND_TRIP_S = 0.01, 0.002
SEEN = [n / 50 for n in (50, 61, 78, 105, 56, 73, 94, 133)]
"""How far Mosquitto went beyond its window on a busy machine."""


class Broker:
    """A broker with a window, sensors that send at given times, and a gateway with a checkpoint every 5 s besides.
    Messages and acknowledgements take half of the round trip each."""

    def __init__(
        self, size: int, times: Iterable[float], *, five: bool = True, round_trip_s: float = ROUND_TRIP_S
    ) -> None:
        self.window = BrokerWindow()
        self.window.connected(five)
        self.size = size
        self.way_s = round_trip_s / 2
        self.goes_beyond: Iterator[float] = itertools.repeat(1.0)
        """How many times its window it uses after each acknowledgement."""
        self._room, self._held = size, 0
        self.open = self.waiting = self.commits = self.most_waiting = self.came = 0
        self._committing = False
        self._now = 0.0
        self._look = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        for time in times:
            self._at(time, self._publish)
        self._at(INTERVAL_S, self._due)

    def run(self, seconds: float) -> BrokerWindow:
        """All that happens until then."""
        while self._events and self._events[0][0] <= seconds:
            self._now, _, event = heapq.heappop(self._events)
            event()
        return self.window

    def _at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), event))

    def _publish(self) -> None:
        self.waiting += 1
        self._send()

    def _send(self) -> None:
        sent = max(0, min(self.waiting, self._room - self._held))
        self.waiting -= sent
        self.most_waiting = max(self.most_waiting, self.waiting)
        if sent:
            self._held += sent
            self._at(self._now + self.way_s, lambda: self._arrive(sent))

    def _arrive(self, count: int) -> None:
        self.open += count
        self.came += count
        self.window.came(self.open, self._now)
        self._checks()

    def _checks(self) -> None:
        if self.window.full(self.open, self._now):
            self._commit()
        wait_s = self.window.look_in(self.open, self._now)
        if wait_s is not None and self._look <= self._now:
            self._look = self._now + wait_s
            self._at(self._look, self._checks)

    def _due(self) -> None:
        self._at(self._now + INTERVAL_S, self._due)
        if self.open:
            self._commit()

    def _commit(self) -> None:
        if not self._committing:
            self._committing = True
            count = self.open
            self._at(self._now + COMMIT_S, lambda: self._committed(count))

    def _committed(self, count: int) -> None:
        self._committing = False
        self.commits += 1
        self.window.acknowledged(self.open, self._now)
        self.open -= count
        self._at(self._now + self.way_s, lambda: self._acknowledged(count))

    def _acknowledged(self, count: int) -> None:
        self._room = round(self.size * next(self.goes_beyond))
        self._held -= count
        self._send()


def every(spacing_s: float, seconds: float, burst: int = 1) -> list[float]:
    return [n // burst * spacing_s + 0.001 for n in range(round(seconds / spacing_s) * burst)]


@given(st.integers(1, 60), st.integers(60, 400))
def test_a_window_of_any_size_is_found_and_does_not_hold_up_what_comes(size: int, rate: int) -> None:
    broker = Broker(size, every(1 / rate, 20.0))
    window = broker.run(30.0)
    bears = max(1, size // 2) / (COMMIT_S + ROUND_TRIP_S)
    if rate <= bears / 2:
        assert (broker.came, broker.waiting) == (20 * rate, 0)
        assert broker.most_waiting <= 2.5 * rate, "soon it was found"
    if rate * INTERVAL_S > 2 * size:
        assert window.met == size


@given(st.integers(20, 60), st.integers(0, 1_000_000))
def test_a_broker_that_goes_beyond_its_window_more_and_more_holds_nothing_up_either(size: int, seed: int) -> None:
    draw = Random(seed)
    broker = Broker(size, every(0.01, 60.0))
    broker.goes_beyond = (1.0 if n % 4 == 0 else draw.uniform(1.15, 1.4) ** (n % 4) for n in itertools.count())
    window = broker.run(70.0)
    assert (broker.came, broker.waiting) == (6_000, 0)
    assert size <= window.met <= 2 * size
    assert broker.most_waiting <= 500, "soon it was found"


@pytest.mark.parametrize("seed", range(4))
def test_nor_where_its_window_fills_in_two_seconds_only(seed: int) -> None:
    draw = Random(seed)
    broker = Broker(20, (time + draw.uniform(0.0, 0.01) for time in every(0.1, 300.0)))
    broker.goes_beyond = itertools.cycle(SEEN)
    assert 20 <= broker.run(310.0).met <= 30
    assert (broker.came, broker.waiting) == (3_000, 0)


@pytest.mark.parametrize("size", [20, 50])
@pytest.mark.parametrize("round_trip_s", [0.02, 0.03, 0.05])
def test_nor_does_one_that_is_far_away(size: int, round_trip_s: float) -> None:
    broker = Broker(size, every(0.01, 120.0), round_trip_s=round_trip_s)
    assert broker.run(130.0).met == size
    assert broker.came == 12_000


class Pauses:
    """What comes, and pauses of given lengths that acknowledgements end."""

    def __init__(self, *, five: bool = True) -> None:
        self.window = BrokerWindow()
        self.window.connected(five)
        self.now = 0.0

    def stand(self, count: int, pause_s: float, after_s: float = 0.001) -> int:
        """With so many open, and what comes `after_s` after the acknowledgements; returns what is found then."""
        self.window.came(count, self.now)
        self.now += pause_s
        self.window.acknowledged(count, self.now)
        self.now += after_s
        self.window.came(1, self.now)
        return self.window.met


@pytest.mark.parametrize(
    ("counts", "found"),
    [
        ([20, 20], 0),
        ([20, 20, 20], 20),
        ([24, 20, 22], 20),
        ([20, 40, 20, 40], 0),
        ([20, 40, 30, 59, 25], 20),
        ([20, 40, 61, 40, 20], 0),
        ([4, 12, 4, 12, 4], 0),
        ([12, 4, 12, 4, 12], 0),
        ([9, 20, 26, 10, 12], 0),
        ([2, 5, 2, 5, 2], 0),
    ],
)
def test_three_even_pauses_or_five_uneven_ones_tell_it(counts: list[int], found: int) -> None:
    pauses = Pauses()
    assert [pauses.stand(count, 5.0 * 2**n) for n, count in enumerate(counts)] == [0] * (len(counts) - 1) + [found]


def test_pauses_of_one_length_tell_nothing_and_what_comes_later_is_against_it() -> None:
    pauses = Pauses()
    assert [pauses.stand(20, 5.0) for _ in range(9)] == [0] * 9
    assert [pauses.stand(20, 10.0), pauses.stand(20, 20.0)] == [0, 20], "nor do they count against it"
    pauses = Pauses()
    assert [pauses.stand(20, 5.0), pauses.stand(20, 10.0), pauses.stand(20, 20.0, 5.0)] == [0, 0, 0]
    assert pauses.window.look_in(1, pauses.now) is None
    assert [pauses.stand(20, 40.0), pauses.stand(20, 80.0), pauses.stand(20, 160.0)] == [0, 0, 20]


def test_a_pause_with_20_open_tells_it_in_311_whatever_was_before() -> None:
    pauses = Pauses(five=False)
    assert [pauses.stand(10, 5.0), pauses.stand(20, 10.0)] == [20, 20]
    assert pauses.window.full(10, pauses.now)


def test_beyond_the_most_that_it_was_seen_to_use_it_is_none_and_is_looked_for_again() -> None:
    pauses = Pauses()
    for n, count in enumerate([20, 40, 30, 59, 25]):
        pauses.stand(count, 5.0 * 2**n)
    pauses.window.came(73, pauses.now)
    assert pauses.window.met == 20
    pauses.window.came(74, pauses.now)
    assert pauses.window.met == 0
    assert pauses.window.look_in(74, pauses.now) == pytest.approx(STILL_S)


def test_it_is_said_once_and_asked_for_at_half_of_it(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(32, every(0.02, 60.0))
    with caplog.at_level(logging.WARNING):
        window = broker.run(60.0)
    assert [r.getMessage()[:60] for r in caplog.records] == [
        "the sensors' broker sends no more than 32 messages before so"
    ]
    assert window.full(16, 60.0)
    assert not window.full(15, 60.0)
    assert broker.came == pytest.approx(3_000, abs=32)
    assert window.asked == pytest.approx(3_000 / 17, rel=0.1)


@given(st.floats(0.01, 4.0), st.integers(1, 12), st.integers(0, 1_000_000))
def test_sensors_that_send_as_they_like_are_not_taken_for_a_window(spacing_s: float, burst: int, seed: int) -> None:
    draw = Random(seed)
    jitter_s = draw.choice((0.0, 0.01, 0.3)) * spacing_s
    times = [time + draw.uniform(0.0, jitter_s) for time in every(spacing_s, 120.0, burst)]
    broker = Broker(UNKNOWN, times)
    window = broker.run(120.0)
    assert (window.size, broker.came) == (UNKNOWN, len(times))
    assert broker.commits <= 24 * 1.5, "not many more than one in 5 s"


def test_in_311_it_is_taken_for_20_until_more_are_open(caplog: pytest.LogCaptureFixture) -> None:
    small = Broker(OF_MOSQUITTO_311, every(0.02, 60.0), five=False)
    with caplog.at_level(logging.WARNING):
        window = small.run(60.0)
    assert (window.met, len(caplog.records)) == (20, 1)
    assert small.most_waiting <= 10
    great = Broker(1_000, every(0.02, 60.0), five=False)
    assert great.run(60.0).met == 0
    assert great.commits <= 15
    tiny = Broker(5, every(0.02, 60.0), five=False)
    assert tiny.run(60.0).met == 5


def test_one_that_is_known_is_not_looked_for() -> None:
    window = BrokerWindow(32)
    window.connected(five=False)
    window.came(15, 1.0)
    assert (window.met, window.look_in(15, 1.0), window.full(15, 9.0)) == (32, None, False)
    assert window.full(16, 9.0)
    window.came(40, 9.0)
    assert window.met == 32
    window.came(41, 9.0)
    assert window.met == 0, "it was not"
    none = Broker(UNKNOWN, every(0.02, 60.0))
    none.window = BrokerWindow(UNKNOWN)
    none.window.connected(five=True)
    assert (none.run(59.0).asked, none.commits) == (0, 11)


def test_a_connection_begins_anew_and_more_than_it_has_is_none() -> None:
    window = Broker(8, every(0.02, 20.0)).run(20.0)
    assert window.met == 8
    window.came(11, 20.1)
    assert window.met == 0
    window = Broker(8, every(0.02, 20.0)).run(20.0)
    window.connected(five=True)
    assert window.met == 0
    window.connected(five=False)
    assert window.met == OF_MOSQUITTO_311
