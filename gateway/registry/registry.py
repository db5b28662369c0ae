"""The registry of the flows on this gateway, and the lock protocol by which it changes.

Three locks, always taken in this order; each step names the locks that it needs:

    changing    one change of the running flows at a time: deploy, remove, another plan
    succession  a flow is replaced, removed, or brought back to its last checkpoint
    busy        a checkpoint or another write of flows is under way

A change holds `changing` to its end. It takes the other two (`alone`) once its flow stands still, and gives them back
for as long as the flow works off what it has (`others_go_on`), so that the other flows get their checkpoints and are
brought back where their slots die, which takes the same two (`last_checkpoint`). Checkpoints take `busy` only.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

from edgert.core.clock import Clock
from edgert.core.errors import DamagedError, EdgertError, StoreError
from edgert.runtime.flow_run import FlowRun
from edgert.store.database import Database
from edgert.store.state.records import StoredFlow
from gateway.base.retry_log import RetryLog
from gateway.base.tasks import OnStore, Tasks, to_its_end
from gateway.ingest.subscriptions import SubscribedSource
from gateway.ledger.drop_ledger import DropLedger
from gateway.ledger.gaps import say_no_room
from gateway.registry.plan_changes import PlanChanges
from gateway.registry.recovery import last_checkpoint

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
AGAIN: Final = (
    "flow %s: %d result rows had left ahead of a checkpoint that was not made; they are made again and count twice"
)
OnChange = Callable[[Mapping[str, FlowRun]], Awaitable[None]]
"""Called with the running flows after these have changed."""


class FlowRegistry:
    """Lives on the daemon's loop."""

    def __init__(self, database: Database, store: OnStore, clock: Clock, on_change: OnChange | None = None) -> None:
        self.database, self.store = database, store
        self.retry_s = RETRY_S
        """After a failure of the database."""
        self.runs: dict[str, FlowRun] = {}
        """The flows that run."""
        self.stored: dict[str, StoredFlow] = {}
        """All flows as the database has them; also those that failed or were removed."""
        self.sources: dict[str, list[SubscribedSource]] = {}
        """The subscriptions of the running flows at the sensors' broker."""
        self.failed: dict[str, str] = {}
        """Stored flows that could not be started, and why; a new document for them takes them out."""
        self.drops = DropLedger(database, clock)
        self.feeding = threading.Lock()
        """The lock held while a batch is fed to a flow; taken on any thread."""
        self.changing, self.succession, self.busy = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self.plan_changes = PlanChanges(database.gateway, self.runs, self.stored)
        self.on_change = on_change
        self.on_restored: Callable[[], None] = lambda: None
        """Called when a flow is back at its last checkpoint: messages that wait for acknowledgement need another
        checkpoint."""
        self.on_failed: Callable[[FlowRun, str], None] = lambda run, why: None
        """Stops a flow that cannot go on, see `fail`."""
        self._tasks = Tasks(lambda error: log.error("the links could not follow a change of flows", exc_info=error))

    def is_current(self, run: FlowRun) -> bool:
        """True if this run is the flow's present one."""
        return self.runs.get(run.flow.name) is run

    async def changed(self) -> None:
        """Tells `on_change` of the running flows; to be called after each change of them. The change stands, so a fault
        is logged and told again later."""
        try:
            if self.on_change:
                await self.on_change(self.runs)
        except EdgertError as error:
            log.error("the links could not follow a change of flows, which is tried again: %s", error)
            self._tasks.begin(self._tell_again())

    async def _tell_again(self) -> None:
        await asyncio.sleep(self.retry_s)
        await self.changed()

    def fail(self, run: FlowRun, why: str) -> None:
        """Stops a flow that has begun and cannot go on: it is fed nothing more, and no call waits for it."""
        self.on_failed(run, why)

    async def stop(self) -> None:
        """Tells nothing any more."""
        await self._tasks.stop()

    # -- locks

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """No checkpoint is made, and no flow is brought back to one."""
        async with self.succession, self.busy:
            yield

    @asynccontextmanager
    async def others_go_on(self) -> AsyncIterator[None]:
        """Lets the other flows get checkpoints, and recover where a slot dies. Within `alone`, for a flow that has
        `ended`."""
        self.busy.release()
        self.succession.release()
        try:
            yield
        finally:
            await to_its_end(self._take_again())  # a caller that is cancelled gives them back, too

    async def _take_again(self) -> None:
        await self.succession.acquire()
        await self.busy.acquire()

    async def settled(self, timeout_s: float) -> None:
        """Waits for the change that is under way, no longer than that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self.changing:
                pass

    # -- the last checkpoint

    def read_checkpoint(self, flow: str) -> tuple[list[bytes], bytes]:
        """State and queues of a flow's last checkpoint. On the store thread. Raises `StoreError`."""
        return last_checkpoint(self.database, flow)

    @asynccontextmanager
    async def last_checkpoint(self, flow: str) -> AsyncIterator[tuple[list[bytes], bytes]]:
        """(state, queues) from which a flow is to begin again; no checkpoint is made meanwhile. Waits for a database
        that cannot be read or written now. Raises `DamagedError`."""
        async with self.alone():
            errors = RetryLog(log)
            while True:
                try:
                    found = await self._go_back(flow)
                    break
                except DamagedError as error:
                    self.database.damaged = str(error)  # a start goes back to a whole checkpoint
                    raise
                except StoreError as error:
                    if self.database.damaged:  # the database takes no more writes
                        raise DamagedError(str(error)) from error
                    errors.error("flow %s waits for the database to go back to its checkpoint: %s", flow, error)
                    await asyncio.sleep(self.retry_s)
            yield found
        self.on_restored()

    async def _go_back(self, flow: str) -> tuple[list[bytes], bytes]:
        if again := await self.store(lambda: self.database.go_back(flow)):
            log.warning(AGAIN, flow, again)
        found: tuple[list[bytes], bytes] = await self.store(lambda: self.read_checkpoint(flow))
        lost = await self.store(lambda: say_no_room(self.database, flow))
        self.drops.lost_input[flow] += lost
        return found
