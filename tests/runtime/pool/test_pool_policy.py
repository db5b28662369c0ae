"""What a pool tells its policy beside rows: the graph, and what rows cost and give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from edgert.core.batch import Batch, RawBatch
from edgert.core.system_clock import SystemClock
from edgert.operators.base.logic import Emission, Logic, Now
from edgert.runtime.instance.edges import Spread, Target
from edgert.runtime.pool.pool import Pool
from edgert.scheduling.congestion_aware import CongestionAware
from edgert.scheduling.profile import Profile, outputs
from edgert.scheduling.queueing import input_ratios
from tests.runtime.pools import DEADLINE_S, Pass, instance, rows


def test_the_policy_is_told_the_graph_and_what_rows_cost_and_give() -> None:
    class Told(CongestionAware):
        def __init__(self) -> None:
            super().__init__()
            self.graphs: list[object] = []
            self.profiles: list[dict[int, Profile]] = []

        def connect(self, downstream: Mapping[int, Sequence[int]]) -> None:
            self.graphs.append({k: list(v) for k, v in downstream.items()})

        def profile(self, profiles: Mapping[int, Profile]) -> None:
            self.profiles.append(dict(profiles))

    class Half(Logic):
        waits = False  # or it would begin with a row per turn

        def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
            assert isinstance(batch, Batch)
            return (Emission(0, Batch(batch.rows[::2], 0.0)),)

    policy = Told()
    after = instance("after", Pass())
    before = instance("before", Half(), after)
    pool = Pool(SystemClock(), policy=policy)
    pool.add([before, after])
    assert policy.graphs[-1] == {0: [1], 1: []}
    pool.start()
    try:
        pool.profile()
        pool.put([(before, 0, rows(*range(300)))])
        assert pool.wait_empty([before, after], DEADLINE_S)
        pool.profile()
        pool.profile()
    finally:
        pool.stop()
    (found,) = policy.profiles
    assert (found[0].selectivity, found[1].selectivity) == (0.5, 1.0)
    assert all(0 < p.cost_s < 1.0 for p in found.values())
    assert pool.hold([before], DEADLINE_S)
    pool.remove([before])
    assert policy.graphs[-1] == {1: []}


def test_a_row_to_one_of_several_copies_is_not_a_row_to_each() -> None:
    """A window gives results to two copies of an operator, and contributions to another: all that it gives was told as
    if each got it."""
    window, one, two, ship = (instance(name, Pass()) for name in ("window", "alert#1", "alert#2", "ship"))
    copies = Spread([Target(one, 0), Target(two, 0)], lambda rows: ([*rows[:1]], [*rows[1:]]))
    window.edges.outputs = {0: [copies], 1: [Target(ship, 0)]}
    window.counters.rows_in, window.counters.busy_s = 400, 0.4
    for port in (0, 1):
        window.edges.give(Emission(port, rows(*range(100))), 0, [])
    told = window.schedule.take_profile(window.counters, window.edges)
    assert told is not None
    assert told == pytest.approx((0.001, 100 / 400, 200 / 400 / 3))
    ends = {0: [1, 2, 3], 1: [], 2: [], 3: []}
    assert outputs(ends, {0: told})[0].rows == pytest.approx(200 / 400)
    ratios = input_ratios(ends, {0: told})
    assert sum(ratios[k] for k in (1, 2, 3)) == pytest.approx(200 / 400)
