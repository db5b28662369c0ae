"""Results of at-least-once flows leave before their checkpoint: they go into the outbox four times a second.

They are numbered and written before they are sent, as all results are, so that a number always means the same. Only the
flow's state and position wait for the checkpoint. After a crash the flow goes on from the last checkpoint; the results
since then are computed again under other numbers, so they count twice, and their number is known
(`edgert.store.outbox.early_results`).

Each write costs the card, so nothing is taken while it could not leave: without contact to the collector these results
wait for the checkpoint, as those of other flows do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from edgert.core.errors import StoreError
from edgert.runtime.flow_run import FlowRun
from edgert.store.state.records import FlowResults
from gateway.checkpoint.checkpointer import Checkpointer
from gateway.hosts.host import Host
from gateway.registry.registry import FlowRegistry

log = logging.getLogger(__name__)

AHEAD_S: Final = 0.25
"""Seconds for which results are collected into one write."""
IDLE_S: Final = 1.0
"""Seconds between two looks for such flows where none runs."""


class EarlyResults:
    """One loop for all flows. Results that are there at the same time share a transaction."""

    def __init__(
        self, flow_registry: FlowRegistry, host: Host, checkpointer: Checkpointer, leaves: Callable[[str], bool]
    ) -> None:
        """`leaves`: true if results of a flow can leave now."""
        self._flow_registry, self._host, self._checkpointer = flow_registry, host, checkpointer
        self._database, self._store = flow_registry.database, flow_registry.store
        self._leaves = leaves

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(AHEAD_S if self.chosen() else IDLE_S)
            if not await self.send():
                await asyncio.sleep(self._flow_registry.retry_s)

    async def send(self) -> bool:
        """Puts new results of flows into the outbox. False when they could not be written; they stay with their flow
        then."""
        if not self.chosen():
            return True
        checkpointer = self._checkpointer
        async with self._flow_registry.busy:
            runs = self.chosen()
            try:
                written: bool = await self._store(lambda: self._write(runs))
            except StoreError as error:
                checkpointer.failed(error)
                return False
            except Exception as error:
                log.exception("results could not be put into the outbox, in a way that was not foreseen")
                checkpointer.failed(error)
                return False
        if written:
            checkpointer.on_committed()
        return True

    def chosen(self) -> list[FlowRun]:
        """Flows whose results are taken. A flow that waits for room goes on with its checkpoint."""
        checkpointer = self._checkpointer
        blocked = checkpointer.outbox_room.blocked
        return [
            run
            for name, run in self._flow_registry.runs.items()
            if run.flow.delivery == "at-least-once" and name not in blocked and self._leaves(name)
        ]

    def _write(self, runs: list[FlowRun]) -> bool:
        """On the store thread. True if the outbox has new results."""
        host, outbox = self._host, self._checkpointer.outbox_room
        # an uncommitted capture already covers earlier results, so none may be written before it
        taken = {run: host.checkpoints.take_results(run) for run in runs if not (run.pending or run.ended)}
        taken = {run: rows for run, rows in taken.items() if rows}
        if not taken:
            return False
        results = [FlowResults(run.flow.name, run.columns, run.listed(rows)) for run, rows in taken.items()]
        try:
            refused = self._database.put_early(results)
        except BaseException:
            for run, rows in taken.items():
                host.checkpoints.give_back(run, rows)
            raise
        for run, rows in taken.items():
            if run.flow.name in refused:
                host.checkpoints.give_back(run, rows)
            else:
                run.left_ahead(rows)
        outbox.committed([result.flow for result in results], refused)
        return len(refused) < len(taken)
