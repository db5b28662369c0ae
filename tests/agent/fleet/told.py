"""A board as it tells the others of itself."""

from __future__ import annotations

from typing import Any

from agent.interference.ring import NOTHING
from agent.interference.ring import pack as pack_ring
from agent.membership.members import Member, Section, State, Version
from edgert.core.packing import pack

TOLD = {"room": [2.0, 1e6], "high": [0.5, 0.1], "takes": True}


def member(told: Any, link: Any = ("10.0.0.1", 7947), ring: bytes = pack_ring(NOTHING), drained: Any = False) -> Member:
    sections = {"moves": pack(told), "board": pack({"link": list(link), "drained": drained}), "ring": ring}
    made = Member("g2", ("10.0.0.1", 1), Version(1, 1, State.ALIVE), 0.0)
    made.sections = {name: Section(1, 1, payload) for name, payload in sections.items()}
    return made
