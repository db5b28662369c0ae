"""Cohesion and coupling of placements on slots, and the gains that are published for five shapes
("Locality/Fairness-Aware Job Scheduling in Distributed Stream Processing Engines", Electronics 2020, 9(11), 1857)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from edgert.scheduling.locality_fairness import SlotPlacement, even, locality_fairness

NEAR, FAR = 1.0, 1.0 / 40.0
"""Closeness (1 / distance) of two instances in one process, and in two (section 3)."""
PUBLISHED: Final = {
    "linear": ([1] * 8, 3900.0),
    "ascent": ([1, 2, 3, 4, 5, 6, 7, 8], 71.78),
    "descent": ([8, 7, 6, 5, 4, 3, 2, 1], 71.02),
    "diamond": ([2, 4, 6, 8, 8, 6, 4, 2], 32.03),
    "star": ([8, 6, 4, 2, 2, 4, 6, 8], 59.45),
}
"""Shape → (copies of eight operators in a row, gain in cohesion over `even` on eight slots in %; section 4.2)."""


def cohesion(placement: SlotPlacement, edges: Sequence[tuple[str, str]]) -> float:
    """Σ over edges and over the upstream operator's instances of the closeness to the closest downstream one (equation
    1; it is printed with min, the text and the published figures say closest). More is better."""
    return sum(
        max(NEAR if a == b else FAR for b in placement[below]) for above, below in edges for a in placement[above]
    )


def coupling(placement: SlotPlacement) -> float:
    """Σ over instances of the closeness to the closest copy of the same operator (equation 2). Less is fairer."""
    total = 0.0
    for slots in placement.values():
        if len(slots) > 1:
            on = Counter(slots)
            total += sum(NEAR if on[slot] > 1 else FAR for slot in slots)
    return total


def in_a_row(counts: Sequence[int]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """(Copies of each operator, edges) of a flow without branches."""
    names = [f"o{n}" for n in range(len(counts))]
    return dict(zip(names, counts, strict=True)), list(pairwise(names))


def gain(ours: SlotPlacement, spread: SlotPlacement, edges: Sequence[tuple[str, str]]) -> float:
    """Gain in cohesion of one placement over another, in %."""
    return (cohesion(ours, edges) / cohesion(spread, edges) - 1) * 100


def gains() -> dict[str, float]:
    """Shape → gain of locality and fairness over the even scheduler, in %."""
    found = {}
    for shape, (counts, _) in PUBLISHED.items():
        instances, edges = in_a_row(counts)
        found[shape] = gain(locality_fairness(instances, edges, 8), even(instances, 8), edges)
    return found
