"""Actions: what should hold in the kernel, as plain values. A translator makes them, the door carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.drivers.entities import Thread


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
class SetCores:
    """The thread should run only on these cores, of those on which it may run anyway: bit n of the mask is core n."""

    thread: Thread
    cores: int


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


Action = SetNice | SetSlice | SetCores | SetGroup | SetWeights
