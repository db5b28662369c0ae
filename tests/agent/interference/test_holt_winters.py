"""Forecasts of arrivals: the moving average, seasons, refits, and values worked by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.interference.holt_winters import GRID, KEPT, HoltWinters, Smoothing, SmoothingWeights, fit


def test_the_recursion_gives_values_worked_by_hand() -> None:
    """Season 2; 10 30 14 34: means 20 and 24, trend 2 per step, level 20 - 2 × 1.5 = 17 before the first."""
    smoothing = Smoothing([10, 30, 14, 34], 2, SmoothingWeights(0.5, 0.5, 0.5), damping=1.0)
    assert (smoothing.level, smoothing.trend, smoothing.season) == (17, 2, [-9, 9])
    assert smoothing.next() == 10
    assert smoothing.observe(14) == 4
    # level ½ (14 + 9) + ½ (17 + 2) = 21; trend ½ (21 - 17) + ½ 2 = 3; season ½ (14 - 21) + ½ (-9) = -8
    assert (smoothing.level, smoothing.trend, smoothing.season) == (21, 3, [-8, 9])
    assert smoothing.forecast(3) == [33, 19, 39]


def test_a_damped_trend_comes_to_an_end() -> None:
    smoothing = Smoothing([0, 0, 2, 2], 2, SmoothingWeights(0.5, 0.5, 0.5), damping=0.5)
    assert smoothing.forecast(60)[-1] == pytest.approx(smoothing.level + smoothing.trend, abs=1)


def test_before_two_seasons_the_forecast_is_a_moving_average() -> None:
    series = HoltWinters(season=4)
    assert series.forecast(2) == [0, 0]
    for rate in (1, 2, 3):
        series.observe(rate)
    assert series.forecast(2) == [2, 2]
    assert not series.seasonal


def test_a_pattern_that_repeats_is_foreseen() -> None:
    series = HoltWinters(season=60)
    wave = [100 + 50 * math.sin(2 * math.pi * n / 60) for n in range(360)]
    for rate in wave[:180]:
        series.observe(rate)
    errors = [abs(a - b) for a, b in zip(series.forecast(180), wave[180:], strict=True)]
    assert max(errors) < 1
    mean = sum(wave[:180]) / 180
    assert max(errors) < 0.05 * max(abs(mean - rate) for rate in wave[180:]), "against the moving average's"


def test_several_bad_predictions_in_a_row_start_a_refit_and_fewer_do_not() -> None:
    series = HoltWinters(season=10, bad=0.3, patience=4)
    for n in range(30):
        series.observe(100 + n % 10)
    series.observe(500)
    series.observe(100)
    assert series.refits == 0
    for n in range(30):
        series.observe(1_000 if n % 2 else 20)
    assert series.refits >= 1


def test_after_a_lasting_change_the_forecast_is_of_the_new_level() -> None:
    series = HoltWinters(season=10)
    for _ in range(30):
        series.observe(100)
    for _ in range(40):
        series.observe(400)
    assert series.forecast(1)[0] == pytest.approx(400, rel=0.1)


def test_memory_stays_bounded() -> None:
    series = HoltWinters(season=5)
    for n in range(1_000):
        series.observe(n % 5)
    assert len(series._values) == KEPT * 5


def test_the_fit_is_the_best_of_the_grid() -> None:
    values = [float(10 + n % 4 + n // 3) for n in range(16)]

    def squares(smoothing: Smoothing) -> float:
        return sum(smoothing.observe(value) ** 2 for value in values)

    found = squares(Smoothing(values, 4, fit(values, 4).parameters))
    assert found == min(
        squares(Smoothing(values, 4, SmoothingWeights(a, b, c))) for a in GRID for b in GRID for c in GRID
    )


@given(rates=st.lists(st.floats(0, 1e6), max_size=60), season=st.integers(2, 12))
def test_a_forecast_is_finite_and_never_below_zero(rates: list[float], season: int) -> None:
    series = HoltWinters(season)
    for rate in rates:
        series.observe(rate)
    assert all(0 <= rate < math.inf for rate in series.forecast(180))


@pytest.mark.parametrize("rate", [-1.0, math.nan, math.inf])
def test_what_is_no_rate_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="finite rate"):
        HoltWinters(3).observe(rate)
