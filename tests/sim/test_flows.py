"""A planned flow as what the simulated pool runs."""

from __future__ import annotations

import pytest

from edgert.flow.document import from_plain
from edgert.flow.physical import Fusion, plan
from edgert.operators.registry import REGISTRY
from edgert.scheduling.profile import Profile
from edgert.sim.flows import DECODER_S, STAGE_S, TURN_S, WAKE_S, model, rows_per_row
from tests.sim.formulas import demands_s

TWO = from_plain(
    {
        "name": "two",
        "operators": {
            "a": {"type": "mqtt_source", "topic": "a/{source}"},
            "by": {"type": "key_by", "input": "a", "keys": ["source"]},
            "tenth": {"type": "count_window", "input": "by", "size": 10, "aggregates": {"m": "mean(x)"}},
            "all": {"type": "publish", "input": "a", "topic": "all/{source}"},
            "b": {"type": "mqtt_source", "topic": "b/{source}"},
            "beside": {"type": "join_latest", "inputs": ["b", "tenth"], "fields": ["m"]},
            "out": {"type": "publish", "input": "beside", "topic": "out/{source}"},
        },
    },
    REGISTRY,
)
"""a ─┬─ all          b ─┐
   └─ tenth ──────────┴─ beside ── out"""
PROFILES = {
    "a": Profile(4e-6, 1.0), "tenth": Profile(2e-6, 0.1), "all": Profile(1e-6, 1.0), "b": Profile(3e-6, 1.0),
    "beside": Profile(5e-6, 0.5), "out": Profile(1e-6, 1.0),
}  # fmt: skip


def test_a_region_costs_what_its_parts_do_and_gives_by_each_exit_what_leaves_there() -> None:
    physical = plan(TWO, REGISTRY)
    assert list(physical.instances) == ["a+all+tenth", "b", "beside+out"]
    made = model(physical, PROFILES, slower=2.0)
    assert made.downstream == {0: [2], 1: [2], 2: []}
    assert made.gives == pytest.approx({(0, 2): 0.1, (1, 2): 1.0})
    assert made.ends == pytest.approx({0: 1.0, 1: 0.0, 2: 0.5})
    assert [made.profiles[k].cost_s for k in range(3)] == pytest.approx([7e-6, 3e-6, 5.5e-6])
    assert made.turn_s == pytest.approx(dict.fromkeys(range(3), 2 * TURN_S))
    woken_s = WAKE_S + DECODER_S
    cold = [3 * STAGE_S + woken_s, STAGE_S + woken_s, 2 * STAGE_S]
    assert [made.cold_s[k] for k in range(3)] == pytest.approx([2 * s for s in cold])


@pytest.mark.parametrize("fusion", ["full", "lines", "chains", "none"])
def test_however_it_is_fused_a_row_costs_the_same(fusion: Fusion) -> None:
    apart = plan(TWO, REGISTRY, "chains")
    ratios = rows_per_row(apart, PROFILES)
    assert ratios == pytest.approx({"a": 1.0, "tenth": 1.0, "all": 1.0, "b": 1.0, "beside": 1.1, "out": 0.55})
    made = model(plan(TWO, REGISTRY, fusion), PROFILES)
    whole = sum(demands_s(made.downstream, made.profiles).values())
    assert whole == pytest.approx(sum(ratios[name] * PROFILES[name].cost_s for name in ratios))
