"""An order of a graph that may have cycles: few edges lead backwards, and cycles break where rows enter them.

Eades, Lin and Smyth's heuristic, which takes all sources (all sinks) at once; when neither is left, Tarjan's
components, and the first of them breaks at a vertex that a vertex already taken leads to (FGCS 2025, section 5.3,
algorithm 3). The printed algorithm does not look for new sources and sinks after it broke a cycle; this one does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def order(vertices: Iterable[int], edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Levels from sources to sinks. Without cycles every edge leads to a later level."""
    left = dict.fromkeys(vertices)
    after: dict[int, set[int]] = {v: set() for v in left}
    before: dict[int, set[int]] = {v: set() for v in left}
    for a, b in edges:
        if a != b:
            after[a].add(b)
            before[b].add(a)
    head: list[list[int]] = []
    tail: list[list[int]] = []
    entered: set[int] = set()
    """Vertices to which a vertex of `head` leads."""

    def take(level: list[int]) -> list[int]:
        for v in level:
            del left[v]
            for b in after[v]:
                before[b].discard(v)
            for a in before[v]:
                after[a].discard(v)
        return level

    while left:
        while level := [v for v in left if not before[v]]:
            entered.update(b for v in level for b in after[v])
            head.append(take(level))
        while level := [v for v in left if not after[v]]:
            tail.append(take(level))
        if left:
            first = components(list(left), after)[-1]
            pick = [v for v in first if v in entered] or first
            v = max(pick, key=lambda v: len(after[v]) - len(before[v]))
            entered.update(after[v])
            head.append(take([v]))
    return head + tail[::-1]


def components(vertices: Sequence[int], after: dict[int, set[int]]) -> list[list[int]]:
    """Strongly connected components, those nearest to the sinks first (Tarjan 1972), without recursion."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in vertices:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        walk = [(root, iter(sorted(after[root])))]
        while walk:
            v, successors = walk[-1]
            for w in successors:
                if w not in index:
                    index[w] = low[w] = len(index)
                    stack.append(w)
                    on_stack.add(w)
                    walk.append((w, iter(sorted(after[w]))))
                    break
                if w in on_stack:
                    low[v] = min(low[v], index[w])
            else:
                walk.pop()
                if walk:
                    above = walk[-1][0]
                    low[above] = min(low[above], low[v])
                if low[v] == index[v]:
                    at = stack.index(v)
                    component, stack[at:] = stack[at:], []
                    on_stack.difference_update(component)
                    found.append(sorted(component))
    return found
