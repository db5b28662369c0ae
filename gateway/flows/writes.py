"""Changes of flows, written where the database may be full or damaged."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.errors import DamagedError, StoreError
from edgert.flow.versions.heirs import Succession, behind, keeps_state
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.run_out import NO_HEIRS, Heirs
from edgert.store import look_ups
from edgert.store.state.records import StoredFlow
from gateway.base.epochs import epoch_after
from gateway.base.retry_log import RetryLog
from gateway.checkpoint.checkpointer import Checkpointer
from gateway.ledger.gaps import ABANDONED, last_of_failed
from gateway.registry.registry import FlowRegistry

log = logging.getLogger(__name__)

STORE_TRIES = 30
"""How often a change of a flow is tried, a second apart, where the database cannot be written."""


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A flow that starts, or the next version of one."""

    stored: StoredFlow
    run: FlowRun
    """Gets the epoch that is written."""
    position: Position | None = None
    """The position from which the flow takes its input; None: from the messages that arrive now."""
    succession: Succession | None = None
    """The fate of the operators of the version before; None: nothing of it is left."""
    tokens: dict[str, int] = field(default_factory=dict)
    """Gets what is written: filter → token of its retained messages."""

    @property
    def heirs(self) -> Heirs:
        """The operators of the version before that hand over their state."""
        return self.succession.heirs if self.succession else NO_HEIRS


@dataclass(frozen=True, slots=True)
class Removal:
    """A flow that ends for good."""

    name: str

    @property
    def heirs(self) -> Heirs:
        """None: no version follows."""
        return NO_HEIRS


@dataclass(frozen=True, slots=True)
class RememberedFlow:
    """A flow that cannot start now, and is remembered: it starts when it can."""

    stored: StoredFlow


FlowChange = NewVersion | Removal | RememberedFlow


class FlowWrites:
    """Writes changes, each with the last checkpoint of the run that ends with it, in one transaction."""

    def __init__(self, flow_registry: FlowRegistry, checkpointer: Checkpointer) -> None:
        self._flow_registry, self._checkpointer = flow_registry, checkpointer
        self._database = flow_registry.database

    async def write_alone(self, change: FlowChange, *, failed: str = "") -> None:
        """Writes a change of a flow that does not run, and tries for a while. `failed`: the name of a flow that failed
        before; the state of its last checkpoint is lost now, and a gap says so. Raises `StoreError`, at once where
        another try cannot succeed."""
        await self._try(partial(self._write_alone, change, failed), STORE_TRIES)

    async def write_ending(self, change: FlowChange, last: Checkpoint) -> tuple[Checkpoint, str]:
        """Writes the end of a flow, retrying until it succeeds, since the end cannot be undone. Returns the last
        checkpoint as it was written, and the loss, in words, if it could not be written unchanged."""
        try:
            await self._try(partial(self._write, change, last))
            return last, ""
        except Exception as error:  # a fault of every try, while the whole gateway waits
            if self._database.damaged:
                raise
            lost = f"the end of flow {last.flow} could not be written ({error}): {ABANDONED}"
            log.error("%s", lost, exc_info=not isinstance(error, StoreError))
        empty = Checkpoint(last.flow, last.position, [], b"")
        await self._try(partial(self._write, change, empty))
        return empty, lost

    async def _try(self, write: Callable[[], None], tries: int | None = None) -> None:
        """On the store thread, a second apart; with `tries` None until it succeeds."""
        errors = RetryLog(log)
        for tried in itertools.count(1):
            try:
                await self._flow_registry.store(write)
                return
            except StoreError as error:
                if tried == tries or isinstance(error, DamagedError) or self._database.damaged:
                    raise
                errors.error("a change of a flow waits for the database: %s", error)
                await asyncio.sleep(self._flow_registry.retry_s)

    def _write(self, change: FlowChange, last: Checkpoint | None) -> None:
        with self._checkpointer.id_table() as table:
            self.put(change, last, *table)

    def _write_alone(self, change: FlowChange, failed: str) -> None:
        last = last_of_failed(self._database, failed) if failed else None
        if last is not None:
            try:
                self._write(change, last)
                log.error("%s", last.gap)
                return
            except DamagedError as error:
                log.error("the tables are not told that the open windows of flow %s are lost: %s", failed, error)
        self._write(change, None)

    def put(self, change: FlowChange, last: Checkpoint | None, pages: Mapping[int, bytes], index: int) -> None:
        """On the store thread, so that epochs which the uplink renamed a moment ago are known."""
        database = self._database
        if isinstance(change, Removal):
            database.remove_flow(change.name, last, pages, index)
            return
        if isinstance(change, RememberedFlow):
            database.put_flow(change.stored, None, last, pages, index)
            return
        stored = replace(change.stored, position=change.position or Position(index - 1))
        greatest = max(database.epochs(stored.name), default=0)
        if greatest >= stored.epoch:
            stored = replace(stored, epoch=epoch_after(greatest))
        handed = change.succession is not None and last is not None and last.whole
        state = last.deltas if last and handed else ()
        tokens = self._tokens(stored, change, lost=not handed)
        database.put_flow(stored, change.run.schema, last, pages, index, state=state, tokens=tokens)
        change.run.epoch = stored.epoch
        change.tokens.clear()  # of a try that failed
        change.tokens.update(tokens)

    def _tokens(self, stored: StoredFlow, change: NewVersion, *, lost: bool) -> dict[str, int]:
        """Filter → token of its retained messages: a new one where an operator with state, behind a source of the
        filter, begins without it."""
        run, before = change.run, self._database.read(look_ups.of_all).get(stored.name, {})
        empty = None if lost or change.succession is None else change.succession.empty
        found: dict[str, int] = {}
        for node in run.flow.nodes.values():
            if node.parameters.get("retained"):
                keeping = {o for o in behind(run.flow, node.name) if keeps_state(run.flow.nodes[o], run.registry)}
                begun = keeping if empty is None else keeping & empty
                name = node.parameters["topic"].filter
                if begun or name not in found:
                    found[name] = stored.epoch if begun else before.get(name, before.get(look_ups.ALL, 0))
        return {name: token for name, token in found.items() if token}
