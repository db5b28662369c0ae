"""Scheduling policies: the calls of a pool to its policy, and all policies by name.

A policy is told of changes and asked for a choice; it reads no clock and takes no lock. Instances are small integers
given by the caller. To add one, write a class over `Candidates` and its line in `POLICIES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Protocol

from edgert.scheduling.congestion_aware import CongestionAware
from edgert.scheduling.in_turn import Random, RoundRobin
from edgert.scheduling.lazy_heap import May
from edgert.scheduling.profile import Profile
from edgert.scheduling.ranked import MinLatency, MinMemory


class Policy(Protocol):
    """The calls of a pool to its policy; `Candidates` describes each."""

    @property
    def waiting(self) -> Sized: ...
    @property
    def weighed(self) -> bool: ...
    def add(self, instance: int) -> None: ...
    def remove(self, instance: int) -> None: ...
    def connect(self, downstream: Mapping[int, Sequence[int]]) -> None: ...
    def profile(self, profiles: Mapping[int, Profile]) -> None: ...
    def weigh(self, instance: int, weight: float) -> None: ...
    def ran(self, instance: int, took_s: float) -> None: ...
    def rows_added(self, instance: int, rows: int) -> None: ...
    def rows_taken(self, instance: int, rows: int) -> None: ...
    def busy(self, instance: int) -> None: ...
    def free(self, instance: int) -> None: ...
    def choose(self, now: float, may: May | None = None) -> int | None: ...


POLICIES: Mapping[str, Callable[[Callable[[], float]], Policy]] = {
    "congestion-aware": lambda draw: CongestionAware(),
    "congestion-aware-published": lambda draw: CongestionAware(math.inf),
    "min-latency": lambda draw: MinLatency(),
    "min-memory": lambda draw: MinMemory(),
    "round-robin": lambda draw: RoundRobin(),
    "random": Random,
}
"""Policies by name; each is given a function that draws numbers from 0 to below 1."""
