"""Weights in virtual time: shares of the workers' time follow them, whatever the policy, and nobody starves."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.scheduling.congestion_aware import CongestionAware
from edgert.scheduling.consumption import CONSUMPTIONS
from edgert.scheduling.policies import POLICIES, Policy
from edgert.scheduling.profile import Profile
from edgert.scheduling.ranked import MinLatency
from edgert.scheduling.shares import CREDIT, LEAST, MOST, Shares
from edgert.sim.pool import Outcome, Simulation, exponential, regular

SPAN_S, WARM_UP_S = 120.0, 5.0
WEIGHTS = {0: 1.0, 1: 2.0, 2: 4.0, 3: 0.5, 4: 1.0}
COSTS_S = {0: 0.001, 1: 0.02, 2: 0.004, 3: 0.03, 4: 0.1}
"""A row of one costs a hundred times what a row of another does."""


def run(
    policy: Policy,
    costs_s: Mapping[int, float],
    weights: Mapping[int, float],
    rate: float,
    *,
    consumption: str = "at-most",
    workers: int = 1,
    draw: Callable[[], float] | None = None,
    span_s: float = SPAN_S,
) -> dict[int, float]:
    """Seconds of a worker that each instance had per second. They feed nobody, and each gets `rate` rows a second."""
    made = Simulation(
        {k: [] for k in costs_s}, {k: Profile(cost_s, 1.0) for k, cost_s in costs_s.items()}, policy,
        CONSUMPTIONS[consumption](50), workers=workers, cost=exponential(draw or random.Random(1).random),
    )  # fmt: skip
    for k, weight in weights.items():
        policy.weigh(k, weight)
    outcome: Outcome = made.run(regular(rate), span_s, WARM_UP_S)
    return {k: seen.busy_s / span_s for k, seen in outcome.instances.items()}


def by_weight(weights: Mapping[int, float], seconds: float = 1.0) -> dict[int, float]:
    return {k: seconds * weight / sum(weights.values()) for k, weight in weights.items()}


def too_much(costs_s: Mapping[int, float], weights: Mapping[int, float], workers: int = 1) -> float:
    """A rate at which each instance wants half again as much time as it can get."""
    return max(1.5 * part / costs_s[k] for k, part in by_weight(weights, workers).items())


@pytest.mark.parametrize("consumption", CONSUMPTIONS)
@pytest.mark.parametrize("name", POLICIES)
def test_under_saturation_shares_of_time_follow_the_weights(name: str, consumption: str) -> None:
    seed = 17
    print(f"seed {seed}")
    draw = random.Random(seed).random
    rate = too_much(COSTS_S, WEIGHTS)
    shares = run(POLICIES[name](draw), COSTS_S, WEIGHTS, rate, consumption=consumption, draw=draw)
    assert shares == pytest.approx(by_weight(WEIGHTS), rel=0.05)


@pytest.mark.parametrize("seed", range(12))
def test_shares_follow_any_weights_at_any_costs(seed: int) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    count = draw.randint(2, 8)
    weights = {k: draw.choice([0.25, 0.5, 1.0, 1.5, 3.0, 4.0]) for k in range(count)}
    costs_s = {k: 10 ** draw.uniform(-3.0, -1.5) for k in range(count)}
    policy = POLICIES[draw.choice(sorted(POLICIES))](draw.random)
    span_s = 10.0 / min(by_weight(weights).values())  # a lead and the longest turn are 2.5 % of the least share
    shares = run(policy, costs_s, weights, too_much(costs_s, weights), draw=draw.random, span_s=span_s)
    assert shares == pytest.approx(by_weight(weights), rel=0.05)


@pytest.mark.parametrize("name", POLICIES)
def test_several_workers_divide_their_time_by_weight(name: str) -> None:
    """The greatest weight is due 1.9 of 3 workers, and can use but one: the others divide the rest."""
    seed = 3
    print(f"seed {seed}")
    draw = random.Random(seed).random
    weights = {0: 7.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 0.5, 5: 0.5}
    costs_s = {k: 0.005 + 0.003 * k for k in weights}
    shares = run(POLICIES[name](draw), costs_s, weights, 250.0, workers=3, draw=draw)
    rest = {k: weight for k, weight in weights.items() if k}
    assert shares == pytest.approx({0: 1.0} | by_weight(rest, 2.0), rel=0.05)


@pytest.mark.parametrize("name", POLICIES)
def test_time_that_nobody_wants_is_divided_among_the_others(name: str) -> None:
    """The first wants a tenth of the time and is due half of it."""
    draw = random.Random(5).random
    weights = {0: 4.0, 1: 1.0, 2: 3.0}
    shares = run(POLICIES[name](draw), {0: 0.0005, 1: 0.01, 2: 0.02}, weights, 200.0, draw=draw)
    assert shares == pytest.approx({0: 0.1, 1: 0.9 / 4, 2: 0.9 * 3 / 4}, rel=0.05)


@pytest.mark.parametrize("name", POLICIES)
def test_nobody_starves_beside_one_of_a_thousand_times_its_weight(name: str) -> None:
    draw = random.Random(9).random
    weights = {0: 10.0, 1: 0.01, 2: 0.01}
    shares = run(POLICIES[name](draw), {0: 0.002, 1: 0.0001, 2: 0.0001}, weights, 600.0, draw=draw)
    assert min(shares[1], shares[2]) > 0.5 * 0.01 / 10.0
    assert shares[0] > 0.99


def test_with_weights_a_policy_that_would_starve_one_does_not() -> None:
    """Nearest to the sink first: of two alike the one that gives more rows per second always."""
    costs_s = {0: 0.01, 1: 0.002}
    assert run(MinLatency(), costs_s, {}, 600.0)[0] < 0.01
    assert run(MinLatency(), costs_s, {0: 3.0}, 600.0) == pytest.approx({0: 0.75, 1: 0.25}, rel=0.05)


def test_ageing_scales_with_the_weight() -> None:
    """The others are ahead by so much, per weight of the one that waits, before it goes first."""
    for weight in (1.0, 2.0, 4.0):
        shares = Shares((0, 1), (0, 1), lead_s=0.1)
        shares.weigh(0, weight)
        waited = 0.0
        while shares.choose(1, None) == 1:
            shares.left(1)
            shares.ran(1, 0.001)
            shares.entered(1)
            waited += 0.001
        assert waited == pytest.approx(0.1 / weight, abs=0.0015)


def test_time_that_an_idle_instance_did_not_use_is_not_made_up_for() -> None:
    shares = Shares((0, 1), (0, 1), lead_s=0.1)
    shares.left(0)
    for _ in range(1_000):
        assert shares.choose(1, None) == 1
        shares.left(1)
        shares.ran(1, 0.01)
        shares.entered(1)
    shares.entered(0)
    alone_s = 0.0
    while shares.choose(1, None) == 0:
        shares.left(0)
        shares.ran(0, 0.01)
        shares.entered(0)
        alone_s += 0.01
    assert 0.0 < alone_s <= CREDIT * 0.1 + 0.02


@pytest.mark.parametrize("name", POLICIES)
def test_an_instance_whose_weight_is_raised_does_not_starve(name: str) -> None:
    """At weight 0.001 a turn of 0.1 s counts as 100 s; with weight 1 it is 0.1 s again."""
    policy = POLICIES[name](random.Random(1).random)
    costs_s = {0: 0.01, 1: 0.01, 2: 0.1}
    for instance in costs_s:
        policy.add(instance)
    policy.connect({instance: [] for instance in costs_s})
    for instance, weight in {0: 2.0, 1: 1.0, 2: LEAST}.items():
        policy.rows_added(instance, 1_000_000)
        policy.weigh(instance, weight)
    now, ran_at, longest = 0.0, 0.0, 0.0
    while now < 40.0:
        if ran_at == 0.0 and now >= 10.0:
            policy.weigh(2, 1.0)
            ran_at = now
        chosen = policy.choose(now)
        assert chosen is not None
        policy.rows_taken(chosen, 1)
        policy.busy(chosen)
        now += costs_s[chosen]
        policy.ran(chosen, costs_s[chosen])
        policy.free(chosen)
        if chosen == 2 and ran_at:
            longest, ran_at = max(longest, now - ran_at), now
    assert 0.0 < longest < 1.0


@pytest.mark.parametrize("weight", [0.0, -1.0, LEAST / 2, MOST * 2, float("nan"), float("inf"), True, "2", None])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    policy = CongestionAware()
    policy.add(0)
    with pytest.raises(ValueError, match=r"^expected a weight from 0\.001 to 1000, got "):
        policy.weigh(0, weight)
    assert not policy.weighed


TOLD = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 99), st.floats(0.0, 0.1)), max_size=60)


@pytest.mark.parametrize("name", POLICIES)
@given(told=TOLD, weighed=st.booleans())
def test_weight_1_changes_no_choice(name: str, told: list[tuple[int, int, float]], weighed: bool) -> None:
    """Set at the beginning, or set to something else and back."""
    policies = [POLICIES[name](random.Random(1).random) for _ in range(2)]
    for policy in policies:
        for k in range(5):
            policy.add(k)
    for k in range(5):
        if weighed:
            policies[1].weigh(k, 7.0)
        policies[1].weigh(k, 1.0)
    assert not policies[1].weighed
    now = 0.0
    for k, rows, took_s in told:
        now += took_s
        for policy in policies:
            policy.rows_added(k, rows)
        chosen = policies[0].choose(now)
        assert chosen is not None
        assert policies[1].choose(now) == chosen
        for policy in policies:
            policy.busy(chosen)
            policy.rows_taken(chosen, 1)
            policy.ran(chosen, took_s)
            policy.free(chosen)
