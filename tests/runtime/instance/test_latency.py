"""Latency in buckets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.runtime.instance.latency import BUCKETS, Latency, quantile_s


@given(st.lists(st.floats(1e-5, 1000.0), min_size=1, max_size=50), st.sampled_from([0.5, 0.99, 1.0]))
def test_a_quantile_is_right_to_a_tenth(times: list[float], part: float) -> None:
    latency = Latency()
    for seconds in times:
        latency.add(seconds, 1)
    wanted = sorted(times)[max(0, -int(-part * len(times) // 1) - 1)]
    assert quantile_s(latency.counts, part) == pytest.approx(wanted, rel=0.1)


def test_rows_count_each_and_what_cannot_be_lands_at_the_ends() -> None:
    latency = Latency()
    latency.add(-1.0, 3)
    latency.add(0.0, 1)
    latency.add(1e9, 2)
    assert (latency.counts[0], latency.counts[BUCKETS - 1]) == (4, 2)
    assert quantile_s(latency.counts, 0.5) == pytest.approx(1e-6, rel=0.1)


def test_the_mean_is_right_to_a_tenth() -> None:
    latency = Latency()
    for seconds in (0.001, 0.002, 0.003, 0.1):
        latency.add(seconds, 10)
    assert latency.mean_s() == pytest.approx(0.0265, rel=0.1)


def test_nothing_measured_has_no_quantile() -> None:
    assert quantile_s(Latency().counts, 0.5) is None
