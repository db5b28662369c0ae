"""Placement of instances in slots: near to those they send to, far from their own copies ("Locality/Fairness-Aware Job
Scheduling in Distributed Stream Processing Engines", Electronics 2020, 9(11), 1857).

An L/F *pipeline* holds at most one instance of each operator, all connected; pipelines go to slots as a whole, so what
stands in one passes no process boundary. `even` is the scheduler that the paper compares with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

SlotPlacement = Mapping[str, Sequence[int]]
"""Slot of each instance, by operator."""


def even(instances: Mapping[str, int], slots: int) -> SlotPlacement:
    """Instance i of all goes to slot i mod `slots`. `instances`: how many of each operator, in order of the flow."""
    placed: dict[str, list[int]] = {}
    at = 0
    for operator, count in instances.items():
        placed[operator] = [(at + i) % slots for i in range(count)]
        at += count
    return placed


def pipelines(instances: Mapping[str, int], edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Operators of each pipeline (section 3, pipeline extraction): from an operator that has instances left to every
    one that is connected to it and has, one instance of each; again, until none is left."""
    beside: dict[str, list[str]] = {operator: [] for operator in instances}
    for a, b in edges:
        beside[a].append(b)
        beside[b].append(a)
    left = dict(instances)
    found: list[list[str]] = []
    for start in instances:
        while left[start]:
            pipeline, walk = {start: None}, [start]
            while walk:
                for other in beside[walk.pop(0)]:
                    if left[other] and other not in pipeline:
                        pipeline[other] = None
                        walk.append(other)
            for operator in pipeline:
                left[operator] -= 1
            found.append(list(pipeline))
    return found


def locality_fairness(instances: Mapping[str, int], edges: Sequence[tuple[str, str]], slots: int) -> SlotPlacement:
    """Pipelines on slots. Where the paper deals them out in turn, so that copies can meet in one slot although another
    has none, each goes to the slot that has the fewest copies of its operators, and among these the fewest instances.

    Operators of one pipeline have been together in all longer ones, which come first: each slot has as many copies of
    one as of the other, and no operator's copies meet oftener than they must. So coupling is never more than that of
    `even`."""
    placed: dict[str, list[int]] = {operator: [] for operator in instances}
    copies: list[Counter[str]] = [Counter() for _ in range(slots)]
    for pipeline in sorted(pipelines(instances, edges), key=len, reverse=True):
        slot = min(range(slots), key=lambda s: (copies[s][pipeline[0]], copies[s].total(), s))
        for operator in pipeline:
            placed[operator].append(slot)
            copies[slot][operator] += 1
    return placed


def even_placement(instances: Mapping[str, int], edges: Sequence[tuple[str, str]], slots: int) -> SlotPlacement:
    """The placement of `even`, with the arguments of `locality_fairness`."""
    return even(instances, slots)


PLACEMENTS: Final = {"locality": locality_fairness, "even": even_placement}
"""Placement functions, by their name in the settings."""
