"""Sums of counters over the recent past."""

from __future__ import annotations

import pytest

from agent.drivers.recent_sums import RecentSums


def test_a_ratio_follows_a_change_within_the_half_life() -> None:
    recent = RecentSums(half_life_s=5.0)
    recent.look(0.0, {"a": {"rows": 1000.0, "busy": 1.0}})
    rows, busy, costs = 1000.0, 1.0, []
    for second in range(1, 31):
        rows, busy = rows + 10, busy + 10 * 0.01
        sums = recent.look(float(second), {"a": {"rows": rows, "busy": busy}})["a"]
        costs.append(sums["busy"] / sums["rows"])
    assert costs[0] == pytest.approx(0.01, rel=0.1), "what was before weighs as one row"
    assert costs[-1] == pytest.approx(0.01, rel=0.01)


def test_a_part_of_the_time_is_exact_for_a_steady_rate() -> None:
    recent = RecentSums()
    for second in range(10):
        sums = recent.look(float(second), {"a": {"busy": second * 0.3}})["a"]
    assert sums["busy"] / sums["span_s"] == pytest.approx(0.3, rel=0.2)


def test_ratios_are_known_at_the_first_look_and_kept_without_rows() -> None:
    recent = RecentSums()
    for second in range(100):
        sums = recent.look(float(second), {"a": {"rows": 50.0, "busy": 1.0}})["a"]
        assert sums["busy"] / sums["rows"] == pytest.approx(0.02)


def test_a_counter_that_went_back_starts_anew() -> None:
    recent = RecentSums()
    recent.look(0.0, {"a": {"rows": 1000.0, "busy": 1.0}})
    recent.look(1.0, {"a": {"rows": 2000.0, "busy": 2.0}})
    sums = recent.look(2.0, {"a": {"rows": 10.0, "busy": 5.0}, "b": {"rows": 1.0, "busy": 1.0}})
    assert sums["a"]["busy"] / sums["a"]["rows"] == pytest.approx(0.5)
    assert set(recent.look(3.0, {"b": {"rows": 1.0, "busy": 1.0}})) == {"b"}


def test_an_operator_of_which_nothing_is_known_yet_has_no_sums() -> None:
    recent = RecentSums()
    for second in range(2):
        assert recent.look(float(second), {"a": {}})["a"].keys() == {"span_s"}
