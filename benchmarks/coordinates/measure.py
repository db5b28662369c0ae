"""Coordinates on round-trip times that were measured between 490 nodes, and on those of 100 boards in a tree: rounds of
16 probes, half near and half random."""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from agent.coordinates.algorithm import Algorithm, Coordinate, Observation
from agent.coordinates.registry import NAMES, make
from benchmarks.bars import draw
from benchmarks.report import Benchmark, Options, Report
from edgert.core.settings.agent import CoordinateSettings

MATRIX: Final = Path(__file__).parents[3] / "shared/data/latency/planetlab_490x490_slice1.txt"
ROUNDS: Final = 20
PROBES: Final = 16
NEAREST: Final = 10
DEFAULT: Final = CoordinateSettings().algorithm
LIMIT: Final = 9.0
"""Per cent."""
Matrix = list[list[float]]


def matrix() -> Matrix:
    """Round-trip times in ms, row by row."""
    return [[float(cell) for cell in line.split()] for line in MATRIX.read_text().splitlines() if line.strip()]


def tree(boards: int = 100, seed: int = 3) -> Matrix:
    """A tree whose nodes have about three children; each link takes 1 to 4 ms one way."""
    random = Random(seed)
    above: list[list[float]] = [[0.0]]
    for board in range(1, boards):
        parent = random.randint(max(0, (board - 1) // 3 - 2), (board - 1) // 3)
        link = 2 * random.uniform(1.0, 4.0)
        row = [way + link for way in above[parent]] + [0.0]
        for other, way in enumerate(row[:-1]):
            above[other].append(way)
        above.append(row)
    return above


def lacks() -> str | None:
    return None if MATRIX.exists() else f"the round-trip times in {MATRIX}"


def learn(
    name: str, truth: Matrix, seed: int, rounds: int = ROUNDS
) -> tuple[list[Algorithm], set[tuple[int, int]], list[Coordinate]]:
    """The algorithms of all nodes after `rounds` rounds, the pairs that were measured, and the nodes' coordinates one
    round earlier."""
    random = Random(seed)
    nodes = [make(name, Random(random.random())) for _ in truth]
    known: list[dict[int, float]] = [{} for _ in truth]
    measured: set[tuple[int, int]] = set()
    earlier: list[Coordinate] = []
    for _ in range(rounds):
        earlier = [node.coordinate for node in nodes]
        for own in random.sample(range(len(nodes)), len(nodes)):
            near = sorted(known[own], key=known[own].__getitem__)[: PROBES // 2]
            others = [n for n in range(len(nodes)) if n != own and n not in near]
            peers = near + random.sample(others, PROBES - len(near))
            peers = [peer for peer in peers if truth[own][peer] > 0]
            nodes[own].update([Observation(str(p), nodes[p].coordinate, truth[own][p]) for p in peers])
            known[own].update((peer, truth[own][peer]) for peer in peers)
            measured.update((own, peer) for peer in peers)
    return nodes, measured, earlier


def errors(nodes: list[Algorithm], truth: Matrix, measured: set[tuple[int, int]]) -> dict[str, list[float]]:
    """Relative errors: of all pairs, of pairs that were never measured, of each node's nearest."""
    found: dict[str, list[float]] = {"all pairs": [], "never measured": [], f"{NEAREST} nearest": []}
    points = [node.coordinate for node in nodes]
    for a, row in enumerate(truth):
        pairs = [b for b in range(len(row)) if b != a and row[b] > 0]
        near = set(sorted(pairs, key=row.__getitem__)[:NEAREST])
        for b in pairs:
            error = abs(nodes[a].estimate_ms(points[a], points[b]) - row[b]) / row[b]
            found["all pairs"].append(error)
            if (a, b) not in measured and (b, a) not in measured:
                found["never measured"].append(error)
            if b in near:
                found[f"{NEAREST} nearest"].append(error)
    return found


def drift(nodes: list[Algorithm], earlier: list[Coordinate], truth: Matrix) -> list[float]:
    """Change of the estimate of each pair in the last round, relative to what was measured. Nothing moved in it."""
    points, estimate = [node.coordinate for node in nodes], nodes[0].estimate_ms
    pairs = [(a, b) for a, row in enumerate(truth) for b in range(a) if row[b] > 0]
    return [abs(estimate(points[a], points[b]) - estimate(earlier[a], earlier[b])) / truth[a][b] for a, b in pairs]


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    rounds = 5 if options.quick else ROUNDS
    for repetition in range(options.repetitions):
        options.say(f"repetition {repetition + 1} of {options.repetitions}, seed {repetition}")
        for place, truth in (("PlanetLab", matrix()), ("tree", tree())):
            for name in NAMES:
                nodes, measured, earlier = learn(name, truth, repetition, rounds)
                found = {**errors(nodes, truth, measured), "drift per round": drift(nodes, earlier, truth)}
                for kind, values in found.items():
                    barred = (place, name, kind) == ("PlanetLab", DEFAULT, "all pairs") and not options.quick
                    label, limit = f"{place}: {name}, {kind}", LIMIT if barred else None
                    report.add(f"{label}, median", 100 * statistics.median(values), "%", limit=limit)
                    report.add(f"{label}, p90", 100 * statistics.quantiles(values, n=10)[-1], "%")


BENCHMARK: Final = Benchmark(
    about="network coordinates on times of PlanetLab and of a tree: relative error after 20 rounds of 16 probes",
    measure=measure,
    draw=partial(draw, panels=[("%", 1.0, "relative error, %")]),
    lacks=lacks,
    repetitions=3,
)
