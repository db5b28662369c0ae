"""Fencing numbers of coordinators: greater than all known ones, and never the same for two coordinators.

Two agents that both take themselves for the coordinator may read the same parts at the same moment. With the same
number both would get through, each on some of the gateways.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from edgert.core.ids import COORDINATOR_BITS

FAR_STEPS: Final = 1 << 16
"""A number that is greater than a known one by more changes than these is not credible: no board misses so many."""
NEAR_STEPS: Final = 4
"""Changes by which a number exceeds the last one where a coordinator tries again, or two hinder each other."""


def steps(number: int, known: int) -> int:
    """Changes that lie between two numbers."""
    return (number >> COORDINATOR_BITS) - (known >> COORDINATOR_BITS)


def mark(coordinator: str) -> int:
    """The bits that tell a coordinator's numbers from those of others."""
    name = hashlib.blake2s(coordinator.encode(), digest_size=COORDINATOR_BITS // 8, person=b"edgert-f").digest()
    return int.from_bytes(name)


def is_of(number: int, marks: Collection[int]) -> bool:
    """True if a coordinator with one of these marks made the number."""
    return number % (1 << COORDINATOR_BITS) in marks


def credible(numbers: Sequence[int]) -> int:
    """The greatest of several boards' numbers that may be true. Half of the boards, or more, speak for the one from
    which the others are counted, so a board that lies alone moves nothing."""
    ordered = sorted(numbers)
    middle = ordered[(len(ordered) - 1) // 2] if ordered else 0
    return max((number for number in ordered if steps(number, middle) <= FAR_STEPS), default=0)


def next_fence(known: Iterable[int], coordinator: str) -> int:
    """`known`: the fencing numbers of a flow's parts. The bits above the coordinator's name count; 2^31 changes of a
    flow fit into a database's integer."""
    return ((max(known, default=0) >> COORDINATOR_BITS) + 1 << COORDINATOR_BITS) | mark(coordinator)
