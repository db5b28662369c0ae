"""The algorithms of coordinates on the round-trip times between 100 PlanetLab nodes."""

from __future__ import annotations

import statistics

import pytest

from benchmarks.coordinates.measure import errors, lacks, learn, matrix

pytestmark = pytest.mark.skipif(lacks() is not None, reason=f"this machine lacks {lacks()}")


@pytest.mark.parametrize(("name", "bound"), [("remembering", 0.10), ("spring", 0.15)])
def test_most_pairs_are_estimated_well(name: str, bound: float) -> None:
    truth = [row[:100] for row in matrix()[:100]]
    nodes, measured, _ = learn(name, truth, seed=1, rounds=10)
    found = errors(nodes, truth, measured)
    print({kind: statistics.median(values) for kind, values in found.items()})
    assert statistics.median(found["all pairs"]) < bound
