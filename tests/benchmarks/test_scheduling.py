"""The benchmark of the scheduler, in short."""

from __future__ import annotations

import pytest

from benchmarks.scheduling import choice, counting
from edgert.scheduling.policies import POLICIES


@pytest.mark.parametrize("policy", POLICIES)
def test_a_choice_costs_something(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "CHOICES", 500)
    assert -0.1 < choice.cost_us(policy, 20) < 1_000


def test_both_pools_do_all_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "SEGMENTS", 2)
    monkeypatch.setattr(counting, "ROUNDS", 2)
    told = counting.measure(50, "chains")
    assert told["counted"] > 0
    assert told["own"] > -0.9
    assert 0.0 < told["policy"] < 10
