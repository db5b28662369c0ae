"""From a gateway's counters to the rings of its instances and of the board."""

from __future__ import annotations

from typing import Any

import pytest

from agent.interference.forecasts import Forecasts

PERIOD_S = 5.0


def figures(at: float, rows: float, *, busy_s: float = 0.0, sent: float = 0.0) -> dict[str, Any]:
    instance = {"rows_in": rows, "busy_s": busy_s, "at": at}
    edges = [{"from": "in", "to": "out", "rows": rows, "bytes": sent}]
    return {"monotonic": at, "flows": {"f": {"instances": {"in": instance}, "edges": edges}}}


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


def test_a_season_is_found_and_goes_on() -> None:
    forecasts, rows = Forecasts(), 0.0
    for reading in range(60 * 4):
        forecasts.observe(figures(PERIOD_S * reading, rows, busy_s=rows * 0.001))
        rows += 1_000.0 if reading % 60 < 30 else 100.0
    (ring,) = forecasts.rings(1.0).values()
    assert max(ring.cpu) > 4 * min(ring.cpu), "in three minutes of a season of five the load changes"
