"""What a pool tells its policy beside rows: the graph, and what rows cost and give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgert.core.batch import Batch, RawBatch
from edgert.core.system_clock import SystemClock
from edgert.operators.base.logic import Emission, Logic, Now
from edgert.runtime.pool.pool import Pool
from edgert.scheduling.congestion_aware import CongestionAware
from edgert.scheduling.profile import Profile
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
