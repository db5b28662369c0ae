"""The other boards' OS scheduling, in the gossip: a section of each member's state."""

from __future__ import annotations

import logging
from typing import Final

from agent.membership.protocol import Membership

log = logging.getLogger(__name__)
SECTION: Final = "sched"


class SchedPeers:
    """See `agent.osched.cooperation.exchange.Peers`."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    def told(self) -> dict[str, bytes]:
        own = self._membership.roster.own
        others = (m for m in self._membership.roster if m is not own and m.present)
        return {m.name: m.sections[SECTION].payload for m in others if SECTION in m.sections}

    def members(self) -> int:
        return self._membership.roster.present

    def tell(self, payload: bytes) -> None:
        try:
            self._membership.publish(SECTION, payload)
        except ValueError as error:  # the fleet's bound is less than ours
            log.warning("osched: the other agents are not told: %s", error)
