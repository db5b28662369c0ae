"""Profiles of operators, measured while they run, and the figures derived from them for the instances before them in
the graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class Profile(NamedTuple):
    """Measured over a recent span."""

    cost_s: float
    """CPU seconds per row taken."""
    selectivity: float
    """Rows given to a consumer per row taken, to all its copies together; of several consumers the mean."""
    to_each: float | None = None
    """Rows given to an instance that it feeds per row taken, in the mean; None: as many as `selectivity` says, as no
    consumer has copies."""

    @property
    def fed(self) -> float:
        """Rows given to each instance that it feeds per row taken."""
        return self.selectivity if self.to_each is None else self.to_each


UNKNOWN = Profile(1e-5, 1.0)
"""Profile of an instance that has not run yet: ten microseconds a row, and each row gives one."""
PATHS = 64
"""More paths than this from one source are followed only to where no other led (a flow of many diamonds has
exponentially many)."""
ALL_PATHS = 512
"""Most paths from all sources together. Each source has its part of the paths that those before it have left, at least
one. A flow of many copies has thousands that differ in copies alone, and each is walked whenever there are new
profiles."""


class RowOutput(NamedTuple):
    """Output and cost of a row that an instance takes, until everything derived from it has left the flow."""

    rows: float
    """Rows that reach a sink."""
    cost_s: float
    """CPU seconds spent on them."""

    @property
    def rate(self) -> float:
        """Rows that leave per second of CPU (the priority of highest-rate scheduling)."""
        return self.rows / self.cost_s if self.cost_s > 0 else float("inf")


def outputs(downstream: Mapping[int, Sequence[int]], profiles: Mapping[int, Profile]) -> dict[int, RowOutput]:
    """Per instance S_k = s_k Σ_j S_j and C_k = c_k + s_k Σ_j C_j over the instances j that it feeds, with s_k rows to
    each; at a sink S = 1 and C = c. `downstream` must have no cycle and name every instance."""
    found: dict[int, RowOutput] = {}
    for k in after_those_they_feed(downstream):
        profile = profiles.get(k, UNKNOWN)
        fed = [found[j] for j in downstream[k]]
        if not fed:
            found[k] = RowOutput(1.0, profile.cost_s)
        else:
            rows, below_s = sum(f.rows for f in fed), sum(f.cost_s for f in fed)
            found[k] = RowOutput(profile.fed * rows, profile.cost_s + profile.fed * below_s)
    return found


def hops_to_sink(downstream: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Edges to the nearest sink, per instance."""
    hops: dict[int, int] = {}
    for k in after_those_they_feed(downstream):
        hops[k] = 1 + min((hops[j] for j in downstream[k]), default=-1)
    return hops


def after_those_they_feed(downstream: Mapping[int, Sequence[int]]) -> list[int]:
    """All instances, each after those that it feeds."""
    order: dict[int, None] = {}
    for start in downstream:
        stack = [(start, False)]
        while stack:
            k, fed_are_in = stack.pop()
            if fed_are_in:
                order[k] = None
            elif k not in order:
                stack.append((k, True))
                stack += [(j, False) for j in downstream[k]]
    return list(order)


def paths(downstream: Mapping[int, Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Every path from a source to a sink, at most `PATHS` from each source and `ALL_PATHS` from all; beyond these, so
    many that every instance is on one."""
    feeders: dict[int, list[int]] = {k: [] for k in downstream}
    for k, targets in downstream.items():
        for j in targets:
            feeders[j].append(k)
    met: set[int] = set()
    sources = [k for k in downstream if not feeders[k]]
    spare = ALL_PATHS
    for others, source in zip(reversed(range(len(sources))), sources, strict=True):
        left = most = min(PATHS, max(1, spare // (others + 1)))
        stack: list[tuple[int, ...]] = [(source,)]
        while stack and left:
            path = stack.pop()
            targets = downstream[path[-1]]
            if not targets:
                left -= 1
                met.update(path)
                yield path
            stack += [(*path, j) for j in reversed(targets)]
        spare -= most - left
    for k in downstream:
        if k not in met:
            path = (*reversed(_walk(k, feeders, met)[1:]), *_walk(k, downstream, met))
            met.update(path)
            yield path


def _walk(k: int, on: Mapping[int, Sequence[int]], met: set[int]) -> list[int]:
    """From `k` to an end, by instances that are not `met` where there are such."""
    walk = [k]
    while beside := on[walk[-1]]:
        walk.append(next((j for j in beside if j not in met), beside[0]))
    return walk
