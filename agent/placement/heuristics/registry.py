"""The heuristics by name, and the one call that uses them: `place`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from agent.placement.heuristics.ant_system import ant_system
from agent.placement.heuristics.even import even
from agent.placement.heuristics.hill_climbing import hill_climbing
from agent.placement.heuristics.hybrid import hybrid, hybrid_as_published
from agent.placement.heuristics.locality_fairness import locality_fairness
from agent.placement.heuristics.resource_aware import resource_aware
from agent.placement.problem.budget import Budget, Draw
from agent.placement.problem.model import BoardIndexes, Placement, PlacementError, PlacementProblem

Heuristic = Callable[[PlacementProblem, Sequence[int] | None, Budget, Draw], BoardIndexes]
"""The current assignment, if there is one, comes second. A heuristic that only searches begins at resource-aware's."""


def _climb(problem: PlacementProblem, current: Sequence[int] | None, budget: Budget, draw: Draw) -> BoardIndexes:
    return hill_climbing(problem, resource_aware(problem) if current is None else current, budget, draw)


HEURISTICS: Final[Mapping[str, Heuristic]] = {
    "hybrid": hybrid,
    "hybrid-as-published": hybrid_as_published,
    "hill-climbing": _climb,
    "ant-system": ant_system,
    "resource-aware": lambda problem, *_: resource_aware(problem),
    "locality-fairness": lambda problem, *_: locality_fairness(problem),
    "even": lambda problem, *_: even(problem),
}


def place(
    name: str, problem: PlacementProblem, current: Placement | None, budget: Budget, draw: Draw
) -> dict[str, str]:
    """The placement that heuristic `name` finds. Raises `PlacementError` for a name that is none."""
    if name not in HEURISTICS:
        raise PlacementError(f"heuristic: expected one of {', '.join(HEURISTICS)}, got {name!r}")
    if not problem.operators:
        return {}
    start = None if current is None else problem.assignment(current)
    return problem.placement(HEURISTICS[name](problem, start, budget, draw))
