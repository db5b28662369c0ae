"""The benchmark of placement, in short."""

from __future__ import annotations

import pytest

from agent.placement.problem.cost import PAPER
from benchmarks.placement.topologies import SHAPES, large, topology
from tests.agent.placement.worlds import brute_force, small_problem

TABLE_1 = dict(zip(SHAPES, (6, 12, 3, 30, 12, 22, 28, 20, 20, 42, 14, 18), strict=True))
"""Operators of each topology."""


@pytest.mark.parametrize("name", SHAPES)
def test_a_topology_has_the_operators_of_table_1_and_needs_the_load_asked_for(name: str) -> None:
    problem = topology(name, 0.4)
    assert len(problem.operators) == TABLE_1[name]
    need, capacity = sum(o.cpu for o in problem.operators), sum(b.cpu for b in problem.boards)
    assert capacity == pytest.approx(6.6)
    assert 0.2 * capacity < need <= 0.4 * capacity + 1e-9
    place = {operator: n for n, operator in enumerate(problem.order)}
    back = [(a, b) for a, b, _, _ in problem.links if place[a] > place[b]]
    assert bool(back) == SHAPES[name].cycle


def test_a_large_topology_has_the_size_asked_for() -> None:
    assert len(large(42, 11, 0.5).operators) == 42
    assert len(large(200, 100, 0.5).operators) == 200


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_the_solver_and_brute_force_agree(seed: int) -> None:
    pytest.importorskip("highspy", reason="the exact solver is a development dependency")
    from benchmarks.placement.optimum import optimum

    problem = small_problem(seed, operators=6, boards=3, load=0.5)
    best, bound = brute_force(problem), optimum(problem, 20.0)
    if best.violation:
        assert bound is None
    else:
        assert bound is not None
        assert bound.lower == pytest.approx(best.score, abs=PAPER.latency * 100 + 1e-3)
