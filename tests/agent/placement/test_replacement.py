"""When a flow is placed anew, on a virtual clock; the seed of each run is printed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise

import pytest

from agent.placement.heuristics.registry import place
from agent.placement.problem.budget import Budget
from agent.placement.problem.cost import CostTerms, Evaluation, Rank
from agent.placement.problem.model import CandidateBoard, PlacedEdge, PlacedOperator, PlacementProblem
from agent.placement.proposal import Score
from agent.placement.replacement import Hysteresis, Replacement, ReplacementVerdict

BOARDS = ("a", "b", "c")
SAME = CostTerms(0.0, 0.0, 0.0, 0.0)
GOOD, BAD, OVERLOADED = Rank(0.0, 1.0), Rank(0.0, 2.0), Rank(0.4, 2.0)


def walk(
    state: Replacement, ranks: Mapping[int, tuple[Rank, Rank]], until: int, boards: Mapping[int, tuple[str, ...]]
) -> list[tuple[float, ReplacementVerdict]]:
    """Each second from 0 on; what holds from a time on stands in `ranks` and `boards`. Returns verdicts but waits."""
    said: list[tuple[float, ReplacementVerdict]] = []
    for second in range(until):
        now = float(second)
        there = boards[max(t for t in boards if t <= now)]
        if not state.due(now, there):
            continue
        found = ranks[max(t for t in ranks if t <= now)]
        verdict = state.judge(now, *(Score(rank, SAME) for rank in found))
        if verdict != "wait":
            said.append((now, verdict))
        if verdict == "change":
            state.changed(now)
    return said


def test_a_better_placement_is_made_after_looks_that_agree_and_then_left_alone() -> None:
    said = walk(Replacement(), {0: (BAD, GOOD)}, 100, {0: BOARDS})
    assert [verdict for _, verdict in said] == ["change"] * len(said)
    assert said[0][0] == 30.0  # 10 s to settle, then three looks
    assert all(b - a >= Hysteresis().pause_s for (a, _), (b, _) in pairwise(said))


def test_a_peak_moves_nothing() -> None:
    ranks = {0: (GOOD, GOOD), 40: (OVERLOADED, GOOD), 55: (GOOD, GOOD)}
    assert walk(Replacement(), ranks, 200, {0: BOARDS}) == []


def test_a_small_gain_moves_nothing() -> None:
    assert walk(Replacement(), {0: (Rank(0.0, 1.0), Rank(0.0, 0.95))}, 300, {0: BOARDS}) == []
    assert walk(Replacement(), {0: (Rank(0.02, 1.0), Rank(0.0, 1.0))}, 300, {0: BOARDS}) == []


def test_a_better_score_is_no_reason_to_violate_a_limit() -> None:
    assert walk(Replacement(), {0: (BAD, Rank(0.1, 0.5))}, 300, {0: BOARDS}) == []


def test_a_board_that_came_to_stay_is_used_at_the_first_look_and_one_that_flaps_is_not() -> None:
    ranks = {0: (GOOD, GOOD), 50: (BAD, GOOD)}
    assert walk(Replacement(), ranks, 70, {0: BOARDS, 50: (*BOARDS, "d")})[0] == (60.0, "change")
    flapping = {t: BOARDS if t % 10 else BOARDS[:2] for t in range(0, 300, 5)}
    assert walk(Replacement(), {0: (BAD, GOOD)}, 300, flapping) == []


def over(slow_ms: float) -> PlacementProblem:
    """`read` and `central` are pinned to `a`; the window fits on `b` or `c`; the way to `b` takes `slow_ms`."""
    operators = (
        PlacedOperator("read", 0.2, gateways=frozenset("a")), PlacedOperator("window", 0.5),
        PlacedOperator("central", 0.1, gateways=frozenset("a")),
    )  # fmt: skip
    edges = (PlacedEdge("read", "window", 90.0, 9_000.0), PlacedEdge("window", "central", 10.0, 500.0))
    boards = tuple(CandidateBoard(name, 0.5 if name == "a" else 1.0, 1.0) for name in BOARDS)
    delays = ((0.0, slow_ms, 3.0), (slow_ms, 0.0, 2.0), (3.0, 2.0, 0.0))
    return PlacementProblem(operators, edges, boards, delays)


@pytest.mark.parametrize(("slow_ms", "changed_at"), [(80.0, 120.0), (9.0, 120.0), (7.0, None), (2.0, None)])
def test_a_link_that_became_slow_is_left_though_nothing_else_is_won(slow_ms: float, changed_at: float | None) -> None:
    """The link to `b` takes 2 ms each way, and from second 100 on `slow_ms`."""
    on, state, said = {"read": "a", "window": "b", "central": "a"}, Replacement(), []
    for second in range(0, 300, 10):
        if not state.due(now := float(second), BOARDS):
            continue
        problem = over(slow_ms if second >= 100 else 2.0)
        found = place("hybrid", problem, on, Budget(evaluations=300), random.Random(second).random)
        judged = [Evaluation(problem, problem.assignment(placement)) for placement in (on, found)]
        if state.judge(now, *(Score(one.rank, one.terms) for one in judged)) == "change":
            said.append((now, found["window"]))
            state.changed(now)
            on = dict(found)
    assert said == ([] if changed_at is None else [(changed_at, "c")])


def test_lack_of_capacity_is_said_once_until_it_was_over() -> None:
    ranks = {0: (OVERLOADED, OVERLOADED), 100: (GOOD, GOOD), 150: (OVERLOADED, OVERLOADED)}
    said = walk(Replacement(), ranks, 300, {0: BOARDS})
    assert [verdict for _, verdict in said] == ["lacks capacity"] * 2


@pytest.mark.parametrize("seed", range(20))
def test_under_noise_a_flow_moves_seldom_and_never_twice_within_the_pause(seed: int) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    ranks = {t: (Rank(0.0, draw.uniform(0.9, 1.1)), Rank(0.0, draw.uniform(0.9, 1.1))) for t in range(0, 3600, 10)}
    said = walk(Replacement(), ranks, 3600, {0: BOARDS})
    assert len(said) <= 3
