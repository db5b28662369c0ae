"""Placement problems for tests."""

from __future__ import annotations

import random
from itertools import pairwise, product

from hypothesis import strategies as st

from agent.placement.problem.cost import Evaluation, Rank
from agent.placement.problem.model import CandidateBoard, PlacedEdge, PlacedOperator, PlacementProblem


def small_problem(seed: int, operators: int = 6, boards: int = 3, load: float = 0.5, back: int = 0) -> PlacementProblem:
    """A random DAG on unequal boards, with `back` edges that close cycles and one pinned operator."""
    rng = random.Random(seed)
    machines = tuple(
        CandidateBoard(
            f"b{n}", rng.choice((0.3, 1.0, 1.5)), rng.choice((1e9, 2e9)),
            frozenset({"gpu"} if n % 2 else ()), rng.choice((1e5, float("inf"))),
        )
        for n in range(boards)
    )  # fmt: skip
    each = load * sum(board.cpu for board in machines) / operators
    nodes = tuple(
        PlacedOperator(
            f"o{n}", each * rng.uniform(0.5, 1.5), rng.uniform(1e7, 3e8),
            frozenset({"b0"} if n == 0 else ()), frozenset({"gpu"} if n == 2 and boards > 1 else ()),
        )
        for n in range(operators)
    )  # fmt: skip
    pairs = [(rng.randrange(n), n) for n in range(1, operators)]
    pairs += [(b, a) for a, b in (sorted(rng.sample(range(operators), 2)) for _ in range(back))]
    edges = tuple(PlacedEdge(f"o{a}", f"o{b}", rng.uniform(1, 100), rng.uniform(1e3, 2e4)) for a, b in pairs)
    delays = tuple(tuple(0.0 if a == b else rng.uniform(1, 4) for b in range(boards)) for a in range(boards))
    return PlacementProblem(nodes, edges, machines, delays)


def brute_force(problem: PlacementProblem) -> Rank:
    """The best rank of all assignments to allowed boards."""
    ranks = (Evaluation(problem, at).rank for at in product(*problem.allowed))
    return min(ranks, key=lambda rank: (round(rank.violation, 9), rank.score))


def in_a_row(counts: list[int], boards: int) -> PlacementProblem:
    """Operators in a row with so many instances each, every instance feeding all of the next operator."""
    names = [[f"o{n}#{copy}" for copy in range(count)] for n, count in enumerate(counts)]
    operators = tuple(PlacedOperator(name, copy_of=name.partition("#")[0]) for copies in names for name in copies)
    edges = tuple(PlacedEdge(a, b, 1.0) for above, below in pairwise(names) for a in above for b in below)
    delays = tuple(tuple(float(a != b) for b in range(boards)) for a in range(boards))
    return PlacementProblem(operators, edges, tuple(CandidateBoard(f"b{n}", 1.0, 1.0) for n in range(boards)), delays)


problems = st.builds(
    small_problem,
    st.integers(0, 10_000),
    operators=st.integers(3, 12),
    boards=st.integers(2, 5),
    load=st.sampled_from((0.2, 0.6, 1.2)),
    back=st.integers(0, 2),
)
