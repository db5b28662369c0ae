"""Fencing numbers of coordinators: greater than all known ones, and never the same for two coordinators.

Two agents that both take themselves for the coordinator may read the same parts at the same moment. With the same
number both would get through, each on some of the gateways.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from edgert.core.ids import COORDINATOR_BITS


def next_fence(known: Iterable[int], coordinator: str) -> int:
    """`known`: the fencing numbers of a flow's parts. The bits above the coordinator's name count; 2^31 changes of a
    flow fit into a database's integer."""
    name = hashlib.blake2s(coordinator.encode(), digest_size=COORDINATOR_BITS // 8, person=b"edgert-f").digest()
    return ((max(known, default=0) >> COORDINATOR_BITS) + 1 << COORDINATOR_BITS) | int.from_bytes(name)
