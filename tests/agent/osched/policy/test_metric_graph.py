"""Metrics resolved per driver (Lachesis, Figure 4 and Algorithm 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.drivers.entities import EngineReport, EntityError, Operator, Values
from agent.osched.policy.metric_graph import METRICS, MetricError, MetricProvider, OperatorMetric, primitives

CHAIN = {
    "filter": Operator("filter", "q", successors=("join", "count")),
    "join": Operator("join", "q", successors=("sink",)),
    "count": Operator("count", "q", successors=("sink",)),
    "sink": Operator("sink", "q"),
}
"""filter → join → sink, filter → count → sink."""


def test_highest_rate_of_a_graph_worked_by_hand() -> None:
    cost = {"filter": 1.0, "join": 4.0, "count": 2.0, "sink": 1.0}
    selectivity = {"filter": 0.5, "join": 2.0, "count": 0.1, "sink": 0.0}
    report = EngineReport("engine", CHAIN, metrics={"cost_s": cost, "selectivity": selectivity})
    provider = MetricProvider(report)
    # S: sink 1, join 2·1, count 0.1·1, filter 0.5·(2 + 0.1)
    assert provider.get("path_selectivity") == pytest.approx({"sink": 1, "join": 2, "count": 0.1, "filter": 1.05})
    # C: sink 1, join 4 + 2·1, count 2 + 0.1·1, filter 1 + 0.5·(6 + 2.1)
    assert provider.get("path_cost") == pytest.approx({"sink": 1, "join": 6, "count": 2.1, "filter": 5.05})
    assert provider.get("highest_rate") == pytest.approx(
        {"sink": 1, "join": 2 / 6, "count": 0.1 / 2.1, "filter": 1.05 / 5.05}
    )


def test_highest_rate_is_the_same_from_two_drivers_with_different_primitives() -> None:
    """Figure 4: engine A knows cost and selectivity by itself, engine B only counts rows and time."""
    counted: dict[str, Values] = {
        "rows_in": {"filter": 100, "join": 50, "count": 50, "sink": 105},
        "rows_out": {"filter": 50, "join": 100, "count": 5, "sink": 0},
        "busy_s": {"filter": 1.0, "join": 2.0, "count": 1.0, "sink": 1.05},
    }
    derived: dict[str, Values] = {
        "cost_s": {"filter": 0.01, "join": 0.04, "count": 0.02, "sink": 0.01},
        "selectivity": {"filter": 0.5, "join": 2.0, "count": 0.1, "sink": 0.0},
    }
    a, b = (
        MetricProvider(EngineReport(name, CHAIN, metrics=given)) for name, given in (("A", derived), ("B", counted))
    )
    assert b.get("highest_rate") == pytest.approx(a.get("highest_rate"))


def test_queue_size_is_computed_where_a_driver_counts_only_rows_sent_and_taken() -> None:
    sent = {"filter": 10.0, "join": 4.0, "count": 5.0, "sink": 0.0}
    taken = {"filter": 10.0, "join": 7.0, "count": 10.0, "sink": 2.0}
    provider = MetricProvider(
        EngineReport("engine", CHAIN, metrics={"rows_sent_total": sent, "rows_taken_total": taken})
    )
    assert provider.get("queue_size") == {"filter": 0.0, "join": 3.0, "count": 0.0, "sink": 7.0}


def test_a_metric_that_the_driver_provides_is_not_computed() -> None:
    def never(operators: Sequence[Operator], given: Mapping[str, Values]) -> Values:
        raise AssertionError("computed")

    metrics = {"m": OperatorMetric("m", "", (), never)}
    assert MetricProvider(EngineReport("e", metrics={"m": {"a": 1.0}}), metrics).get("m") == {"a": 1.0}


def test_a_shared_dependency_is_computed_once_in_a_period() -> None:
    times: list[str] = []

    def count(operators: Sequence[Operator], given: Mapping[str, Values]) -> Values:
        times.append("x")
        return {"a": float(len(times))}

    def add(operators: Sequence[Operator], given: Mapping[str, Values]) -> Values:
        return {"a": sum(values["a"] for values in given.values())}

    metrics = {
        "base": OperatorMetric("base", "", (), count),
        "left": OperatorMetric("left", "", ("base",), add),
        "right": OperatorMetric("right", "", ("base",), add),
        "top": OperatorMetric("top", "", ("left", "right", "base"), add),
    }
    assert MetricProvider(EngineReport("e"), metrics).get("top") == {"a": 3.0}
    assert times == ["x"]


def test_a_missing_primitive_is_named_with_what_needed_it() -> None:
    report = EngineReport("storm", CHAIN, metrics={"rows_in": {}, "rows_out": {}})
    with pytest.raises(
        MetricError, match=r"driver storm: expected the metric busy_s, which highest_rate → path_cost → cost_s needs"
    ):
        MetricProvider(report).get("highest_rate")


def test_an_unknown_metric_is_an_error() -> None:
    with pytest.raises(MetricError, match="expected a known metric, got a driver without depth"):
        MetricProvider(EngineReport("e")).get("depth")


def test_primitives_of_highest_rate() -> None:
    assert primitives("highest_rate") == {"busy_s", "rows_in", "rows_out"}


def test_a_cycle_and_an_unknown_successor_are_errors_that_name_the_driver() -> None:
    loop = {"a": Operator("a", "q", successors=("b",)), "b": Operator("b", "q", successors=("a",))}
    with pytest.raises(EntityError, match="driver e: expected a graph without cycles"):
        MetricProvider(EngineReport("e", loop, metrics={"selectivity": {}})).get("path_selectivity")
    lost = {"a": Operator("a", "q", successors=("x",))}
    with pytest.raises(EntityError, match="driver e: expected successors of a among its operators, got x"):
        MetricProvider(EngineReport("e", lost, metrics={"selectivity": {}})).get("path_selectivity")


def test_deadline_share_divides_the_latency_by_cost_along_the_dearest_path() -> None:
    cost = {"filter": 1.0, "join": 4.0, "count": 2.0, "sink": 1.0}
    shares = MetricProvider(EngineReport("e", CHAIN, metrics={"cost_s": cost})).get("deadline_share")
    # through join: 1 + 4 + 1; through count: 1 + 2 + 1
    assert shares == pytest.approx({"filter": 1 / 6, "join": 5 / 6, "count": 3 / 4, "sink": 1.0})


@given(st.lists(st.tuples(st.floats(1e-6, 1.0), st.floats(0.0, 3.0)), min_size=1, max_size=30))
def test_highest_rate_of_a_chain_is_the_closed_formula(given_: list[tuple[float, float]]) -> None:
    """Of a chain 0..n: S_k = Π_{i=k}^{n-1} s_i, C_k = Σ_i c_i Π_{j=k}^{i-1} s_j."""
    n = len(given_)
    operators = {str(k): Operator(str(k), "q", successors=(str(k + 1),) if k + 1 < n else ()) for k in range(n)}
    metrics = {
        "cost_s": {str(k): c for k, (c, _) in enumerate(given_)},
        "selectivity": {str(k): s for k, (_, s) in enumerate(given_)},
    }
    rate = MetricProvider(EngineReport("e", operators, metrics=metrics)).get("highest_rate")
    product, cost = 1.0, 0.0
    for i, (c, s) in enumerate(given_):
        cost += c * product
        product *= s if i + 1 < n else 1.0
    assert rate["0"] == pytest.approx(product / cost, rel=1e-9)


def test_every_metric_rests_on_metrics_that_exist() -> None:
    for metric in METRICS.values():
        assert set(metric.dependencies) <= set(METRICS)
        assert bool(metric.dependencies) == (metric.compute is not None)
