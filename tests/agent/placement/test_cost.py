"""The score: worked by hand, and move by move equal to a fresh evaluation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.placement.problem.cost import PAPER, CostTerms, Evaluation, Rank
from agent.placement.problem.model import CandidateBoard, PlacedEdge, PlacedOperator, PlacementError, PlacementProblem
from tests.agent.placement.worlds import problems


def three_in_a_row() -> PlacementProblem:
    """source → window → sink on two boards, 3 ms there and 5 ms back."""
    operators = (
        PlacedOperator("source", 0.2, 10, frozenset({"a"})),
        PlacedOperator("window", 0.5, 20),
        PlacedOperator("sink", 0.1, 5),
    )
    edges = (PlacedEdge("source", "window", 90, 9_000), PlacedEdge("window", "sink", 10, 500))
    boards = (
        CandidateBoard("a", 0.5, 100, bandwidth=10_000),
        CandidateBoard("b", 1.0, 100, frozenset({"fan"}), bandwidth=5_000),
    )
    return PlacementProblem(operators, edges, boards, ((0.0, 3.0), (5.0, 0.0)))


def test_terms_and_violations_of_a_placement_worked_by_hand() -> None:
    state = Evaluation(three_in_a_row(), [0, 1, 0])
    assert state.terms == CostTerms(latency_ms=8.0, boards=1.0, edges=1.0, rows=1.0)
    assert state.rank.score == pytest.approx(3 + 8e-6)
    assert state.violations[:4] == (0, 0, 1, 0), "b may receive 95 % of 5,000 bytes/s, and 9,000 come"
    assert state.violation == pytest.approx((9_000 - 4_750) / 4_750)
    state.move(2, 1)
    assert state.terms == CostTerms(3.0, 1.0, 0.5, 0.9)
    state.move(1, 0)
    assert state.terms == CostTerms(3.0, 1.0, 0.5, 0.1)
    assert state.violations[:4] == (1, 0, 0, 0), "0.7 cores where 95 % of 0.5 may be used"
    state.move(0, 1)
    assert state.violations.pins == 1


def test_a_board_is_full_at_95_percent() -> None:
    for cpu, broken in ((0.949, 0), (0.951, 1)):
        problem = PlacementProblem((PlacedOperator("x", cpu),), (), (CandidateBoard("a", 1.0, 1.0),), ((0.0,),))
        assert Evaluation(problem, [0]).violations.cpu == broken


def test_less_violation_comes_before_a_better_score() -> None:
    assert Rank(0.0, 3.0).better_than(Rank(0.1, 1.0))
    assert Rank(0.1, 1.0).better_than(Rank(0.1, 2.0))
    assert not Rank(0.1, 1.0).better_than(Rank(0.1, 1.0))


@given(problem=problems, data=st.data())
def test_moves_one_by_one_give_what_a_fresh_evaluation_gives(problem: PlacementProblem, data: st.DataObject) -> None:
    boards = st.integers(0, len(problem.boards) - 1)
    state = Evaluation(problem, [data.draw(boards) for _ in problem.operators])
    for operator, board, look in data.draw(
        st.lists(st.tuples(st.integers(0, len(problem.operators) - 1), boards, st.booleans()), max_size=25)
    ):
        state.move(operator, board)
        if look:
            fresh = Evaluation(problem, state.at)
            assert state.terms == pytest.approx(fresh.terms)
            assert state.violations == pytest.approx(fresh.violations)
            assert state.rank.score == pytest.approx(fresh.terms.score(PAPER))


@given(problem=problems, data=st.data())
def test_terms_are_those_of_their_definition(problem: PlacementProblem, data: st.DataObject) -> None:
    at = [data.draw(st.integers(0, len(problem.boards) - 1)) for _ in problem.operators]
    crossing = [(a, b, rows) for a, b, rows, _ in problem.links if at[a] != at[b]]
    place = {operator: n for n, operator in enumerate(problem.order)}
    forward = [(a, b) for a, b, _, _ in problem.links if place[a] < place[b]]

    def longest(operator: int) -> float:
        return max((longest(a) + problem.latency_ms[at[a]][at[b]] for a, b in forward if b == operator), default=0.0)

    terms = Evaluation(problem, at).terms
    assert terms.latency_ms == pytest.approx(max(map(longest, range(len(at)))))
    assert terms.boards == len(set(at)) / len(problem.boards)
    assert terms.edges == pytest.approx(len(crossing) / len(problem.links))
    assert terms.rows == pytest.approx(sum(r for _, _, r in crossing) / sum(r for _, _, r, _ in problem.links))


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (PlacedOperator("x", gateways=frozenset({"z"})), r"operator 'x' \(pinned to z; needs no label\).*none of a"),
        (PlacedOperator("x", labels=frozenset({"gpu"})), r"needs labels gpu"),
        (PlacedOperator("x", cpu=float("nan")), "finite"),
    ],
)
def test_a_problem_without_a_solution_names_what_is_wrong(operator: PlacedOperator, expected: str) -> None:
    with pytest.raises(PlacementError, match=expected):
        PlacementProblem((operator,), (), (CandidateBoard("a", 1.0, 1.0),), ((0.0,),))


def test_an_edge_to_an_unknown_operator_and_a_name_given_twice_are_refused() -> None:
    board = (CandidateBoard("a", 1.0, 1.0),)
    with pytest.raises(PlacementError, match=r"edge 'x' → 'y'.*got 'y'"):
        PlacementProblem((PlacedOperator("x"),), (PlacedEdge("x", "y"),), board, ((0.0,),))
    with pytest.raises(PlacementError, match="every operator once, got 'x'"):
        PlacementProblem((PlacedOperator("x"), PlacedOperator("x")), (), board, ((0.0,),))
