"""Weights of a pool's instances, on a virtual clock: the pool tells its policy how long turns take."""

from __future__ import annotations

import random

import pytest

from edgert.core.clock import VirtualClock
from edgert.runtime.instance.instance import Instance
from edgert.runtime.pool.pool import Pool
from edgert.runtime.pool.thread_roles import FAST_TURNS
from edgert.scheduling.consumption import at_most
from edgert.scheduling.policies import POLICIES
from tests.runtime.pools import Pass, instance, rows

COSTS_S = (0.002, 0.01, 0.05)


def busy(pool: Pool, instances: list[Instance], turns: int) -> list[float]:
    """Seconds of each in so many turns of a lent thread, all of them with rows at any time."""
    before = [one.counters.busy_s for one in instances]
    for _ in range(turns):
        for one in instances:
            one.schedule.fast_turns = FAST_TURNS  # there is no worker to whom a slow one could be left
            if one.queue.rows < 3:
                pool.put([(one, 0, rows(*range(10)))])
        pool.lend(1e-9)
    return [one.counters.busy_s - b for one, b in zip(instances, before, strict=True)]


def spending(clock: VirtualClock, cost_s: float) -> Pass:
    return Pass(lambda batch: clock.advance(cost_s * len(batch.rows)))


@pytest.mark.parametrize("name", POLICIES)
def test_instances_get_time_by_weight_whatever_their_turns_cost(name: str) -> None:
    seed = 23
    print(f"seed {seed}")
    clock = VirtualClock(monotonic=5.0)
    instances = [instance(f"i{n}", spending(clock, cost_s)) for n, cost_s in enumerate(COSTS_S)]
    pool = Pool(clock, workers=0, policy=POLICIES[name](random.Random(seed).random), consumption=at_most(1))
    pool.add(instances)
    busy(pool, instances, 500)  # what was used before anybody was weighed counts for nothing
    pool.weigh(instances[:1], 4.0)
    pool.weigh(instances[1:2], 0.5)
    spent = busy(pool, instances, 8_000)
    assert [s / sum(spent) for s in spent] == pytest.approx([4 / 5.5, 0.5 / 5.5, 1 / 5.5], rel=0.05)


def test_an_instance_that_comes_later_has_weight_1_and_no_arrears() -> None:
    clock = VirtualClock(monotonic=5.0)
    first, second = (instance(f"i{n}", spending(clock, 0.01)) for n in range(2))
    pool = Pool(clock, workers=0, consumption=at_most(1))
    pool.add([first])
    pool.weigh([first], 3.0)
    busy(pool, [first], 1_000)
    pool.add([second])
    spent = busy(pool, [first, second], 2_000)
    assert spent[0] / spent[1] == pytest.approx(3.0, rel=0.05)
    assert pool.hold([first], 60.0)
    pool.remove([first])
    assert not pool.policy.weighed, "nobody is left with another weight than 1"
