"""Guests of this board, which run only for as long as its agent says.

A guest is a part of a flow without a source here. The fleet may give it up when this board is gone, so it must not run
on when nobody says any more that the board reaches its fleet: the agent crashed, was stopped, or begins anew again and
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from edgert.core.errors import EdgertError
from edgert.core.system_clock import SleepingClock
from gateway.flows.parts import Parts

log = logging.getLogger(__name__)
LOOK_S: Final = 1.0


class Guests:
    """Lives on the loop. `run` until cancelled."""

    def __init__(self, parts: Parts, monotonic: Callable[[], float] = SleepingClock.monotonic) -> None:
        self._parts, self._monotonic = parts, monotonic
        self._until = float("inf")
        """Without a word of an agent since the start: guests of a board that had one stand still (`StoppedParts`)."""

    async def let_run(self, for_s: float) -> None:
        """Guests may run for so long from now on. After a start they wait for the agent."""
        self._until = self._monotonic() + for_s
        await self._parts.stopped.let_guests_wait()

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        if self._monotonic() < self._until:
            return
        for flow, part in self._parts.status().items():
            if part.get("guest") is True and part["state"] == "running":
                log.warning(
                    "flow %s, whose sources are elsewhere, stands still here: this board's agent has not said lately"
                    " that it reaches the fleet", flow,
                )  # fmt: skip
                try:
                    await self._parts.suspend(flow)
                except EdgertError as error:  # its plan is being changed; the next look tries again
                    log.warning("flow %s could not be stopped: %s", flow, error)
