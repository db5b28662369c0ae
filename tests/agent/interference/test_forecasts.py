"""From a gateway's counters to the rings of its instances and of the board."""

from __future__ import annotations

import math
from typing import Any

import pytest

from agent.interference.forecasts import SEASON, Forecasts
from agent.interference.ring import SECONDS, STARTS

PERIOD_S = 5.0


def figures(at: float, rows: float, *, busy_s: float = 0.0, sent: float = 0.0, plan: int = 1) -> dict[str, Any]:
    instance = {"rows_in": rows, "busy_s": busy_s, "at": at}
    edges = [{"from": "in", "to": "out", "rows": rows, "bytes": sent}]
    return {"monotonic": at, "flows": {"f": {"plan": plan, "instances": {"in": instance}, "edges": edges}}}


def test_a_steady_flow_is_predicted_to_go_on() -> None:
    forecasts = Forecasts()
    for reading in range(5):
        rows = 500.0 * reading
        forecasts.observe(figures(PERIOD_S * reading, rows, busy_s=rows * 0.002, sent=rows * 40))
    (ring,) = forecasts.rings(2.0).values()
    assert ring.cpu == pytest.approx([100 * 0.002 * 2.0] * 90)
    assert ring.link == pytest.approx([4000.0] * 90)


def test_load_of_other_programs_is_in_the_next_half_minute_and_no_further() -> None:
    forecasts = Forecasts()
    for reading in range(3):
        forecasts.observe(figures(PERIOD_S * reading, 500.0 * reading, busy_s=1.0 * reading))
    ring = forecasts.board(forecasts.rings(1.0).values(), 1.0, load=1.5)
    assert ring.cpu[0] == pytest.approx(0.2 + 1.3)
    assert ring.cpu[40] == pytest.approx(0.2)


def test_what_is_used_is_read_and_not_predicted() -> None:
    forecasts, busy_s = Forecasts(), 0.0
    for reading in range(41):
        forecasts.observe(figures(PERIOD_S * reading, 1_000 * busy_s, busy_s=busy_s, sent=2_000 * busy_s))
        busy_s += (0.1 if reading < 39 else 0.9) * PERIOD_S
    assert forecasts.board(forecasts.rings(1.0).values(), 1.0, 0.0).cpu[0] < 0.2, "the mean of two minutes and a half"
    assert forecasts.used(2.0, load=0.0) == pytest.approx((0.9 * 2, 1_800))
    assert forecasts.used(2.0, load=1.5, external_link=200.0) == pytest.approx((1.5 * 2, 2_000))


def test_counters_that_went_back_and_instances_that_are_gone_begin_anew() -> None:
    forecasts = Forecasts()
    forecasts.observe(figures(0.0, 1_000.0, busy_s=5.0))
    forecasts.observe(figures(5.0, 10.0, busy_s=0.1))
    assert forecasts.rings(1.0) == {}, "one reading says no rate"
    forecasts.observe({"monotonic": 10.0, "flows": {}})
    forecasts.observe(figures(15.0, 20.0, busy_s=0.2))
    assert forecasts.rings(1.0) == {}


def error_of(forecasts: Forecasts, at: float) -> float:
    """Of the ring of a wave of a season, as a part of the mean."""
    (ring,) = forecasts.rings(1.0).values()
    real = [wave(at + start + seconds / 2) for start, seconds in zip(STARTS, SECONDS, strict=True)]
    return sum(abs(seen / 0.001 - rate) for seen, rate in zip(ring.cpu, real, strict=True)) / sum(real)


def wave(at: float) -> float:
    return 100 * (1 + 0.8 * math.sin(2 * math.pi * at / (SEASON * PERIOD_S)))


@pytest.mark.parametrize("missing", [1, 15, 30, SEASON - 1])
def test_readings_that_are_missing_leave_the_season_in_its_phase(missing: int) -> None:
    forecasts, rows, at = Forecasts(), 0.0, 0.0
    for reading in range(4 * SEASON + missing + 6):
        if not 0 <= reading - 4 * SEASON < missing:
            forecasts.observe(figures(at, rows, busy_s=rows * 0.001))
        rows += wave(at + PERIOD_S / 2) * PERIOD_S
        at += PERIOD_S
    assert error_of(forecasts, at - PERIOD_S) < 0.2


def test_after_more_than_a_season_without_readings_the_forecast_begins_anew() -> None:
    forecasts = Forecasts()
    for at in (0.0, 5.0, 10.0, 10.0 + PERIOD_S * (SEASON + 2), 15.0 + PERIOD_S * (SEASON + 2)):
        forecasts.observe(figures(at, at * (10 if at <= 10 else 20), busy_s=at))
        assert forecasts.rings(1.0) or at in (0.0, 10.0 + PERIOD_S * (SEASON + 2))


def test_a_change_of_plan_leaves_the_forecasts_of_what_did_not_move() -> None:
    forecasts, rows = Forecasts(), 0.0
    for reading in range(8 * SEASON):
        plan = reading // 10
        rows = rows if reading % 10 else 0.0
        forecasts.observe(figures(PERIOD_S * reading, rows, busy_s=rows * 0.001, plan=plan))
        rows += wave(PERIOD_S * (reading + 0.5)) * PERIOD_S
    assert error_of(forecasts, PERIOD_S * reading) < 0.2


def test_the_first_counts_by_a_new_plan_say_no_rate_though_they_are_higher() -> None:
    forecasts = Forecasts()
    for at, rows, plan in ((0.0, 0.0, 1), (5.0, 500.0, 1), (10.0, 0.0, 2), (15.0, 500.0, 3), (20.0, 1_000.0, 3)):
        forecasts.observe(figures(at, rows, busy_s=rows * 0.001, plan=plan))
        if at:
            (ring,) = forecasts.rings(1.0).values()
            assert ring.cpu == pytest.approx([0.1] * 90)


def test_a_season_is_found_and_goes_on() -> None:
    forecasts, rows = Forecasts(), 0.0
    for reading in range(60 * 4):
        forecasts.observe(figures(PERIOD_S * reading, rows, busy_s=rows * 0.001))
        rows += 1_000.0 if reading % 60 < 30 else 100.0
    (ring,) = forecasts.rings(1.0).values()
    assert max(ring.cpu) > 4 * min(ring.cpu), "in three minutes of a season of five the load changes"
