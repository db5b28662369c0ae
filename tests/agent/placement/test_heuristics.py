"""Heuristics: near the optimum of small problems, never outside pins, and repeatable."""

from __future__ import annotations

import random
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.placement.heuristics.hill_climbing import hill_climbing
from agent.placement.heuristics.hybrid import hybrid
from agent.placement.heuristics.locality_fairness import locality_fairness
from agent.placement.heuristics.registry import HEURISTICS, place
from agent.placement.problem.budget import Budget
from agent.placement.problem.cost import Evaluation
from agent.placement.problem.model import PlacementError, PlacementProblem
from benchmarks.placement.cohesion import PUBLISHED, coupling, gain
from tests.agent.placement.worlds import brute_force, in_a_row, problems, small_problem


def rank_of(problem: PlacementProblem, at: list[int]) -> tuple[float, float]:
    return Evaluation(problem, at).rank


@pytest.mark.parametrize("seed", range(8))
def test_hybrid_finds_the_optimum_of_small_problems(seed: int) -> None:
    problem = small_problem(seed, operators=7, boards=3, load=(0.3, 0.6, 0.85)[seed % 3], back=seed % 2)
    found = hybrid(problem, None, Budget(6_000), random.Random(seed).random)
    best = brute_force(problem)
    assert rank_of(problem, found) == pytest.approx(best, rel=0.01, abs=1e-9), f"seed {seed}"


@settings(max_examples=30, deadline=None)
@given(problem=problems, name=st.sampled_from(sorted(HEURISTICS)), seed=st.integers(0, 99))
def test_every_operator_gets_a_board_that_may_run_it(problem: PlacementProblem, name: str, seed: int) -> None:
    placed = place(name, problem, None, Budget(500), random.Random(seed).random)
    assert list(placed) == [operator.name for operator in problem.operators]
    at = problem.assignment(placed)
    assert all(board in may for board, may in zip(at, problem.allowed, strict=True))


@settings(max_examples=20, deadline=None)
@given(problem=problems, seed=st.integers(0, 99))
def test_hybrid_is_never_worse_than_quick_heuristics_or_what_runs(problem: PlacementProblem, seed: int) -> None:
    rng = random.Random(seed)
    current = [rng.choice(may) for may in problem.allowed]
    rank = Evaluation(problem, hybrid(problem, current, Budget(300), rng.random)).rank
    for name in ("resource-aware", "locality-fairness", "even"):
        at = HEURISTICS[name](problem, None, Budget(1), rng.random)
        assert not Evaluation(problem, at).rank.better_than(rank), name
    assert not Evaluation(problem, current).rank.better_than(rank)


@settings(max_examples=20, deadline=None)
@given(problem=problems, seed=st.integers(0, 99))
def test_after_a_climb_no_single_move_is_better(problem: PlacementProblem, seed: int) -> None:
    rng = random.Random(seed)
    at = hill_climbing(problem, [rng.choice(may) for may in problem.allowed], Budget(), rng.random)
    state = Evaluation(problem, at)
    rank = state.rank
    for operator, may in enumerate(problem.allowed):
        for board in may:
            was = state.move(operator, board)
            gain = rank.score - state.rank.score
            assert not (state.violation <= rank.violation and gain > 1e-3), "but for latency and links"
            state.move(operator, was)


def test_a_pinned_operator_that_runs_elsewhere_comes_to_its_board() -> None:
    problem = small_problem(3)
    placed = place("hybrid", problem, {o.name: "b1" for o in problem.operators}, Budget(2_000), random.Random(1).random)
    assert placed["o0"] == "b0"


def test_the_same_seed_gives_the_same_placement() -> None:
    problem = small_problem(5, operators=12, boards=5)
    one, other = (place("hybrid", problem, None, Budget(2_000), random.Random(4).random) for _ in range(2))
    assert one == other


def test_a_board_that_is_not_needed_is_emptied() -> None:
    problem = in_a_row([1, 2, 2, 1], boards=4)
    placed = place("hill-climbing", problem, {o.name: f"b{n % 4}" for n, o in enumerate(problem.operators)}, Budget(),
                   random.Random(1).random)  # fmt: skip
    assert len(set(placed.values())) == 1


def test_the_budget_ends_a_search_by_evaluations_and_by_time() -> None:
    problem = small_problem(1, operators=12, boards=5)
    budget = Budget(200)
    hybrid(problem, None, budget, random.Random(1).random)
    assert budget.spent <= 260
    ticks = count()
    late = Budget(seconds=5, clock=lambda: float(next(ticks)))
    hybrid(problem, None, late, random.Random(1).random)
    assert late.spent < 500


def test_an_unknown_heuristic_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(PlacementError, match=r"expected one of hybrid, .*got 'best'"):
        place("best", small_problem(1), None, Budget(1), random.Random(1).random)


@pytest.mark.parametrize("shape", sorted(PUBLISHED))
def test_published_cohesion_is_reached_on_boards_at_the_coupling_of_even(shape: str) -> None:
    """Electronics 2020, section 4.2: eight operators in a row, on eight boards with a slot each."""
    counts, published = PUBLISHED[shape]
    problem = in_a_row(counts, boards=8)
    edges = [(f"o{n}", f"o{n + 1}") for n in range(len(counts) - 1)]

    def by_operator(at: list[int]) -> dict[str, list[int]]:
        placed: dict[str, list[int]] = {}
        for operator, board in zip(problem.operators, at, strict=True):
            placed.setdefault(operator.logical, []).append(board)
        return placed

    ours = by_operator(locality_fairness(problem))
    spread = by_operator(HEURISTICS["even"](problem, None, Budget(1), lambda: 0.0))
    assert round(gain(ours, spread, edges), 2) == published
    assert coupling(ours) <= coupling(spread) + 1e-9
