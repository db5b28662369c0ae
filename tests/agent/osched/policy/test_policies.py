"""Policies: priorities by hand for small reports."""

from __future__ import annotations

import random

import pytest

from agent.drivers.entities import EngineReport, Operator, Query
from agent.osched.policy.metric_graph import METRICS, MetricProvider
from agent.osched.policy.policies import POLICIES

OPERATORS = {
    "a": Operator("a", "fast", successors=("b",)),
    "b": Operator("b", "fast"),
    "c": Operator("c", "any"),
}


def priorities(policy: str, **metrics: dict[str, float]) -> dict[str, float]:
    queries = {"fast": Query("fast", latency_s=0.1), "any": Query("any")}
    report = EngineReport("e", OPERATORS, queries, metrics)
    chosen, provider = POLICIES[policy], MetricProvider(report)
    return dict(chosen.compute(report, {m: provider.get(m) for m in chosen.metrics}, random.Random(1).random))


def test_queue_size_and_fcfs_are_their_metrics() -> None:
    assert priorities("qs", queue_size={"a": 5, "b": 0, "c": 2}) == {"a": 5, "b": 0, "c": 2}
    assert priorities("fcfs", head_age_s={"a": 0.5, "b": 0, "c": 2}) == {"a": 0.5, "b": 0, "c": 2}


def test_an_operator_whose_successor_is_congested_is_not_raised_by_input_output_queue() -> None:
    found = priorities("ioq", queue_size={"a": 9, "b": 99, "c": 9})
    assert found == {"a": 10 / 100, "b": 100, "c": 10}


def test_input_output_queue_looks_at_the_longest_queue_of_all_successors() -> None:
    operators = {"a": Operator("a", "q", successors=("b", "c")), "b": Operator("b", "q"), "c": Operator("c", "q")}
    report = EngineReport("e", operators, metrics={"queue_size": {"a": 9.0, "b": 99.0, "c": 0.0}})
    assert MetricProvider(report).get("input_output_queue")["a"] == 10 / 100


def test_slack_grows_urgent_as_the_deadline_of_an_operator_comes_near() -> None:
    # costs 1 : 3, so a should be through after 25 ms of the 100, b after 100
    cost = {"a": 1.0, "b": 3.0, "c": 1.0}
    found = priorities("slack", cost_s=cost, head_age_s={"a": 0.020, "b": 0.050, "c": 9.0})
    assert found["a"] == pytest.approx(1 / 0.05)
    assert found["b"] == pytest.approx(1 / 0.5)
    assert found["c"] == 1.0, "a query without a latency waits for those with one"


def test_slack_is_most_urgent_after_an_operators_deadline_and_none_after_the_flows() -> None:
    cost = {"a": 1.0, "b": 3.0, "c": 1.0}
    found = priorities("slack", cost_s=cost, head_age_s={"a": 0.090, "b": 0.101, "c": 0.0})
    assert found == {"a": 100.0, "b": 0.0, "c": 1.0}


def test_random_draws_for_each_operator_and_constant_does_not() -> None:
    assert len(set(priorities("random").values())) == 3
    assert priorities("constant") == {"a": 1.0, "b": 1.0, "c": 1.0}


def test_every_policy_asks_for_metrics_that_exist() -> None:
    for name, policy in POLICIES.items():
        assert policy.name == name
        assert set(policy.metrics) <= set(METRICS)
