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

from gateway.ingest.inflight_window import RECEIVE_MAXIMUM, STILL_S, SUPPOSED, InflightWindow

INTERVAL_S = 5.0
COMMIT_S, ROUND_TRIP_S = 0.01, 0.002
SEEN = [n / 50 for n in (50, 61, 78, 105, 56, 73, 94, 133)]
"""How far Mosquitto went beyond its window on a busy machine."""


class Broker:
    """A broker with a window, sensors that send at given times, and a gateway with a checkpoint every 5 s besides.
    Messages and acknowledgements take half of the round trip each."""

    def __init__(
        self, size: int, times: Iterable[float], *, known: int = 0, round_trip_s: float = ROUND_TRIP_S
    ) -> None:
        self.window = InflightWindow(known)
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

    def run(self, seconds: float) -> InflightWindow:
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
    assert broker.run(60.0).met == size
    bears = max(1, size // 2) / (COMMIT_S + ROUND_TRIP_S)
    if rate <= bears / 2:
        assert (broker.came, broker.waiting) == (20 * rate, 0)
        assert broker.most_waiting <= (INTERVAL_S + 0.7) * rate, "found after the first checkpoint"


@given(st.sampled_from([20, 32]), st.integers(100, 400))
def test_those_of_mosquitto_and_emqx_are_found_in_less_than_a_second(size: int, rate: int) -> None:
    broker = Broker(size, every(1 / rate, 10.0))
    assert broker.run(3.0).met == size
    assert broker.most_waiting <= 0.7 * rate


@pytest.mark.parametrize("burst", [1, 3, 30])
@pytest.mark.parametrize("period_s", [0.15, 0.25, 0.45, 0.65, INTERVAL_S, 2 * INTERVAL_S])
def test_sensors_that_send_together_just_after_a_checkpoint_are_no_window(burst: int, period_s: float) -> None:
    together = [n * period_s + 0.05 for n in range(round(300 / period_s)) for _ in range(burst)]
    broker = Broker(RECEIVE_MAXIMUM, together)
    assert broker.run(300.0).met == 0


@pytest.mark.parametrize("size", [20, 40, 60])
def test_a_broker_that_goes_beyond_its_window_more_and_more_holds_nothing_up_either(size: int) -> None:
    draw = Random(size)
    broker = Broker(size, every(0.01, 60.0))
    broker.goes_beyond = (1.0 if n % 4 == 0 else draw.uniform(1.15, 1.4) ** (n % 4) for n in itertools.count())
    assert size <= broker.run(70.0).met <= 2 * size
    assert (broker.came, broker.waiting) == (6_000, 0)


def test_nor_where_its_window_fills_in_two_seconds_only() -> None:
    draw = Random(1)
    broker = Broker(20, (time + draw.uniform(0.0, 0.01) for time in every(0.1, 120.0)))
    broker.goes_beyond = itertools.cycle(SEEN)
    broker.run(130.0)
    assert (broker.came, broker.waiting) == (1_200, 0)
    assert broker.most_waiting <= 10 * INTERVAL_S, "no longer than until the next checkpoint"


@pytest.mark.parametrize("round_trip_s", [0.02, 0.05, 0.09])
def test_nor_does_one_that_is_far_away(round_trip_s: float) -> None:
    broker = Broker(50, every(0.01, 60.0), round_trip_s=round_trip_s)
    assert broker.run(70.0).met == 50
    assert (broker.came, broker.waiting) == (6_000, 0)


@given(st.floats(0.01, 4.0), st.integers(1, 60), st.integers(0, 1_000_000))
def test_sensors_that_send_as_they_like_are_not_taken_for_a_window(spacing_s: float, burst: int, seed: int) -> None:
    draw = Random(seed)
    jitter_s = draw.choice((0.0, 0.01, 0.3)) * spacing_s
    times = [time + draw.uniform(0.0, jitter_s) for time in every(spacing_s, 60.0, burst)]
    broker = Broker(RECEIVE_MAXIMUM, times)
    assert (broker.run(60.0).met, broker.came) == (0, len(times))
    # Bursts just after every third checkpoint, say, look like a window until one comes late: 23 were the most seen.
    assert broker.commits <= 12 * 2, "at most one besides each in 5 s"


def test_it_is_said_once_and_asked_for_at_half_of_it(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(32, every(0.02, 60.0))
    with caplog.at_level(logging.WARNING):
        window = broker.run(60.0)
    said = [record.getMessage() for record in caplog.records]
    assert [text[:60] for text in said] == ["the sensors' broker sends no more than 32 messages before so"]
    assert said[0].endswith("set sensors.window")
    assert window.full(16, 60.0)
    assert not window.full(15, 60.0)
    assert broker.came == pytest.approx(3_000, abs=32)
    assert window.asked == pytest.approx(3_000 / 17, rel=0.1)


class Pauses:
    """Input stands still for given times, acknowledgements end that, and more input follows."""

    def __init__(self) -> None:
        self.window = InflightWindow()
        self.now = 0.0

    def stand(self, count: int, pause_s: float, *, then: int | None = None, after_s: float = 0.001) -> int:
        """With `count` messages open; `then` of them come `after_s` after the acknowledgements. Returns the window that
        is found."""
        self.window.came(count, self.now)
        self.now += pause_s
        self.window.acknowledged(count, self.now)
        self.now += after_s
        self.window.came(count if then is None else then, self.now)
        return self.window.met


@pytest.mark.parametrize(
    ("counts", "found"),
    [
        ([20, 20, 20], 20),
        ([7, 7, 7], 7),
        ([24, 20, 22], 20),
        ([20, 66, 964], 20),
        ([70, 70, 70], 70),
        ([20, 4, 4, 4], 4),
    ],
)
def test_three_pauses_at_about_the_same_count_tell_it(counts: list[int], found: int) -> None:
    pauses = Pauses()
    assert [pauses.stand(count, 5.0) for count in counts] == [0] * (len(counts) - 1) + [found]


@pytest.mark.parametrize(
    ("pause_s", "then", "after_s"), [(0.39, 20, 0.0), (0.5, 9, 0.0), (0.5, 20, STILL_S + 0.01)], ids=str
)
def test_a_shorter_pause_few_messages_and_late_ones_do_not_tell_it(pause_s: float, then: int, after_s: float) -> None:
    pauses = Pauses()
    assert [pauses.stand(20, 0.1), pauses.stand(20, 0.2)] == [0, 0]
    assert pauses.stand(20, pause_s, then=then, after_s=after_s) == 0


def test_a_checkpoint_that_was_asked_for_in_vain_is_not_asked_for_again() -> None:
    pauses = Pauses()
    window = pauses.window
    window.came(SUPPOSED, 0.0)
    assert window.look_in(SUPPOSED, 0.0) == pytest.approx(STILL_S)
    assert window.full(SUPPOSED, STILL_S)
    assert window.look_in(SUPPOSED, STILL_S) is None, "it is under way"
    window.acknowledged(SUPPOSED, STILL_S)
    window.came(SUPPOSED, 1.0)
    assert (window.look_in(SUPPOSED, 1.0), window.full(SUPPOSED, 9.0), window.asked) == (None, False, 1)


def test_one_that_is_known_is_not_looked_for() -> None:
    window = InflightWindow(32)
    window.came(15, 1.0)
    assert (window.met, window.look_in(15, 1.0), window.full(15, 9.0)) == (32, None, False)
    assert window.full(16, 9.0)
    none = Broker(RECEIVE_MAXIMUM, every(0.02, 60.0), known=RECEIVE_MAXIMUM)
    assert (none.run(59.0).asked, none.commits) == (0, 11)


def test_more_than_it_has_after_a_pause_and_without_acknowledgements_is_none() -> None:
    window = InflightWindow()
    for count, now in ((3, 1.0), (20, 1.01), (79, 1.2)):
        window.came(count, now)
    assert window.look_in(79, 1.2) == pytest.approx(STILL_S), "it may be larger"
    window.came(81, 1.4)
    assert window.look_in(81, 1.4) is None


def test_a_connection_begins_anew() -> None:
    window = Broker(8, every(0.02, 20.0)).run(20.0)
    assert window.met == 8
    window.connected()
    assert (window.met, window.look_in(SUPPOSED, 20.0) is None) == (0, False)
