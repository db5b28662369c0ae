"""The greatest load of the last half hour."""

from __future__ import annotations

import pytest

from agent.interference.peaks import BUCKET_S, BUCKETS, Load, Peaks


def test_the_greatest_load_is_remembered_for_half_an_hour_and_then_forgotten() -> None:
    peaks = Peaks()
    assert peaks.load == Load(0, 0)
    peaks.observe(Load(0.9, 0.1), 0.0)
    peaks.observe(Load(0.2, 0.3), 10.0)
    assert peaks.load == Load(0.9, 0.3), "of each resource"
    peaks.observe(Load(0.1, 0.1), BUCKETS * BUCKET_S - 1)
    assert peaks.load == Load(0.9, 0.3)
    peaks.observe(Load(0.1, 0.1), BUCKETS * BUCKET_S)
    assert peaks.load == Load(0.1, 0.1)


def test_what_comes_is_added_and_what_goes_is_taken_off() -> None:
    peaks = Peaks()
    peaks.observe(Load(0.5, 0.1), 0.0)
    peaks.observe(Load(0.4, 0.2), BUCKET_S)
    peaks.arrived(Load(0.2, 0.0))
    assert peaks.load == pytest.approx(Load(0.7, 0.2))
    peaks.left(Load(0.65, 0.3))
    assert peaks.load == pytest.approx(Load(0.05, 0.0))


def test_other_programs_count_in_full_while_they_run_and_then_by_the_median_of_five_minutes() -> None:
    """An upgrade of a minute kept an idle board from taking instances for half an hour."""
    peaks = Peaks()
    peaks.observe(Load(1.3, 0.0), 0.0, others=1.2)
    assert peaks.load == pytest.approx(Load(1.3, 0.0))
    for at_s in range(5, int(2 * BUCKET_S), 5):
        others = 1.2 if at_s < 60 or BUCKET_S <= at_s < BUCKET_S + 60 else 0.0
        peaks.observe(Load(0.1 + others, 0.0), at_s, others)
    assert peaks.load == pytest.approx(Load(0.1, 0.0))
    for at_s in range(int(2 * BUCKET_S), int(3 * BUCKET_S), 5):
        peaks.observe(Load(0.5, 0.0), at_s, others=0.4)
    peaks.observe(Load(0.1, 0.0), 3 * BUCKET_S)
    assert peaks.load == pytest.approx(Load(0.5, 0.0)), "what lasts counts for half an hour"


def test_memory_is_that_of_six_buckets() -> None:
    peaks = Peaks()
    for minute in range(24 * 60):
        peaks.observe(Load(minute, 0.0), 60.0 * minute)
    assert len(peaks._buckets) == BUCKETS
