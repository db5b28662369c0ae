"""The voter that coordinates a flow: the one that rendezvous hashing of the flow's name picks among those alive.

Every agent computes the same from the same voters, without a message; when a voter comes or goes, only the flows that
it gets or had change their coordinator (Thaler, Ravishankar, 1998). Two agents that see different voters may both
take themselves for the coordinator: a majority grants the lease of the flow to one (`agent.lease`), and the
fencing number of `gateway.flows.parts` lets only the later one through.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def coordinator(flow: str, members: Iterable[str]) -> str:
    """The member with the greatest hash together with the flow. Raises `ValueError` without members."""
    return max(members, key=lambda member: (_hash(flow, member), member))


def _hash(flow: str, member: str) -> bytes:
    return hashlib.blake2s(f"{flow}\0{member}".encode(), digest_size=8, person=b"edgert-r").digest()
