"""Recovery after the death of a slot: which flows may have caused it, when each of them is brought back, and which is
given up. (`SlotProcess` starts the process itself again.)

A dead slot leaves a record of the flows for which its threads worked. Any of them may be the cause, so deaths are
counted by flow. A flow with many deaths is a suspect. A suspect is brought back only while no other suspect is tried,
so that a death during the trial is its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from edgert.core.clock import Clock
from edgert.core.errors import DamagedError
from gateway.base.tasks import Tasks
from gateway.hosts.host import Recovery
from gateway.hosts.orders import Orders
from gateway.hosts.slot_process import SlotProcess
from gateway.hosts.slotted_flow import SlottedFlow

log = logging.getLogger(__name__)

TRIED_S: Final = 0.1
"""How often a flow that is tried is looked at."""
MOST_DEATHS: Final = 8
"""Deaths of slots while they worked for a flow, each within `STEADY_S` of the one before, after which the flow is
stopped, so that it does not stop the others."""
SUSPECT: Final = 4
"""After so many it is brought back only while no other is tried: a slot may have worked for several when it died."""
STEADY_S: Final = 10.0
"""A flow that lives for so long after a death did not cause it by what it begins with. (One that comes to that later
dies sooner the next time, since checkpoints come nearer to it.)"""


BeginAgain = Callable[[SlottedFlow, list[bytes], bytes], None]
"""Begins another life of a flow, from state (blobs and queue). On the store thread."""


class SlotDeaths:
    """Lives on the loop."""

    def __init__(
        self,
        processes: Sequence[SlotProcess],
        clock: Clock,
        orders: Orders,
        begin_again: BeginAgain,
        recovery: Recovery,
    ) -> None:
        """`processes`: all slots."""
        self._processes, self._clock = processes, clock
        self._orders, self._begins, self._recovery = orders, begin_again, recovery
        self.recoveries = Tasks(
            lambda error: log.error("a flow could not be brought back after the death of a slot", exc_info=error)
        )
        self._trial = asyncio.Lock()
        """The lock held while a suspect is tried."""
        self._stopping = False
        self.most_deaths = MOST_DEATHS

    def died(self, process: SlotProcess, flows: Iterable[SlottedFlow]) -> None:
        """Handles the death of a slot, which has a new link already. `flows`: those with instances in it."""
        for other in self._processes:
            if other is not process:
                process.pair(other)
        for hosted in flows:
            # if it was at nothing that is known, it may have been any of them: a thread of an operator's own
            ran = not process.worked_for or hosted.number in process.worked_for
            self._lost(hosted, ran, self._clock.monotonic() - max(hosted.since, process.started))

    def bring_back(self, hosted: SlottedFlow) -> None:
        """Brings a flow back that is down and was not to be brought back before."""
        if not self._stopping:
            self.recoveries.begin(self._bring_back(hosted))

    async def stop(self) -> None:
        """Brings no flow back any more."""
        self._stopping = True
        await self.recoveries.stop()

    def _lost(self, hosted: SlottedFlow, ran: bool, lived_s: float) -> None:
        """Judges the death for one flow. `ran`: a thread of the slot worked for it; `lived_s`: seconds since it began
        in that slot."""
        with hosted.lock:
            was_down, hosted.down = hosted.down, True
            if not was_down:
                hosted.deaths = ran + (hosted.deaths if lived_s < STEADY_S else 0)
            self._orders.end_life(hosted)
            hosted.lock.notify_all()
        if not (was_down or self._stopping):
            self.recoveries.begin(self._bring_back(hosted))

    async def _bring_back(self, hosted: SlottedFlow) -> None:
        if hosted.deaths >= self.most_deaths:
            why = f"its slots died {hosted.deaths} times at work for it, none long after the other"
            self._recovery.fail(hosted.run, why)
        elif hosted.deaths < SUSPECT:
            await self._begin_again(hosted)
        else:
            async with self._trial:
                await self._begin_again(hosted)
                number = hosted.number
                # until it dies or ends, or lives for long
                while not hosted.down and hosted.number == number and self._lived_s(hosted) < STEADY_S:  # noqa: ASYNC110
                    await asyncio.sleep(TRIED_S)

    async def _begin_again(self, hosted: SlottedFlow) -> None:
        """Begins another life of the flow from its last checkpoint."""
        run, recovery = hosted.run, self._recovery
        try:
            async with recovery.last_checkpoint(run.flow.name) as (blobs, queue):
                await recovery.store(lambda: self._begins(hosted, blobs, queue))
        except DamagedError:
            raise  # the gateway ends
        except Exception as error:
            recovery.fail(run, f"it could not be brought back after the death of a slot: {error!r}")
            raise

    def _lived_s(self, hosted: SlottedFlow) -> float:
        """Seconds for which all its slots have worked for it."""
        slots = [self._processes[slot] for slot in hosted.slots]
        began = max(hosted.since, *(process.started for process in slots))
        return self._clock.monotonic() - began if all(process.running for process in slots) else 0.0
