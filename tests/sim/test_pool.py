"""The simulated pool against the formulas of queueing theory, and policies against each other. Seeds are printed."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.scheduling.consumption import CONSUMPTIONS, at_most, everything
from edgert.scheduling.in_turn import RoundRobin
from edgert.scheduling.policies import POLICIES
from edgert.scheduling.profile import Profile
from edgert.scheduling.queueing import balanced_weights, input_ratios, sustainable_rate
from edgert.sim.pool import COLD_AFTER_S, Simulation, exponential, poisson, regular
from tests.sim.formulas import demands_s, queue_time_s

CHAIN = {0: [1], 1: [2], 2: []}
UNEVEN = {0: Profile(0.001, 1.0), 1: Profile(0.006, 0.5), 2: Profile(0.002, 1.0)}


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_rows_wait_as_long_as_the_formula_says(load: float) -> None:
    """One instance, one worker, Poisson arrivals, exponential service: M/M/1."""
    draw = random.Random(1).random
    made = Simulation({0: []}, {0: Profile(0.01, 1.0)}, RoundRobin(), at_most(1), cost=exponential(draw))
    outcome = made.run(poisson(100 * load, draw), 2_000.0, 10.0)
    seen = outcome.instances[0]
    assert seen.waited_s / seen.rows == pytest.approx(queue_time_s(100 * load, 100.0), rel=0.1)
    assert seen.utilisation(outcome.span_s) == pytest.approx(load, rel=0.03)
    assert seen.area / outcome.span_s == pytest.approx(load * load / (1 - load), rel=0.1), "Little's law"


def test_demands_weights_and_the_rate_they_bear() -> None:
    assert input_ratios(CHAIN, UNEVEN) == {0: 1.0, 1: 1.0, 2: 0.5}
    demands = demands_s(CHAIN, UNEVEN)
    assert demands == pytest.approx({0: 0.001, 1: 0.006, 2: 0.001})
    weights = balanced_weights(demands, 2.0)
    assert weights == pytest.approx({0: 0.25, 1: 1.5, 2: 0.25})
    assert sustainable_rate(demands, weights) == pytest.approx(250.0)
    assert sustainable_rate(demands, dict.fromkeys(demands, 2 / 3)) == pytest.approx(2 / 3 / 0.006)
    assert queue_time_s(1.0, 1.0) == math.inf


@given(st.lists(st.tuples(st.floats(1e-6, 1.0), st.floats(0.01, 2.0)), min_size=1, max_size=6), st.floats(0.5, 8.0))
def test_no_other_weights_bear_more_than_the_balanced_ones(profiles: list[tuple[float, float]], cores: float) -> None:
    graph = {k: [k + 1] if k + 1 < len(profiles) else [] for k in range(len(profiles))}
    demands = demands_s(graph, {k: Profile(*p) for k, p in enumerate(profiles)})
    best = sustainable_rate(demands, balanced_weights(demands, cores))
    assert best == pytest.approx(cores / sum(demands.values()), rel=1e-9)
    even = dict.fromkeys(demands, cores / len(demands))
    assert sustainable_rate(demands, even) <= best * (1 + 1e-9)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("consumption", sorted(CONSUMPTIONS))
def test_every_policy_bears_what_the_model_says_a_pool_can(policy: str, consumption: str) -> None:
    """A pool is never idle while rows wait, so at 90 % of the sustainable rate no queue grows without end."""
    seed = 3
    print(f"seed {seed}")
    draw = random.Random(seed).random
    demands = demands_s(CHAIN, UNEVEN)
    rate = 0.9 * sustainable_rate(demands, balanced_weights(demands, 1.0))
    made = Simulation(CHAIN, UNEVEN, POLICIES[policy](draw), CONSUMPTIONS[consumption](50))
    outcome = made.run(poisson(rate, draw), 60.0, 10.0)
    assert outcome.left == pytest.approx(outcome.entered * 0.5, rel=0.03)
    assert outcome.waiting < rate * 2
    assert sum(s.computing_s for s in outcome.instances.values()) / outcome.span_s == pytest.approx(0.9, rel=0.05)


@pytest.mark.parametrize("policy", POLICIES)
def test_short_of_its_limit_a_pool_gives_every_instance_the_balanced_part(policy: str) -> None:
    """w_i ∝ q_i c_i, whatever the policy, at 0.95 times the rate that the formula says: nobody falls behind. (Policies
    differ in how much waits meanwhile.)"""
    seed = 5
    print(f"seed {seed}")
    draw = random.Random(seed).random
    demands = demands_s(CHAIN, UNEVEN)
    rate = 0.95 * sustainable_rate(demands, balanced_weights(demands, 1.0))
    outcome = Simulation(CHAIN, UNEVEN, POLICIES[policy](draw), at_most(50)).run(poisson(rate, draw), 60.0, 10.0)
    busy = {k: seen.busy_s / outcome.span_s for k, seen in outcome.instances.items()}
    weights = balanced_weights(demands, 1.0)
    assert busy == pytest.approx({k: 0.95 * weight for k, weight in weights.items()}, rel=0.06)


@pytest.mark.parametrize("load", [0.8, 1.2])
@pytest.mark.parametrize("way", ["balanced", "even"])
def test_with_weights_queues_grow_where_the_formula_says(way: str, load: float) -> None:
    """A worker per instance, each as fast as its weight. By even weights the sustainable rate is less than half."""
    seed = 7
    print(f"seed {seed}")
    draw = random.Random(seed).random
    demands = demands_s(CHAIN, UNEVEN)
    weights = {"balanced": balanced_weights(demands, 2.0), "even": dict.fromkeys(demands, 2 / 3)}[way]
    profiles = {k: Profile(seen.cost_s / weights[k], seen.selectivity) for k, seen in UNEVEN.items()}
    rate = load * sustainable_rate(demands, weights)
    made = Simulation(CHAIN, profiles, RoundRobin(), at_most(1), workers=3, cost=exponential(draw))
    outcome = made.run(poisson(rate, draw), 200.0, 10.0)
    if load > 1.0:
        assert outcome.waiting > (rate - rate / load) * 200.0 * 0.8, "what is more than it bears is left"
        return
    assert outcome.waiting < 100
    for k in (0, 1):  # the last one gets every second row of another, which is no Poisson process
        seen = outcome.instances[k]
        assert seen.waited_s / seen.rows == pytest.approx(queue_time_s(rate, 1 / profiles[k].cost_s), rel=0.15)


def test_rows_that_a_policy_starves_are_not_left_out_of_its_latency() -> None:
    """Two ways: a quick one that takes all the time there is, and one whose rows wait."""
    graph: dict[int, list[int]] = {0: [], 1: []}
    profiles = {0: Profile(0.010, 1.0), 1: Profile(0.001, 1.0)}
    made = Simulation(graph, profiles, POLICIES["min-latency"](random.Random(1).random), everything)
    outcome = made.run(regular(200.0), 50.0)
    assert outcome.waiting > 4_000
    (median, out), (late, came_out) = outcome.latency_s(0.2), outcome.latency_s(0.9)
    assert (out, came_out) == (True, False)
    assert median < 0.1
    assert late > 20.0


def test_rows_behind_a_fork_weigh_as_many_as_will_come_out() -> None:
    graph = {0: [1, 2, 3], 1: [], 2: [], 3: [4], 4: []}
    profiles = {k: Profile(1e6 if k else 0.0, 0.5 if k == 3 else 1.0) for k in graph}
    made = Simulation(graph, profiles, RoundRobin(), everything, copies=[[1, 2]])
    outcome = made.run(iter([1.0, 1e9]).__next__, 10.0)
    assert outcome.ages_s == [(9.0, 0.5), (9.0, 1.0)], "one of the copies, and half of it behind the other way"
    nothing = Simulation(graph, profiles, RoundRobin(), everything).run(iter([1e9]).__next__, 10.0)
    assert math.isnan(nothing.latency_s(0.5)[0])


def test_rows_are_neither_lost_nor_doubled() -> None:
    for seed in range(20):
        draw = random.Random(seed)
        size = draw.randint(1, 6)
        graph = {k: [j for j in range(k + 1, size) if draw.random() < 0.5] for k in range(size)}
        profiles = {k: Profile(draw.uniform(0.0, 0.004), 1.0) for k in graph}
        policy = POLICIES[draw.choice(sorted(POLICIES))](draw.random)
        consumption = CONSUMPTIONS[draw.choice(sorted(CONSUMPTIONS))](draw.randint(1, 60))
        made = Simulation(graph, profiles, policy, consumption, workers=draw.randint(1, 3))
        outcome = made.run(regular(20.0), 10.0)
        came = {k: outcome.instances[k].rows + len(made._instances[k].queue) for k in graph}
        under_way = {k: len(turn) for _, _, k, turn in made._events if turn}
        gave = {k: outcome.instances[k].rows - under_way.get(k, 0) for k in graph}
        fed = {j for targets in graph.values() for j in targets}
        for j in fed:
            assert came[j] == sum(gave[i] for i in graph if j in graph[i]), f"seed {seed}"
        assert sum(came[k] for k in graph if k not in fed) == outcome.entered > 0, f"seed {seed}"
        assert sum(gave[k] for k, targets in graph.items() if not targets) == outcome.left, f"seed {seed}"


def test_a_turn_takes_no_more_rows_than_the_real_pool_does() -> None:
    """10 ms; or 10 rows, if these take no longer than 0.2 s; or one."""
    for cost_s, most in ((0.001, 10), (0.0001, 100), (0.01, 10), (0.05, 4), (0.5, 1)):
        made = Simulation({0: []}, {0: Profile(cost_s, 1.0)}, RoundRobin(), everything)
        seen = made.run(regular(2.0 / cost_s), 1_000 * cost_s).instances[0]
        assert most / 2 < seen.rows / seen.turns <= most, "shorter ones only while the queue grows"
        assert seen.busy_s == pytest.approx(1_000 * cost_s, rel=0.01)


def test_min_latency_has_less_latency_than_first_come_first_served_and_min_memory_shorter_queues() -> None:
    """The first drops four rows of five, and is quick: Chain takes rows through it before it turns to the slow one."""
    outcomes = {}
    for name in ("round-robin", "random", "min-latency", "min-memory", "congestion-aware"):
        draw = random.Random(11).random
        profiles = {0: Profile(0.002, 0.2), 1: Profile(0.001, 1.0), 2: Profile(0.010, 1.0)}
        made = Simulation(CHAIN, profiles, POLICIES[name](draw), at_most(1))
        outcomes[name] = made.run(poisson(175.0, draw), 300.0, 10.0)
    queued = {n: sum(s.area for s in o.instances.values()) for n, o in outcomes.items()}
    assert outcomes["min-latency"].latency_s(0.5)[0] < outcomes["round-robin"].latency_s(0.5)[0]
    assert queued["min-memory"] == min(queued.values())


def test_taking_everything_makes_fewer_turns() -> None:
    outcomes = []
    for consumption in (at_most(1), everything):
        draw = random.Random(5).random
        made = Simulation(CHAIN, UNEVEN, RoundRobin(), consumption, turn_s=dict.fromkeys(CHAIN, 0.0005))
        outcomes.append(made.run(poisson(100.0, draw), 100.0, 10.0))
    few, many = outcomes[1], outcomes[0]
    assert sum(s.turns for s in few.instances.values()) < 0.8 * sum(s.turns for s in many.instances.values())
    assert 0.0 < few.balance() < 1.0


def test_where_nothing_happens_after_the_warm_up_all_are_idle_alike() -> None:
    made = Simulation(CHAIN, UNEVEN, RoundRobin(), everything)
    outcome = made.run(iter([1.0, 1e9]).__next__, 10.0, 5.0)
    assert (outcome.entered, outcome.left, outcome.balance()) == (0, 0, 0.0)
    assert [seen.utilisation(outcome.span_s) for seen in outcome.instances.values()] == [0.0, 0.0, 0.0]


def test_rows_that_come_while_nothing_is_read_enter_together() -> None:
    """ms   0 1 2 3 4 5 6 7 8 9 10 ...    arrivals at every one
    reads     ^         ^         ^         5 ms apart
    """
    profiles = {k: Profile(0.0, 1.0) for k in CHAIN}
    made = Simulation(CHAIN, profiles, RoundRobin(), everything)
    outcome = made.run(regular(1_000.0), 1.0, pause_s=0.005)
    turns = [seen.turns for seen in outcome.instances.values()]
    assert turns == pytest.approx([200] * 3, rel=0.02), "whoever is behind the source has as many turns"
    assert outcome.entered == pytest.approx(1_000, rel=0.01)
    assert outcome.latency_s(0.5)[0] == pytest.approx(0.002, abs=0.0011), "it counts from a row's own arrival"
    assert outcome.latency_s(0.99)[0] == pytest.approx(0.004, abs=0.0011)
    few = Simulation(CHAIN, profiles, RoundRobin(), everything).run(regular(100.0), 1.0, pause_s=0.005)
    assert few.latency_s(0.99)[0] == 0.0, "whoever comes after the pause is read at once"


def test_rows_that_have_come_and_were_not_read_at_the_end_wait_at_their_source() -> None:
    """s    0  0.25  0.5  0.75  1.0     arrivals at every quarter but 0
    reads      ^                  the next would be at 1.25"""
    profiles = {k: Profile(0.0, 1.0) for k in CHAIN}
    outcome = Simulation(CHAIN, profiles, RoundRobin(), everything).run(regular(4.0), 1.0, pause_s=1.0)
    assert (outcome.entered, outcome.left, outcome.waiting) == (4, 1, 3)
    assert outcome.ages_s == [(0.0, 1.0), (0.25, 1.0), (0.5, 1.0)]
    assert outcome.latency_s(0.99) == (0.5, False)


def test_a_turn_costs_more_after_a_rest() -> None:
    for rate, beside_s in ((100.0, 0.0013), (500.0, 0.0003 + 0.001 * (0.002 - 0.0007) / COLD_AFTER_S)):
        made = Simulation({0: []}, {0: Profile(0.0, 1.0)}, RoundRobin(), everything, turn_s={0: 3e-4}, cold_s={0: 1e-3})
        seen = made.run(regular(rate), 10.0, 1.0).instances[0]
        assert seen.busy_s / seen.turns == pytest.approx(beside_s, rel=0.05), rate
    made = Simulation({0: []}, {0: Profile(0.001, 1.0)}, RoundRobin(), everything, turn_s={0: 3e-4}, cold_s={0: 1e-3})
    seen = made.run(regular(2_000.0), 10.0, 1.0).instances[0]
    assert seen.busy_s - seen.computing_s == pytest.approx(3e-4 * seen.turns, rel=0.05), "without one it is warm"


def test_an_instance_may_give_each_other_as_it_likes_and_have_sinks_in_it() -> None:
    graph: dict[int, list[int]] = {0: [1, 2], 1: [], 2: []}
    profiles = {k: Profile(0.0, 0.5) for k in graph}
    made = Simulation(
        graph, profiles, RoundRobin(), everything, gives={(0, 1): 0.25, (0, 2): 2.0}, ends={0: 1.5, 1: 1.0, 2: 1.0}
    )
    outcome = made.run(regular(64.0), 10.0)
    taken = [outcome.instances[k].rows / outcome.entered for k in graph]
    assert taken == pytest.approx([1.0, 0.25, 2.0], rel=0.01)
    assert outcome.left / outcome.entered == pytest.approx(3.75, rel=0.01)
