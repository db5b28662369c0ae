"""Arrivals to come: triple exponential smoothing (Holt-Winters, additive), refitted when it goes wrong (TPDS 2017).

Until two seasons were observed, the forecast is a moving average. Then level, trend and season are set from these two,
and the three smoothing parameters are those with the least squared error one step ahead, each sought on a grid with the
other two as they are, twice. Several bad
predictions in a row start a refit on the newest observations. Memory is bounded by `KEPT` seasons.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from itertools import accumulate, chain, cycle, islice, repeat
from operator import mul
from typing import Final, NamedTuple

KEPT: Final = 3
"""Seasons of observations that are kept to fit on."""
MOVING: Final = 30
"""Observations in the moving average of the start."""
REST: Final = 4
"""Between two fits for bad predictions lies at least this part of a season, one over it: sooner there is little new to
fit on."""
GRID: Final = (0.05, 0.2, 0.4, 0.7)
"""Values that are tried for each parameter; 0 would never learn, 1 would remember one observation."""
ROUNDS: Final = 2
"""In which each parameter is sought once. All points of the grid together cost four times as much."""
DAMPING: Final = 0.98
"""Part of the trend that is left a step later. 1 is the paper's: a trend then goes on for all of the 3 minutes, and a
short ramp predicts loads that never come."""


class SmoothingWeights(NamedTuple):
    """Weights of the newest observation: in the level (α), in the trend (β), in the season (γ)."""

    level: float
    trend: float
    season: float


class Smoothing:
    """The recursion, from a start. `values`: at least two seasons of observations."""

    __slots__ = ("damping", "level", "parameters", "season", "steps", "trend")

    def __init__(
        self, values: Sequence[float], season: int, parameters: SmoothingWeights, damping: float = DAMPING
    ) -> None:
        first, second = sum(values[:season]) / season, sum(values[season : 2 * season]) / season
        self.trend = (second - first) / season
        # at the last step before the first observation
        self.level = first - self.trend * (season + 1) / 2
        line = [self.level + self.trend * (n + 1) for n in range(2 * season)]
        self.season = [(values[n] - line[n] + values[n + season] - line[n + season]) / 2 for n in range(season)]
        self.parameters, self.damping, self.steps = parameters, damping, 0

    def next(self) -> float:
        """The prediction of the next observation."""
        return self.level + self.damping * self.trend + self.season[self.steps % len(self.season)]

    def observe(self, value: float) -> float:
        """Learn `value`; returns the error of the prediction of it."""
        alpha, beta, gamma = self.parameters
        at = self.steps % len(self.season)
        error = value - self.next()
        before, damped = self.level, self.damping * self.trend
        self.level = alpha * (value - self.season[at]) + (1 - alpha) * (before + damped)
        self.trend = beta * (self.level - before) + (1 - beta) * damped
        self.season[at] = gamma * (value - self.level) + (1 - gamma) * self.season[at]
        self.steps += 1
        return error

    def forecast(self, steps: int) -> list[float]:
        """The next `steps` values."""
        at, level, trend = self.steps % len(self.season), self.level, self.trend
        seasonal = chain(self.season[at:], cycle(self.season))
        return [
            level + part * trend + season for part, season in zip(_damped(self.damping, steps), seasonal, strict=False)
        ]


@lru_cache(maxsize=64)
def _damped(damping: float, steps: int) -> tuple[float, ...]:
    """Trends that are added up until each of the next steps."""
    return tuple(accumulate(accumulate(repeat(damping, steps), mul)))


class HoltWinters:
    """A forecaster of one instance's arrivals per second. It is given one observation per period."""

    def __init__(self, season: int, bad: float = 0.3, patience: int = 5, at_once: bool = True) -> None:
        """`season`: observations per season. A prediction is `bad` if it misses by more than that part of the mean
        of the season; `patience` bad ones in a row make a fit due, and another one two seasons later. With `at_once`
        it is made then; without, the owner calls `fit` when it has time. Raises `ValueError` if a number is too
        small."""
        if season < 2 or bad <= 0 or patience < 1:
            raise ValueError(
                f"expected a season of at least 2, a bad part above 0 and patience, got {season}, {bad}, {patience}"
            )
        self._season, self._bad, self._patience = season, bad, patience
        self._values: deque[float] = deque(maxlen=KEPT * season)
        self._smoothing: Smoothing | None = None
        self._at_once = at_once
        self._again = -1
        self._missed = 0
        self._rest = 0
        self.due = False
        """True if a fit would better the forecasts."""
        self.refits = 0
        """Fits after the first."""

    @property
    def seasonal(self) -> bool:
        """True if two seasons were observed."""
        return self._smoothing is not None

    def observe(self, rate: float) -> None:
        """The mean rate of the last period, rows/s. Raises `ValueError` if it is no rate."""
        if not 0 <= rate < float("inf"):
            raise ValueError(f"expected a finite rate of at least 0, got {rate}")
        self._values.append(rate)
        if self._smoothing is None:
            self.due = len(self._values) >= 2 * self._season
        else:
            error = abs(self._smoothing.observe(rate))
            usual = max(sum(islice(self._values, len(self._values) - self._season, None)) / self._season, 1e-9)
            self._missed = self._missed + 1 if error > self._bad * usual else 0
            self._again -= 1
            self._rest -= 1
            self.due |= (self._missed >= self._patience and self._rest <= 0) or self._again == 0
        if self.due and self._at_once:
            self.fit()

    def fit(self) -> None:
        """Fits on the newest two seasons, if two were observed. After a fit for bad predictions comes another one two
        seasons later: values from before the change would stay in the season for long."""
        if len(self._values) < 2 * self._season:
            return
        self.refits += self._smoothing is not None
        self._smoothing = fit(list(self._values)[-2 * self._season :], self._season)
        self._again = 2 * self._season if self._missed >= self._patience else -1
        self._missed, self._rest, self.due = 0, self._season // REST, False

    def forecast(self, steps: int) -> list[float]:
        """Rates of the next `steps` periods, none below 0; all 0 before the first observation."""
        if self._smoothing is not None:
            return [value if value > 0.0 else 0.0 for value in self._smoothing.forecast(steps)]
        recent = list(self._values)[-MOVING:]
        return [sum(recent) / len(recent) if recent else 0.0] * steps


def fit(values: Sequence[float], season: int) -> Smoothing:
    """The smoothing with the least squared error on `values`, as it is after them."""
    start = Smoothing(values, season, SmoothingWeights(0.0, 0.0, 0.0))
    squares = cache(partial(_squares, start, values))
    best = SmoothingWeights(GRID[1], GRID[0], GRID[1])
    for _ in range(ROUNDS):
        for name in SmoothingWeights._fields:
            best = min((best._replace(**{name: value}) for value in GRID), key=squares)
    found = Smoothing(values, season, best)
    for value in values:
        found.observe(value)
    return found


def _squares(start: Smoothing, values: Sequence[float], parameters: SmoothingWeights) -> float:
    """Sum of the squared errors one step ahead. The recursion of `observe` once more, as many of these are tried."""
    (alpha, beta, gamma), damping = parameters, start.damping
    level, trend, found = start.level, start.trend, 0.0
    steps = deque(start.season)
    for value in values:
        seasonal, damped = steps.popleft(), damping * trend
        before, expected = level, level + damped
        found += (value - expected - seasonal) ** 2
        level = expected + alpha * (value - seasonal - expected)
        trend = damped + beta * (level - before - damped)
        steps.append(seasonal + gamma * (value - level - seasonal))
    return found
