"""big.LITTLE: which cores of a board are the fast ones. Cores are bits of a mask: core 0 is bit 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

UNEQUAL: Final = 0.9
"""Cores are little ones below this part of the fastest core's capacity: the cores of a cluster may differ a little."""


@dataclass(frozen=True, slots=True)
class Clusters:
    """The fast and the slow cores of a board, as masks."""

    big: int
    little: int


def clusters_of(capacities: Mapping[int, float]) -> Clusters | None:
    """Core -> capacity, in any unit; None where all cores are alike."""
    bound = UNEQUAL * max(capacities.values(), default=0.0)
    big = mask(core for core, capacity in capacities.items() if capacity >= bound)
    little = mask(core for core, capacity in capacities.items() if capacity < bound)
    return Clusters(big, little) if little else None


def mask(cores: Iterable[int]) -> int:
    """The mask of some cores."""
    return sum(1 << core for core in set(cores))


def cores(bits: int) -> set[int]:
    """The cores of a mask."""
    return {core for core in range(bits.bit_length()) if bits >> core & 1}
