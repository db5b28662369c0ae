"""L/F: connected instances share a slot, copies of one operator do not (Electronics 2020, section 3).

The algorithm itself is `edgert.scheduling.locality_fairness`; this is its slots on several boards.
"""

from __future__ import annotations

from agent.placement.heuristics.even import logical, on_boards, sorted_slots
from agent.placement.problem.model import BoardIndexes, PlacementProblem
from edgert.scheduling.locality_fairness import locality_fairness as on_slots


def locality_fairness(problem: PlacementProblem) -> BoardIndexes:
    """Pipelines on the slots of all boards. It looks at no cost and no capacity."""
    instances, edges = logical(problem)
    slots = sorted_slots(problem)
    return on_boards(problem, on_slots(instances, edges, len(slots)), slots)
