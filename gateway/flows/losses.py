"""Data that flows of this gateway have lost, in words: for the log, the status and the tables."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from edgert.core.errors import StoreError
from gateway.base.tasks import Tasks
from gateway.ledger.gaps import say_gap, write_gap
from gateway.registry.registry import FlowRegistry

log = logging.getLogger(__name__)


class Losses:
    """Lives on the loop. `written` is called when the tables have been told of a flow's gap."""

    def __init__(self, flow_registry: FlowRegistry, written: Callable[[], None]) -> None:
        self._registry, self._database, self._written = flow_registry, flow_registry.database, written
        self.gaps: dict[str, str] = {}
        """Flows that resumed from an older checkpoint at this start, or lost input, with the missing data in words."""
        self.begun_anew = ""
        """The damage, in words, for which this start set the database aside."""
        self.telling = Tasks(lambda error: log.error("a flow's gap could not be told", exc_info=error))

    def at_start(self) -> None:
        """Reports data that the database has lost, for each flow that it knows."""
        lost = self._database.lost
        if not lost:
            return
        log.error("%s", lost)
        for name, stored in self._registry.stored.items():
            if not stored.removed:
                say_gap(self._database, name, lost)
                self.gaps[name] = lost
        self._database.lost_is_said()

    def of_all(self, text: str) -> None:
        """Says for each flow that what an earlier data folder held is gone, also for one that is deployed later."""
        self._database.lost = text
        for name in self._registry.runs:
            self.gaps[name] = text
            self.telling.begin(self.tell(name, text))

    async def of_new(self, name: str, version: int) -> None:
        """Says of a flow that was deployed what an earlier version here may have lost."""
        self.gaps.pop(name, None)
        lost = self._database.lost
        if lost and version == 1:  # the database may have lost an earlier version
            await self._registry.store(lambda: say_gap(self._database, name, lost))
            self.gaps[name] = lost
        elif self.begun_anew and version == 1:  # the damaged one may have had it, and could not be read
            self.gaps[name] = self.begun_anew

    async def tell(self, name: str, text: str) -> None:
        """Tells the tables of a gap, however long that takes."""
        await write_gap(self._registry.store, self._database, name, text, self._registry.retry_s)
        self._written()

    async def told(self, timeout_s: float) -> None:
        """Waits until all gaps are written. Raises `StoreError` where that takes too long."""
        telling = self.telling.running
        if telling and (await asyncio.wait(telling, timeout=timeout_s))[1]:
            raise StoreError("that something of a flow is missing cannot be written, see the log; try again")
