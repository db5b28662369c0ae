"""Even round-robin: instance i goes to slot i mod r (Electronics 2020, section 3; the default of Storm)."""

from __future__ import annotations

from agent.placement.problem.model import BoardIndexes, PlacementProblem
from edgert.scheduling.locality_fairness import SlotPlacement, even_placement


def sorted_slots(problem: PlacementProblem) -> list[int]:
    """Board of each slot: boards with most slots first, one slot of each in turn."""
    by_slots = sorted(range(len(problem.boards)), key=lambda b: (-problem.boards[b].slots, b))
    rounds = max(board.slots for board in problem.boards)
    return [b for turn in range(rounds) for b in by_slots if problem.boards[b].slots > turn]


def even(problem: PlacementProblem) -> BoardIndexes:
    """Instances in order of the problem. One that its slot's board may not run takes the next slot whose board may."""
    instances, _ = logical(problem)
    slots = sorted_slots(problem)
    return on_boards(problem, even_placement(instances, [], len(slots)), slots)


def logical(problem: PlacementProblem) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Number of instances of each logical operator, and the edges between logical operators."""
    instances: dict[str, int] = {}
    for operator in problem.operators:
        instances[operator.logical] = instances.get(operator.logical, 0) + 1
    name = [operator.logical for operator in problem.operators]
    return instances, list(dict.fromkeys((name[a], name[b]) for a, b, _, _ in problem.links if name[a] != name[b]))


def on_boards(problem: PlacementProblem, placed: SlotPlacement, slots: list[int]) -> BoardIndexes:
    """Slots of instances as boards. Where a board may not run an instance, its next slot that may."""
    seen: dict[str, int] = {}
    at: BoardIndexes = []
    for n, operator in enumerate(problem.operators):
        copy = seen[operator.logical] = seen.get(operator.logical, -1) + 1
        slot = placed[operator.logical][copy]
        may = problem.allowed[n]
        at.append(next(b for b in slots[slot:] + slots[:slot] if b in may))
    return at
