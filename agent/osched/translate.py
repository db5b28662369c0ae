"""Translators (Lachesis §5.3): a schedule → a plain list of actions. Nothing here touches the kernel.

A *single-priority schedule* gives each thread a priority; a *grouping schedule* gives each group of threads one. The
actions say what should hold; the door leaves out what holds already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.drivers.entities import Thread
from agent.osched.kernel.actions import Action, SetCores, SetGroup, SetNice, SetSlice, SetWeights
from agent.osched.normalise import log_min_max, min_max, nice_values


def to_nice(priorities: Mapping[Thread, float], best: int, worst: int, over: Sequence[float] = ()) -> list[Action]:
    """Nice values from `best` (for the greatest priority) on, at most `worst`.

    `over`: priorities on other boards that count for the range, so that equal ones get equal values.
    """
    values = nice_values([*priorities.values(), *over], best, worst)
    return [SetNice(thread, nice) for thread, nice in zip(priorities, values, strict=False)]


def to_slices(
    priorities: Mapping[Thread, float],
    logarithmic: bool = False,
    shortest_ms: float = 0.7,
    longest_ms: float = 6.0,
    over: Sequence[float] = (),
) -> list[Action]:
    """EEVDF slices: the greatest priority gets the shortest slice, hence the earliest virtual deadline. `over`: as for
    `to_nice`."""
    scaled = (log_min_max if logarithmic else min_max)([*priorities.values(), *over], 0.0, 1.0)
    lengths = (shortest_ms * (longest_ms / shortest_ms) ** (1.0 - s) for s in scaled)
    return [SetSlice(thread, round(ms * 1e6)) for thread, ms in zip(priorities, lengths, strict=False)]


def to_cores(units: Mapping[tuple[Thread, ...], float], big: int) -> list[Action]:
    """The fast cores for the units (threads that run the same operators) of the greatest priorities, as many as there
    are fast cores; all others run anywhere. A unit of the least priority is not among them: so nothing is done where
    all are alike.

    `big`: mask of the fast cores.
    """
    least = min(units.values(), default=0.0)
    urgent = sorted((unit for unit, p in units.items() if p > least), key=lambda unit: (-units[unit], unit))
    return [SetCores(thread, big) for unit in urgent[: big.bit_count()] for thread in unit]


def to_groups(
    groups: Mapping[str, tuple[float, tuple[Thread, ...]]],
    quotas: Mapping[str, float] | None = None,
) -> list[Action]:
    """Shares in proportion to the (positive) priorities of the groups; their mean is the kernel's default."""
    total = sum(priority for priority, _ in groups.values())
    mean = total / len(groups) if total > 0.0 else 1.0
    limits = quotas or {}
    return [
        SetGroup(name, priority / mean if total > 0.0 else 1.0, threads, limits.get(name))
        for name, (priority, threads) in groups.items()
    ]


def to_weights(
    priorities: Mapping[tuple[str, str], float], logarithmic: bool = False, most: float = 16.0
) -> list[Action]:
    """Pool weights from 1 to `most`: (flow, instance) -> priority, one action per flow."""
    scale = log_min_max if logarithmic else min_max
    values = list(priorities.values())
    alike = len(set(values)) < 2
    weights = [1.0] * len(values) if alike else [round(w, 3) for w in scale(values, 1.0, most)]
    flows: dict[str, dict[str, float]] = {}
    for (flow, instance), weight in zip(priorities, weights, strict=True):
        flows.setdefault(flow, {})[instance] = weight
    return [SetWeights(flow, of) for flow, of in flows.items()]
