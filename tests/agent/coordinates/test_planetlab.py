"""The paper's spring relaxation on the round-trip times between 100 PlanetLab nodes."""

from __future__ import annotations

import statistics

import pytest

from benchmarks.coordinates.measure import errors, lacks, learn, matrix

pytestmark = pytest.mark.skipif(lacks() is not None, reason=f"this machine lacks {lacks()}")


def test_spring_estimates_most_pairs_well() -> None:
    truth = [row[:100] for row in matrix()[:100]]
    nodes, measured = learn("spring", truth, seed=1, rounds=10)
    found = errors(nodes, truth, measured)
    assert statistics.median(found["all pairs"]) < 0.15
