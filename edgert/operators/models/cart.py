"""Classification trees by Gini impurity, as CART grows them (Breiman, Friedman, Olshen, Stone: *Classification and
Regression Trees*, 1984, chapters 2 and 4).

Each split is the one, of all fields and thresholds, that leaves the least impurity: with l rows of class k on its one
side of n, and r on the other of m, the one with the greatest Σ l²/n + Σ r²/m. Where the book grows a large tree and
prunes it by cross-validation, this one stops: at a depth, before a leaf has fewer than `least` rows, and where no split
leaves less impurity. A split into two leaves of one class is one leaf.

Every field is sorted once. Rows that are parted stay in that order, so a level costs one look at each row for each
field: half a microsecond on a fast machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from operator import itemgetter, not_
from typing import Any, NamedTuple

Tree = dict[str, Any]
"""In the form of docs/models.md."""


class _Sorted(NamedTuple):
    """Rows of a node by one field: their numbers, values and labels."""

    rows: list[int]
    values: list[float]
    labels: list[int]

    def where(self, chosen: Sequence[bool]) -> _Sorted:
        """`chosen`: one for each row here."""
        rows, values, labels = self
        return _Sorted(list(compress(rows, chosen)), list(compress(values, chosen)), list(compress(labels, chosen)))


class _Split(NamedTuple):
    at: int
    """Number of the field."""
    threshold: float
    below: list[int]
    """Rows of each class that are at most it."""


def grow(
    fields: Mapping[str, Sequence[float]], labels: Sequence[int], classes: Sequence[Any], depth: int, least: int
) -> tuple[Tree, int]:
    """The tree, and how many of the rows (at least one) it classifies right.

    `fields`: each row's finite value, by field; `labels`: each row's index in `classes`. Of equal splits it is that of
    the first field, then of the lowest threshold; of classes with as many rows in a leaf the first.
    """
    names, leaves, by_field = list(fields), [{"value": value} for value in classes], []
    for column in fields.values():
        rows = sorted(range(len(labels)), key=column.__getitem__)
        by_field.append(_Sorted(rows, list(map(column.__getitem__, rows)), list(map(labels.__getitem__, rows))))

    def node(by_field: Sequence[_Sorted], counts: list[int], depth: int) -> tuple[Tree, int]:
        """Grows a node from rows with these counts of classes."""
        most = max(counts)
        split = _best(by_field, counts, least) if depth and most < sum(counts) else None
        if split is None:
            return leaves[counts.index(most)], most
        low, high = _parted(by_field, split, len(labels)) if depth > 1 else ((), ())
        at_most, right = node(low, split.below, depth - 1)
        above, more = node(high, [count - below for count, below in zip(counts, split.below, strict=True)], depth - 1)
        if at_most is above:
            return at_most, right + more
        tree = {"field": names[split.at], "threshold": split.threshold, "at_most": at_most, "above": above}
        return tree, right + more

    return node(by_field, list(map(labels.count, range(len(leaves)))), depth)


def between(low: float, high: float) -> float:
    """A threshold for low < high: low is at most it, high is above it."""
    middle = (low + high) / 2
    return middle if middle < high else low  # between neighbours it is rounded, to one of them


def _parted(by_field: Sequence[_Sorted], split: _Split, rows: int) -> tuple[list[_Sorted], list[_Sorted]]:
    """`rows`: of the whole tree."""
    goes_low = bytearray(rows)
    for row in by_field[split.at].rows[: sum(split.below)]:
        goes_low[row] = True
    low, high = [], []
    for each in by_field:
        chosen = itemgetter(*each.rows)(goes_low)
        low.append(each.where(chosen))
        high.append(each.where(list(map(not_, chosen))))
    return low, high


def _best(by_field: Sequence[_Sorted], counts: list[int], least: int) -> _Split | None:
    """None: no split leaves less impurity. Quotients of integers are rounded right: equal ones are equal."""
    size, squares = sum(counts), sum([count * count for count in counts])
    best, found = squares / size, None
    for at, (_, values, labels) in enumerate(by_field):
        below, above = [0] * len(counts), counts[:]
        left, right = 0, squares  # Σ of the squares of both
        last = values[0]
        for rows, (value, label) in enumerate(zip(values, labels, strict=True)):
            if value != last:
                if least <= rows <= size - least:
                    others = size - rows
                    score = (left * others + right * rows) / (rows * others)
                    if score > best:
                        best, found = score, _Split(at, between(last, value), below[:])
                last = value
            count = below[label]
            left += 2 * count + 1
            below[label] = count + 1
            count = above[label]
            right -= 2 * count - 1
            above[label] = count - 1
    return found
