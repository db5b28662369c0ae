"""A few seeds of the fault harness."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults import plan
from tests.faults.__main__ import SCENES
from tests.faults.run import run

SEEDS = (153, 2039, *(pytest.param(seed, marks=pytest.mark.long) for seed in (242, 239)))
"""Faults of nearly all kinds, with and without slots; in 2039 the flow gets other windows, then the old ones."""
AT_LEAST_ONCE_SEED = 239
UNTIMED_SEED = 2
SCENE_SEEDS = {"hung-up": 5, "harmed": 3, "hostile": 3}
"""Both brokers hang up; what a loss left in the log is lost with it; a peer with MACs in its way."""
SPARK_SEEDS = (254,)
"""The fleet job's lease is taken by one that dies, then the job is killed."""


@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_or_doubled_up_to_the_landing_table(seed: int, tmp_path: Path) -> None:
    outcome = run(plan.make(seed), tmp_path)
    print(plan.make(seed), *outcome.told, outcome, sep="\n")
    assert not outcome.failed, f"{outcome}\nagain: python -m tests.faults --seed {seed}"
    assert outcome.messages >= 400


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_rows_without_a_time_survive_a_clock_that_is_wrong_for_a_moment(tmp_path: Path) -> None:
    outcome = run(plan.make_untimed(UNTIMED_SEED), tmp_path)
    print(outcome.plan, *outcome.told, outcome, sep="\n")
    assert not outcome.failed, f"{outcome}\nagain: python -m tests.faults --seed {UNTIMED_SEED} --untimed"
    assert outcome.messages >= 400


@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize("faults", [1, pytest.param(99, marks=pytest.mark.long)])
@pytest.mark.parametrize(("scene", "seed"), SCENE_SEEDS.items())
def test_hang_ups_harmed_files_and_a_hostile_peer_cost_only_what_is_said(
    scene: str, seed: int, faults: int, tmp_path: Path
) -> None:
    """Only so many faults of the seed: with one it takes half as long."""
    made = SCENES[scene](seed)
    first = made.injections[:faults]
    outcome = run(replace(made, injections=first, duration_s=min(made.duration_s, first[-1].at + 1.0)), tmp_path)
    print(outcome.plan, *outcome.told, outcome, sep="\n")
    assert not outcome.failed, f"{outcome}\nagain: python -m tests.faults --seed {seed} --{scene}"
    assert outcome.messages >= 50


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_an_at_least_once_flow_loses_nothing_and_what_is_doubled_is_foreseen(tmp_path: Path) -> None:
    outcome = run(plan.make(AT_LEAST_ONCE_SEED, delivery="at-least-once"), tmp_path)
    print(outcome.plan, *outcome.told, outcome, sep="\n")
    assert not outcome.failed, (
        f"{outcome}\nagain: python -m tests.faults --seed {AT_LEAST_ONCE_SEED} --delivery at-least-once"
    )
    assert outcome.messages >= 400


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("seed", SPARK_SEEDS)
def test_nothing_is_lost_or_doubled_up_to_the_fleet_table(seed: int, tmp_path: Path) -> None:
    outcome = run(plan.make(seed, spark=True), tmp_path)
    print(plan.make(seed, spark=True), *outcome.told, outcome, sep="\n")
    assert not outcome.failed, f"{outcome}\nagain: python -m tests.faults --seed {seed} --spark"
    assert outcome.messages >= 1_000
