"""Changes of flows, written where the database may be full or damaged."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from edgert.core.checkpoint import Checkpoint
from edgert.core.errors import DamagedError, StoreError
from edgert.core.results import Drop
from edgert.runtime.flow_run import FlowRun
from edgert.store.database import Database
from edgert.store.records import StoredFlow
from gateway.back_in_time import successor
from gateway.checkpointer import RETRY_S, Checkpointer, OnStore
from gateway.gaps import ABANDONED
from gateway.hosts import Host, Send
from gateway.last_words import last_words
from gateway.once import Once

log = logging.getLogger(__name__)

STORE_TRIES = 30
"""How often a change of a flow is tried, a second apart, where the database cannot be written."""


class FlowWrites:
    """`send` takes what flows publish at their end."""

    def __init__(self, database: Database, store: OnStore, host: Host, send: Send, checkpointer: Checkpointer) -> None:
        self._database, self._store, self._host, self._send = database, store, host, send
        self._checkpointer = checkpointer

    async def write(self, commit: Callable[[dict[int, bytes], int], None], tries: int | None = STORE_TRIES) -> None:
        """Tries for a while; with `tries` None until it succeeds: what a drained flow says cannot be taken back. Raises
        `StoreError`, at once where that would be in vain."""
        once = Once(log)
        for tried in itertools.count(1):
            try:
                await self._store(lambda: self._checkpointer.write(commit))
                return
            except StoreError as error:
                if tried == tries or isinstance(error, DamagedError) or self._database.damaged:
                    raise
                once.error("a change of a flow waits for the database: %s", error)
                await asyncio.sleep(RETRY_S)

    def put(
        self, stored: StoredFlow, run: FlowRun, last: Checkpoint | None, pages: dict[int, bytes], index: int
    ) -> None:
        """On the store thread, so that epochs which the uplink renamed a moment ago are known."""
        greatest = max(self._database.epochs(stored.name), default=0)
        if greatest >= stored.epoch:
            stored = replace(stored, epoch=successor(greatest))
        self._database.put_flow(stored, run.schema, last, pages, index)
        run.epoch = stored.epoch

    async def end(
        self, old: FlowRun, put: Callable[[Checkpoint, dict[int, bytes], int], None], gap: str
    ) -> tuple[Sequence[Drop], str]:
        """Runs a held flow, to which nothing is fed any more, to its end, and writes that; with `gap` it has none.
        Returns what it says of rows that were dropped; and what is lost, if its end could not be written."""
        form: Checkpoint | None = None
        if not gap:
            form, gap = await last_words(old, self._host, self._send, self._checkpointer, self._store, self._database)
        name, position = old.flow.name, old.progress.position()
        drops = form.drops if form else self._checkpointer.drops.due(old)
        last = form or Checkpoint(name, position, [], b"", gap=gap, drops=drops)
        try:
            await self.write(lambda pages, index: put(last, pages, index), tries=None)
            return drops, ""
        except Exception as error:  # it fails with each try, and the whole gateway waits
            if self._database.damaged:
                raise
            lost = f"the end of flow {name} could not be written ({error}): {ABANDONED}"
            log.error("%s", lost, exc_info=not isinstance(error, StoreError))
        await self.write(lambda pages, index: put(Checkpoint(name, position, [], b""), pages, index), tries=None)
        return (), lost
