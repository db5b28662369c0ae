"""Placement on slots: the published figures, and that fairness is never given up for locality."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.placement.cohesion import PUBLISHED, coupling, gains, in_a_row
from edgert.scheduling.locality_fairness import even, locality_fairness, pipelines


@pytest.mark.parametrize("shape", sorted(PUBLISHED))
def test_published_cohesion_is_reached_at_the_coupling_of_the_even_scheduler(shape: str) -> None:
    """Eight operators in a row on eight slots (section 4.2)."""
    counts, published = PUBLISHED[shape]
    instances, edges = in_a_row(counts)
    spread, ours = even(instances, 8), locality_fairness(instances, edges, 8)
    assert round(gains()[shape], 2) == published
    assert coupling(ours) == pytest.approx(coupling(spread))


def test_pipelines_hold_one_instance_of_each_operator_they_reach() -> None:
    instances, edges = in_a_row([1, 3, 2])
    assert pipelines(instances, edges) == [["o0", "o1", "o2"], ["o1", "o2"], ["o1"]]


def test_a_flow_that_branches_and_meets_again_is_one_pipeline() -> None:
    instances = {"s": 1, "a": 1, "b": 2, "t": 1}
    edges = [("s", "a"), ("s", "b"), ("a", "t"), ("b", "t")]
    assert pipelines(instances, edges) == [["s", "a", "b", "t"], ["b"]]
    placed = locality_fairness(instances, edges, 2)
    assert placed["s"] == placed["a"] == placed["t"]
    assert sorted(placed["b"]) == [0, 1]


@st.composite
def flows(draw: st.DrawFn) -> tuple[dict[str, int], list[tuple[str, str]]]:
    counts = draw(st.lists(st.integers(1, 9), min_size=1, max_size=7))
    instances, _ = in_a_row(counts)
    names = list(instances)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    return instances, draw(st.lists(st.sampled_from(pairs), unique=True, max_size=10)) if pairs else []


@given(flow=flows(), slots=st.integers(1, 8))
def test_every_instance_has_a_slot_and_copies_meet_no_oftener_than_by_the_even_scheduler(
    flow: tuple[dict[str, int], list[tuple[str, str]]], slots: int
) -> None:
    instances, edges = flow
    assert Counter(o for p in pipelines(instances, edges) for o in p) == Counter(instances)
    placed = locality_fairness(instances, edges, slots)
    assert {o: len(s) for o, s in placed.items()} == instances
    assert all(0 <= slot < slots for found in placed.values() for slot in found)
    assert coupling(placed) <= coupling(even(instances, slots)) + 1e-9
