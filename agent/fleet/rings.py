"""The predicted load of the boards: this board's ring in the gossip, and all rings for whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from agent.fleet.local_gateway import LocalGateway
from agent.fleet.status import section_untrusted
from agent.interference.forecasts import Forecasts
from agent.interference.ring import NOTHING, SECONDS, STARTS, Ring, pack, unpack_untrusted
from agent.membership.members import State
from agent.membership.roster import Roster
from edgert.control.server import Handler
from edgert.core.errors import ProtocolError

SECTION: Final = "ring"
REFERENCE_SPEED: Final = 20.0
"""Million loops per second (`agent.capacity`) of the core that rings are counted in."""
BYTES_PER_MBIT: Final = 125_000
SHOWN_S: Final = (10.0, 60.0, 180.0)
"""Span of the forecast of which people see the mean."""


class FleetRings:
    """The agent's part that predicts."""

    def __init__(
        self, roster: Roster, gateway: LocalGateway, capacity: Mapping[str, Any], external: bool = True
    ) -> None:
        """`external`: whether load of other programs counts."""
        self._roster, self._gateway, self._external = roster, gateway, external
        self._speed, self._cores = capacity["speed"] / REFERENCE_SPEED, float(capacity["cores"])
        self.cores = self._cores * self._speed
        """Cores of this board, in reference cores, as control groups leave them."""
        self.bandwidth = float(capacity["bandwidth_mbit"]) * BYTES_PER_MBIT
        """Bandwidth of this board, in bytes per second."""
        self.forecasts = Forecasts()
        self.rings: Mapping[tuple[str, str], Ring] = {}
        """Flow and instance -> its newest ring."""
        self.board = NOTHING
        self.used = 0.0, 0.0
        """Reference cores, and bytes per second, that were in use between the last two readings."""
        self.others = 0.0
        """Reference cores of them that other programs used."""
        self.changed = asyncio.Event()
        """Set with each prediction."""
        self.control: dict[str, Handler] = {"fleet.rings": self._rings}

    def look(self, load: float, cores: float, speed: float) -> bytes:
        """Reads what the gateway said last; returns the board's ring, packed. `load`: runnable processes on average, of
        all programs; `cores`: those that control groups leave to the gateway. Other programs have the rest first.
        `speed`: of one core, in million loops per second; it grows while the agent measures."""
        self._speed = speed / REFERENCE_SPEED
        self.cores = cores * self._speed
        load = max(0.0, load - (self._cores - cores)) if self._external else 0.0
        if self._gateway.connected:
            self.forecasts.observe(self._gateway.figures)
        self.rings = self.forecasts.rings(self._speed)
        self.board = self.forecasts.board(self.rings.values(), self._speed, load)
        self.used = self.forecasts.used(self._speed, load)
        self.others = self.used[0] - self.forecasts.cpu_now * self._speed
        self.changed.set()
        return pack(self.board)

    async def _rings(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        """Gateway -> predicted use of its cores (parts of them) in the next seconds, and bytes per second it sends."""
        found: dict[str, Any] = {}
        for member in self._roster:
            section = member.sections.get(SECTION)
            if member.state is not State.ALIVE or section is None:
                continue
            board = section_untrusted(member, "board")
            cores, speed = board.get("cores"), board.get("speed")
            if not isinstance(cores, int | float) or not isinstance(speed, int | float) or cores <= 0 or speed <= 0:
                continue
            try:
                ring = unpack_untrusted(section.payload)
            except ProtocolError as error:
                found[member.name] = {"error": str(error)}
                continue
            capacity = cores * speed / REFERENCE_SPEED
            found[member.name] = {
                "cores": cores,
                "cpu": [value / capacity for value in ring.cpu],
                "link": list(ring.link),
                "mean_cpu": {f"{seconds:g} s": _mean(ring, seconds) / capacity for seconds in SHOWN_S},
            }
        return {"seconds": list(SECONDS), "boards": found}


def _mean(ring: Ring, seconds: float) -> float:
    """Mean use of the cores in the next `seconds`."""
    inside = [
        (value, length) for value, length, start in zip(ring.cpu, SECONDS, STARTS, strict=True) if start < seconds
    ]
    return sum(value * length for value, length in inside) / sum(length for _, length in inside)
