"""The benchmark of the scheduler, in short."""

from __future__ import annotations

import itertools

import pytest

from benchmarks.riotbench import engine
from benchmarks.scheduling import choice, counting
from edgert.core.system_clock import SystemClock
from edgert.runtime.pool.pool import Pool
from edgert.scheduling.policies import POLICIES


@pytest.mark.parametrize("policy", POLICIES)
def test_a_choice_is_timed_without_what_the_timer_costs(policy: str) -> None:
    """By a clock that goes on at each look and at nothing else."""
    looks = itertools.count()
    assert choice.cost_us(policy, 20, timer=lambda: float(next(looks)), choices=500) == 0.0
    assert next(looks) == 2_000, "two looks for each choice, and two for each that was left out"


def test_both_pools_do_all_the_work() -> None:
    told = counting.measure(50, "chains", rounds=2, segments=2)
    assert told["counted"] > 0
    assert told["own"] > 0
    assert 0 < told["cpu_share"] < 1.1
    assert 0.0 < told["policy"] < 10


def test_what_counts_nothing_counts_nothing() -> None:
    counted, uncounted = (engine.flow_run("pred", "full") for _ in range(2))
    for instance in uncounted.all:
        if instance.region:
            counting.uncount(instance.region)
    for run in (counted, uncounted):
        pool = Pool(SystemClock(), workers=0)
        pool.add(run.all)
        for _ in range(20):
            counting.work(pool, run, [engine.Feed(1.0, 1.0).batch(0, 100, 0.0)])
    regions = [[i.region for i in run.all if i.region] for run in (counted, uncounted)]
    assert regions[0]
    for one, other in zip(*regions, strict=True):
        assert sum(one.took) > 0
        assert not any(other.took[1:])
        assert sum(other.gave) <= sum(one.gave) // 4, "but for the first messages, by which shapes are learned"
