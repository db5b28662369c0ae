"""The decision tree that CART defines, found by trying every split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from edgert.operators.models.cart import Tree

Row = tuple[tuple[float, ...], int]


def impurity(rows: Sequence[Row]) -> Fraction:
    """Gini's, times the rows: Σ p (1 - p) n."""
    counts = Counter(label for _, label in rows)
    return sum((n * (1 - Fraction(n, len(rows))) for n in counts.values()), Fraction(0))


def tried(rows: Sequence[Row], names: Sequence[str], classes: Sequence[str], depth: int, least: int) -> Tree:
    """By definition: each split there is, each part looked at anew."""
    counts = Counter(label for _, label in rows)
    leaf = {"value": classes[min(counts, key=lambda label: (-counts[label], label))]}
    best, found = impurity(rows), None
    for at in range(len(rows[0][0]) if depth else 0):
        values = sorted({fields[at] for fields, _ in rows})
        for low, high in pairwise(values):
            parts = [[r for r in rows if r[0][at] <= low], [r for r in rows if r[0][at] > low]]
            left = sum(map(impurity, parts), Fraction(0))
            if min(map(len, parts)) >= least and left < best:
                best, found = left, (at, (low + high) / 2, parts)
    if found is None:
        return leaf
    at, threshold, parts = found
    at_most, above = (tried(part, names, classes, depth - 1, least) for part in parts)
    if at_most == above and "value" in above:
        return at_most
    return {"field": names[at], "threshold": threshold, "at_most": at_most, "above": above}
