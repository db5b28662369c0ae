"""Twelve topologies made as FGCS 2025 describes (section 6.1.2, table 1), and the boards of its section 6.1.1.

The paper's own random numbers are Java's; these are Python's with a seed that is printed, so shapes differ from its
figures, while operations, operators and cycles are those of table 1. What the paper leaves open stands here: each inner
operation has two instances (that gives its numbers of operators), every instance sends to all of the next operation,
selectivities are drawn from 0.5 to 1.5, costs per row are even within a factor of two.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Final, NamedTuple

from agent.placement.problem.model import CandidateBoard, PlacedEdge, PlacedOperator, PlacementProblem

SEED: Final = 3141592653589793238
"""The first 19 digits of π, as the paper's."""


class Shape(NamedTuple):
    """A line of table 1."""

    operations: int
    copies: int = 2
    cycle: bool = False
    kind: str = "random"


SHAPES: Final = {
    "T-M1": Shape(6, 1, kind="row"), "T-M2": Shape(3, 10, kind="row"), "T-M3": Shape(3, 1, kind="row"),
    "T-R1": Shape(16), "T-R2": Shape(7), "T-R3": Shape(12), "T-R4": Shape(15), "T-R5": Shape(11), "T-R6": Shape(11),
    "T-R7": Shape(22), "T-R8": Shape(8, cycle=True), "T-R9": Shape(10, cycle=True),
}  # fmt: skip
CORES_AND_MB: Final = (
    (1.5, 2048),
    (1, 1024),
    (0.3, 768),
    (0.3, 768),
    (0.3, 768),
    (1, 1024),
    (1, 1024),
    *[(0.3, 768)] * 4,
)
"""w1 to w11."""
OPERATOR_MB: Final = 64


def fleet(rng: random.Random, boards: int = 11) -> tuple[tuple[CandidateBoard, ...], tuple[tuple[float, ...], ...]]:
    """Boards like the paper's in a tree of switches with links of 1 to 4 ms."""
    machines = []
    for n in range(boards):
        cores, megabytes = CORES_AND_MB[n % len(CORES_AND_MB)]
        machines.append(CandidateBoard(f"w{n + 1}", cores, megabytes * 1e6, bandwidth=12.5e6))
    link = [rng.uniform(1, 4) for _ in range(boards)]
    switch = [n // 4 for n in range(boards)]
    trunk = [rng.uniform(1, 4) for _ in range(switch[-1] + 1)]

    def delay(a: int, b: int) -> float:
        if a == b:
            return 0.0
        between = 0.0 if switch[a] == switch[b] else trunk[switch[a]] + trunk[switch[b]]
        return link[a] + link[b] + between

    return tuple(machines), tuple(tuple(delay(a, b) for b in range(boards)) for a in range(boards))


def graph(shape: Shape, rng: random.Random) -> list[tuple[int, int]]:
    """Edges between operations; 0 is the source, 1 the sink. Grown edge by edge: an edge becomes one operation
    (60 %) or a diamond of two (40 %)."""
    if shape.kind == "row":
        path = [0, *range(2, shape.operations), 1]
        return list(pairwise(path))
    edges, known = [(0, 1)], 2
    while known < shape.operations:
        a, b = edges.pop(rng.randrange(len(edges)))
        width = 2 if rng.random() < 0.4 and known + 2 <= shape.operations else 1
        for _ in range(width):
            edges += [(a, known), (known, b)]
            known += 1
    if shape.cycle:
        inner = [(a, b) for a, b in edges if a > 1 and b > 1]
        a, b = rng.choice(inner or [(2, 2)])
        edges.append((b, a))
    return edges


def topology(name: str, load: float, seed: int = SEED) -> PlacementProblem:
    """`load`: part of the fleet's CPU that the topology needs."""
    rng = random.Random(f"{seed}/{name}")
    shape = SHAPES[name]
    return problem(shape, graph(shape, rng), load, rng, fleet(rng))


def large(operators: int, boards: int, load: float, seed: int = SEED) -> PlacementProblem:
    """A random topology of so many operators on so many boards."""
    rng = random.Random(f"{seed}/{operators}/{boards}")
    shape = Shape(operators // 2 + 1)
    return problem(shape, graph(shape, rng), load, rng, fleet(rng, boards))


def problem(
    shape: Shape,
    edges: list[tuple[int, int]],
    load: float,
    rng: random.Random,
    where: tuple[tuple[CandidateBoard, ...], tuple[tuple[float, ...], ...]],
) -> PlacementProblem:
    """Rows flow from the source by selectivity (a split doubles them; a way back gets a tenth), and set the costs."""
    boards, delays = where
    copies = [1 if n < 2 else shape.copies for n in range(shape.operations)]
    selectivity = [rng.uniform(0.5, 1.5) for _ in copies]
    rows = [0.0] * shape.operations
    rows[0] = 1_000.0
    for _ in range(shape.operations):  # as often as the longest way has edges
        came = [1_000.0 if n == 0 else 0.0 for n in range(shape.operations)]
        for at, (a, b) in enumerate(edges):
            back = 0.1 if shape.cycle and at == len(edges) - 1 else 1.0
            came[b] += rows[a] * selectivity[a] * back
        rows = came
    cost = [rng.uniform(0.7, 1.4) for _ in copies]
    total = sum(r * c for r, c in zip(rows, cost, strict=True))
    scale = load * sum(board.cpu for board in boards) / total
    most = 0.9 * max(board.cpu for board in boards)
    operators = tuple(
        PlacedOperator(f"{n}#{k}", min(most, rows[n] * cost[n] * scale / copies[n]), OPERATOR_MB * 1e6, copy_of=str(n))
        for n in range(shape.operations)
        for k in range(copies[n])
    )
    links = []
    for a, b in edges:
        each = rows[a] * selectivity[a] / copies[a] / copies[b]
        links += [
            PlacedEdge(f"{a}#{i}", f"{b}#{k}", each, each * 60) for i in range(copies[a]) for k in range(copies[b])
        ]
    return PlacementProblem(operators, tuple(links), boards, delays)
