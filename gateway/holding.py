"""How a flow that is to be replaced or removed comes to stand still; and when it is left to itself instead."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from edgert.core.errors import EdgertError
from edgert.runtime.flow_run import FlowRun
from gateway.checkpointer import Checkpointer
from gateway.gaps import ABANDONED
from gateway.hosts import Host
from gateway.tasks import to_its_end

log = logging.getLogger(__name__)

HOLD_S = 60.0
"""A flow that is to be replaced or removed has so long to reach a batch boundary."""
HOLD_TURN_S, BETWEEN_S = 2.0, 0.1
"""It is waited for in turns, and between them checkpoints of the others are made."""


@asynccontextmanager
async def stopped(run: FlowRun, host: Host, checkpointer: Checkpointer) -> AsyncIterator[None]:
    """No checkpoint is made, and the flow stands still at a batch boundary with what a checkpoint needs in
    `run.pending`; where the body raises it goes on. Raises `EdgertError` for a flow that comes to none in time."""
    ends, fault = time.monotonic() + HOLD_S, ""
    while True:
        async with checkpointer.changing, checkpointer.busy:
            if checkpointer.runs.get(run.flow.name) is not run:
                raise EdgertError(f"flow {run.flow.name} was stopped meanwhile, see the log")
            try:
                stop = asyncio.to_thread(host.stop_for_plan, run, checkpointer.position, HOLD_TURN_S)
                stands = await to_its_end(stop)
            except Exception as error:  # noqa: BLE001 - an operator's fault is its flow's alone
                stands, fault = False, f" ({error!r})"
            if stands:
                try:
                    yield
                except BaseException:
                    host.go_on(run)
                    raise
                return
        if time.monotonic() >= ends:
            raise EdgertError(f"flow {run.flow.name} comes to no batch boundary{fault}: an operator of it is blocked")
        await asyncio.sleep(BETWEEN_S)


@asynccontextmanager
async def held(old: FlowRun, host: Host, checkpointer: Checkpointer) -> AsyncIterator[str | None]:
    """No checkpoint is made, and the flow stands still for good: gives "". Or it came to no batch boundary within
    `HOLD_S`, though it had the chance, and is blocked: then it is left to itself, and what is lost with it is given.
    None: it failed while it was waited for, and is gone.

    Before anything is changed: raises `EdgertError` for a flow that may still come to a batch boundary, and stays."""
    name, fault, ends = old.flow.name, "", time.monotonic() + HOLD_S
    while True:
        async with checkpointer.changing, checkpointer.busy:
            before = fault
            try:
                halt = asyncio.to_thread(host.halt, old, checkpointer.position, HOLD_TURN_S)
                stands = await to_its_end(halt)
                fault = ""
            except Exception as error:  # noqa: BLE001 - an operator's fault is its flow's alone
                stands, fault = False, repr(error)
            if checkpointer.runs.get(name) is not old:
                yield None
                return
            if stands:
                yield ""
                return
            late = time.monotonic() >= ends
            if late and host.is_up(old) and (fault or checkpointer.blocked.is_blocked(old)):
                why = f"could not be stopped ({fault})" if fault else "was blocked"
                gap = f"flow {name} {why} when it was replaced or removed: {ABANDONED}"
                log.error("%s", gap)
                yield gap
                return
        if late:
            raise EdgertError(
                f"flow {name} does not stop: an operator of it is blocked, or a slot of it is starting again; try again"
            )
        if fault and fault != before:
            log.error("flow %s cannot be stopped, which is tried again for up to %.0f s: %s", name, HOLD_S, fault)
        # a try that fails at once leaves in memory what the other operators have said
        await asyncio.sleep(HOLD_TURN_S if fault else BETWEEN_S)
