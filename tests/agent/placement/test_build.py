"""A problem from figures and profiles."""

from __future__ import annotations

from typing import Any

import pytest

from agent.placement.problem.build import MEMORY_BYTES, PlacementRule, build
from agent.placement.problem.model import PlacementError


def figures(gateway: str, at: float, busy: float, rows: int, *instances: str, plan: int = 1) -> dict[str, Any]:
    told = {name: {"busy_s": busy, "queue_bytes": 100} for name in instances}
    edges = [{"from": "source", "to": "window#1", "rows": rows, "bytes": rows * 50}]
    return {
        "gateway": gateway, "monotonic": at,
        "flows": {"f": {"version": 3, "plan": plan, "instances": told, "edges": edges}},
    }  # fmt: skip


PROFILES = [
    {"gateway": "a", "cpu": 2.0, "speed": 0.5, "memory": 2**30, "labels": ["gpu"]},
    {"gateway": "b", "cpu": 4.0, "speed": 1.0, "memory": 2**31, "bandwidth": 1e6, "slots": 2},
]


def test_counters_become_rates_on_the_reference_core() -> None:
    readings = [
        (figures("a", 100, 10, 1_000, "source"), figures("a", 110, 12, 3_000, "source")),
        (figures("b", 7, 1, 900, "window#1"), figures("b", 17, 2, 2_800, "window#1")),
    ]
    rules = {"f/source": PlacementRule(gateways=frozenset({"a"})), "f/window": PlacementRule(labels=frozenset({"gpu"}))}
    problem, placement = build(readings, PROFILES, lambda a, b: 0.008, rules)
    source, window = problem.operators
    assert (source.name, source.cpu, source.gateways) == ("f/source", 0.1, frozenset({"a"})), (
        "0.2 of a core half as fast"
    )
    assert (window.name, window.cpu, window.labels, window.logical) == (
        "f/window#1",
        0.1,
        frozenset({"gpu"}),
        "f/window",
    )
    assert source.memory == MEMORY_BYTES + 100
    assert problem.edges == (("f/source", "f/window#1", 200.0, 10_000.0),), "both ends counted it, one of them more"
    assert problem.latency_ms == ((0.0, 4.0), (4.0, 0.0))
    assert placement == {"f/source": "a", "f/window#1": "b"}
    assert [(b.cpu, b.slots, b.bandwidth) for b in problem.boards] == [(2.0, 1, float("inf")), (4.0, 2, 1e6)]


def test_figures_of_another_plan_are_no_base_and_the_newest_plan_owns_an_instance() -> None:
    before, now = figures("a", 10, 50, 10, "source", plan=1), figures("a", 20, 4, 10, "source", plan=2)
    other = figures("b", 20, 4, 10, "source", plan=1)
    problem, placement = build([(before, now), (None, other)], PROFILES, lambda a, b: 0.0)
    assert placement == {"f/source": "a"}
    assert problem.operators[0].cpu == 0, "unknown until the second reading"


def test_figures_as_a_gateway_tells_them_have_no_plan_and_a_time_per_instance() -> None:
    before, now = figures("b", 10, 1, 0, "source", "window#1"), figures("b", 20, 3, 50, "source", "window#1")
    for reading, at in ((before, 9.0), (now, 19.5)):
        del reading["flows"]["f"]["plan"]
        for instance in reading["flows"]["f"]["instances"].values():
            instance["at"] = at
    problem, _ = build([(before, now)], PROFILES, lambda a, b: 0.0)
    assert problem.operators[0].cpu == pytest.approx(2 / 10.5)
    assert problem.edges[0].rows == 5


def test_a_fused_instance_keeps_the_pins_and_labels_of_all_its_operators() -> None:
    now = figures("a", 20, 4, 10, "source")
    now["flows"]["f"]["instances"]["source"]["operators"] = ["source", "mean#2"]
    rules = {
        "f/source": PlacementRule(gateways=frozenset({"a", "b"})),
        "f/mean": PlacementRule(frozenset({"a"}), frozenset({"gpu"})),
    }
    operator = build([(None, now)], PROFILES, lambda a, b: 0.0, rules)[0].operators[0]
    assert (operator.gateways, operator.labels) == (frozenset({"a"}), frozenset({"gpu"}))
    rules["f/source"] = PlacementRule(gateways=frozenset({"b"}))
    with pytest.raises(PlacementError, match="of operators that are fused"):
        build([(None, now)], PROFILES, lambda a, b: 0.0, rules)


def test_a_profile_without_capacity_says_which() -> None:
    with pytest.raises(PlacementError, match=r"profile of 'x': cpu: expected a number above 0, got None"):
        build([], [{"gateway": "x", "memory": 1}], lambda a, b: 0.0)
