"""Our Holt-Winters beside that of statsmodels: with the same weights and the same start it predicts the same."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from typing import Any

import pytest
from statsmodels.tsa.holtwinters import ExponentialSmoothing

from agent.interference.holt_winters import DAMPING, Smoothing, SmoothingWeights, fit

HORIZON = 180


def series(seed: int, season: int) -> list[float]:
    """Five and a half seasons of a wave on a slope, with noise and a jump."""
    draw, count = random.Random(seed), 11 * season // 2
    slope, height, noise = draw.uniform(-0.5, 2.0), draw.uniform(0.0, 80.0), draw.uniform(0.0, 20.0)
    jump_at, jump = draw.randrange(count), draw.uniform(-50.0, 200.0)
    wave = (height * math.sin(2 * math.pi * n / season) for n in range(count))
    return [300 + slope * n + w + draw.gauss(0, noise) + jump * (n > jump_at) for n, w in enumerate(wave)]


@pytest.mark.parametrize("damping", [1.0, DAMPING, 0.8])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("season", [2, 12, 60])
def test_predictions_and_forecasts_are_those_of_statsmodels(season: int, seed: int, damping: float) -> None:
    values = series(seed, season)
    parameters = random.Random(seed).choice(
        [SmoothingWeights(0.2, 0.05, 0.7), SmoothingWeights(0.7, 0.4, 0.05), fit(values, season).parameters]
    )
    ours = Smoothing(values, season, parameters, damping)
    theirs = ExponentialSmoothing(
        values, trend="add", damped_trend=damping < 1, seasonal="add", seasonal_periods=season,
        initialization_method="known", initial_level=ours.level, initial_trend=ours.trend,
        initial_seasonal=list(ours.season),
    ).fit(
        smoothing_level=parameters.level, smoothing_trend=parameters.trend,
        # Ours learns the season from what is left over the new level, theirs from what is left over the predicted one.
        # The two differ by the part of the error that the level has learned.
        smoothing_seasonal=parameters.season * (1 - parameters.level),
        damping_trend=damping if damping < 1 else None, optimized=False,
    )  # fmt: skip
    at = len(values) % season
    predicted = [value - ours.observe(value) for value in values]
    assert predicted == same(theirs.fittedvalues)
    assert [ours.level, ours.trend, *ours.season[at:], *ours.season[:at]] == same(
        [theirs.level[-1], theirs.trend[-1], *theirs.season[-season:]]
    )
    # Their forecast leaves out what the season learned from the last observation: it differs a whole season later.
    ahead = [step for step in range(HORIZON) if (step + 1) % season]
    found, expected = ours.forecast(HORIZON), theirs.forecast(HORIZON)
    assert [found[step] for step in ahead] == same([expected[step] for step in ahead])


def same(values: Iterable[float]) -> Any:
    return pytest.approx(list(values), rel=1e-9, abs=1e-6)
