"""Translators (Lachesis §5.3): a schedule → a plain list of actions. Nothing here touches the kernel.

A *single-priority schedule* gives each thread a priority; a *grouping schedule* gives each group of threads one. The
actions say what should hold; the door leaves out what holds already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from agent.drivers.entities import Thread
from agent.osched.normalise import log_min_max, min_max, nice_values

SLICE_MS: Final = (0.1, 20.0)
"""What the kernel takes as the slice of a normal thread (sched_setattr, Linux 6.12 and newer)."""
V1_SHARES: Final = (2, 262_144)
V1_USUAL: Final = 1024
V2_WEIGHT: Final = (1, 10_000)
V2_USUAL: Final = 100
PERIOD_US: Final = 100_000
"""Period of a quota: the kernel's default."""


@dataclass(frozen=True, slots=True)
class SetNice:
    """The thread should have this nice value."""

    thread: Thread
    nice: int


@dataclass(frozen=True, slots=True)
class SetSlice:
    """The thread should get slices of this length: shorter ones come sooner, at the same share."""

    thread: Thread
    slice_ns: int


@dataclass(frozen=True, slots=True)
class SetGroup:
    """There should be this group of the agent's, with this share and quota, and these threads in it.

    `share`: 1 is what a group gets by default. `quota`: cores that it may use at most; None: no limit.
    """

    group: str
    share: float
    threads: tuple[Thread, ...]
    quota: float | None = None


@dataclass(frozen=True, slots=True)
class SetWeights:
    """Instances of a flow of ours should have these weights in the pools of their slots (1 is the default)."""

    flow: str
    weights: Mapping[str, float]


Action = SetNice | SetSlice | SetGroup | SetWeights


def to_nice(priorities: Mapping[Thread, float], best: int, worst: int) -> list[Action]:
    """Nice values from `best` (for the greatest priority) on, at most `worst`."""
    values = nice_values(list(priorities.values()), best, worst)
    return [SetNice(thread, nice) for thread, nice in zip(priorities, values, strict=True)]


def to_slices(
    priorities: Mapping[Thread, float], logarithmic: bool = False, shortest_ms: float = 0.7, longest_ms: float = 6.0
) -> list[Action]:
    """EEVDF slices: the greatest priority gets the shortest slice, hence the earliest virtual deadline."""
    scaled = (log_min_max if logarithmic else min_max)(list(priorities.values()), 0.0, 1.0)
    lengths = (shortest_ms * (longest_ms / shortest_ms) ** (1.0 - s) for s in scaled)
    return [SetSlice(thread, round(ms * 1e6)) for thread, ms in zip(priorities, lengths, strict=True)]


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


def _bounded(share: float, usual: int, bounds: tuple[int, int]) -> int:
    return min(bounds[1], max(bounds[0], round(share * usual)))


def v1_files(share: float, quota: float | None) -> dict[str, str]:
    """Files of a group of cgroup version 1 -> what to write."""
    files = {"cpu.shares": str(_bounded(share, V1_USUAL, V1_SHARES))}
    files["cpu.cfs_quota_us"] = "-1" if quota is None else str(max(1000, round(quota * PERIOD_US)))
    return files


def v2_files(share: float, quota: float | None) -> dict[str, str]:
    """Files of a group of cgroup version 2 -> what to write."""
    limit = "max" if quota is None else str(max(1000, round(quota * PERIOD_US)))
    return {"cpu.weight": str(_bounded(share, V2_USUAL, V2_WEIGHT)), "cpu.max": f"{limit} {PERIOD_US}"}


Files = Callable[[float, float | None], dict[str, str]]
"""`v1_files` or `v2_files`."""
