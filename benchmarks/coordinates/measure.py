"""Coordinates on measured round-trip times: 490 nodes, rounds of 16 probes, half near and half random."""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from agent.coordinates.algorithm import Algorithm, Observation
from agent.coordinates.registry import NAMES, make
from benchmarks.bars import draw
from benchmarks.report import Benchmark, Options, Report

MATRIX: Final = Path(__file__).parents[3] / "shared/data/latency/planetlab_490x490_slice1.txt"
ROUNDS: Final = 20
PROBES: Final = 16
NEAREST: Final = 10
Matrix = list[list[float]]


def matrix() -> Matrix:
    """Round-trip times in ms, row by row."""
    return [[float(cell) for cell in line.split()] for line in MATRIX.read_text().splitlines() if line.strip()]


def lacks() -> str | None:
    return None if MATRIX.exists() else f"the round-trip times in {MATRIX}"


def learn(name: str, truth: Matrix, seed: int, rounds: int = ROUNDS) -> tuple[list[Algorithm], set[tuple[int, int]]]:
    """The algorithms of all nodes after `rounds` rounds, and the pairs that were measured."""
    random = Random(seed)
    nodes = [make(name, Random(random.random())) for _ in truth]
    known: list[dict[int, float]] = [{} for _ in truth]
    measured: set[tuple[int, int]] = set()
    for _ in range(rounds):
        for own in random.sample(range(len(nodes)), len(nodes)):
            near = sorted(known[own], key=known[own].__getitem__)[: PROBES // 2]
            others = [n for n in range(len(nodes)) if n != own and n not in near]
            peers = near + random.sample(others, PROBES - len(near))
            peers = [peer for peer in peers if truth[own][peer] > 0]
            nodes[own].update([Observation(str(p), nodes[p].coordinate, truth[own][p]) for p in peers])
            known[own].update((peer, truth[own][peer]) for peer in peers)
            measured.update((own, peer) for peer in peers)
    return nodes, measured


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


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    truth = matrix()
    for repetition in range(options.repetitions):
        options.say(f"repetition {repetition + 1} of {options.repetitions}, seed {repetition}")
        for name in NAMES:
            nodes, measured = learn(name, truth, repetition, 5 if options.quick else ROUNDS)
            for kind, values in errors(nodes, truth, measured).items():
                limit = 10.0 if (name, kind) == ("spring", "all pairs") and not options.quick else None
                report.add(f"{name}, {kind}, median", 100 * statistics.median(values), "%", limit=limit)
                report.add(f"{name}, {kind}, p90", 100 * statistics.quantiles(values, n=10)[-1], "%")


BENCHMARK: Final = Benchmark(
    about="network coordinates on PlanetLab round-trip times: relative error after 20 rounds of 16 probes",
    measure=measure,
    draw=partial(draw, panels=[("%", 1.0, "relative error, %")]),
    lacks=lacks,
    repetitions=3,
)
