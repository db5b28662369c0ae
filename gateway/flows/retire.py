"""The stop of a flow that is replaced, removed or goes on by another plan, and its last results."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.errors import DamagedError, EdgertError, StoreError
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.pool.pool import Send
from edgert.runtime.run_out import NO_HEIRS, Heirs, Said
from gateway.base.retry_log import RetryLog
from gateway.base.tasks import to_its_end
from gateway.checkpoint.checkpointer import Checkpointer
from gateway.hosts.host import Host
from gateway.ledger.gaps import ABANDONED
from gateway.registry.registry import FlowRegistry

log = logging.getLogger(__name__)

HOLD_S: Final = 60.0
WHY: Final = "an operator or a slot of it hangs, or a slot of it is starting again; try again"
LONG_S: Final = 10.0
"""Seconds after which the log says that a flow is still working off its queues."""


class Held(NamedTuple):
    """A flow that is to end, at the moment from which it is fed nothing more."""

    failed: bool = False
    """True if the flow failed while it was waited for, and is gone."""
    gap: str = ""
    """Description of the loss, for a flow that was abandoned. Empty: the flow stopped with all its state."""


class Retirement:
    """`send` takes the messages that flows publish at their end."""

    def __init__(self, flow_registry: FlowRegistry, host: Host, checkpointer: Checkpointer, send: Send) -> None:
        self._flow_registry, self._host, self._checkpointer, self._send = flow_registry, host, checkpointer, send
        self.hold_s = HOLD_S
        """Seconds in which a flow that is to be replaced or removed must reach a batch boundary."""
        self.hold_turn_s, self.between_s = 2.0, 0.1
        """Seconds of one try to reach it, and between two tries, when the other flows get checkpoints."""
        self.still_s = 60.0
        """A flow that works off its queues is given up if no turn of it ends for so many seconds: an operator hangs."""

    @asynccontextmanager
    async def stopped(self, run: FlowRun) -> AsyncIterator[None]:
        """No checkpoint is made, and the flow stands still at a batch boundary with what a checkpoint needs in
        `run.pending`; where the body raises it goes on. Raises `EdgertError` for a flow that comes to none in time."""
        ends, fault = time.monotonic() + self.hold_s, ""
        while True:
            async with self._flow_registry.alone():
                if not self._flow_registry.is_current(run):
                    raise EdgertError(f"flow {run.flow.name} was stopped meanwhile, see the log")
                stands, failed = await self._tried(self._host.checkpoints.stop_for_plan, run)
                fault = f" ({failed})" if failed else fault
                if stands:
                    try:
                        yield
                    except BaseException:
                        self._host.go_on(run)
                        raise
                    return
            if time.monotonic() >= ends:
                raise EdgertError(f"flow {run.flow.name} comes to no batch boundary{fault}: {WHY}")
            await asyncio.sleep(self.between_s)

    @asynccontextmanager
    async def held(self, old: FlowRun) -> AsyncIterator[Held]:
        """No checkpoint is made, and the flow stands still for good. A flow that came to no batch boundary within
        `hold_s`, though it had the chance, is stuck and is left to itself.

        Raises `EdgertError` for a flow that may still come to a batch boundary, before anything is changed."""
        name, fault, ends = old.flow.name, "", time.monotonic() + self.hold_s
        while True:
            async with self._flow_registry.alone():
                before = fault
                stands, fault = await self._tried(self._host.checkpoints.halt, old)
                if not self._flow_registry.is_current(old):
                    yield Held(failed=True)
                    return
                if stands:
                    yield Held()
                    return
                late = time.monotonic() >= ends
                stuck = self._checkpointer.input_spill.is_stuck(old)
                if late and self._host.checkpoints.is_up(old) and (fault or stuck):
                    why = f"could not be stopped ({fault})" if fault else "was stuck"
                    gap = f"flow {name} {why} when it was replaced or removed: {ABANDONED}"
                    log.error("%s", gap)
                    yield Held(gap=gap)
                    return
            if late:
                raise EdgertError(f"flow {name} does not stop: {WHY}")
            if fault and fault != before:
                log.error(
                    "flow %s cannot be stopped, which is tried again for up to %.0f s: %s", name, self.hold_s, fault
                )
            # a try that fails at once leaves in memory what the other operators have said
            await asyncio.sleep(self.hold_turn_s if fault else self.between_s)

    async def _tried(self, stop: Callable[[FlowRun, threading.Lock, float], bool], run: FlowRun) -> tuple[bool, str]:
        """(whether the flow stands still after one try, the fault that it raised or ""). If the caller is cancelled
        meanwhile, the flow goes on."""
        stands = False

        def attempt() -> None:
            nonlocal stands
            stands = stop(run, self._checkpointer.feeding, self.hold_turn_s)
            run.stands_since = time.monotonic() - run.pause_s

        try:
            await to_its_end(asyncio.to_thread(attempt))
            return stands, ""
        except asyncio.CancelledError:
            if stands:
                self._host.go_on(run)
            raise
        except Exception as error:  # noqa: BLE001 - an operator's fault is its flow's alone
            return False, repr(error)

    async def ending(self, old: FlowRun, gap: str, heirs: Heirs = NO_HEIRS) -> Checkpoint:
        """Runs a held flow, to which nothing is fed any more, to its end, however long that takes while it goes on.
        The state of operators with `heirs` is in the checkpoint. Returns the last checkpoint of it, with all that it
        dropped; to be written once. A flow that has no end (`gap` says why), hangs, or cannot be brought to its end or
        packed then, ends as its last checkpoint left it, and the checkpoint says what is lost."""
        last: Checkpoint | None = None
        if not gap:
            last, gap = await self._last_checkpoint(old, heirs)
        if last is None:
            drops = self._flow_registry.drops.due(old)
            last = Checkpoint(old.flow.name, old.progress.position(), [], b"", gap=gap, drops=drops)
        return last

    async def _last_checkpoint(self, old: FlowRun, heirs: Heirs) -> tuple[Checkpoint | None, str]:
        """(the last checkpoint or None, the loss in words). Checkpoints of the other flows are made meanwhile. Packing
        much state takes long, so it is not done on the loop."""
        registry = self._flow_registry
        name, errors = old.flow.name, RetryLog(log)
        last: LastTurns | None = None
        while True:
            try:
                if last is None:
                    turns = LastTurns(
                        await registry.store(lambda: self._host.checkpoints.run_out(old, heirs)), self._send
                    )
                    async with registry.others_go_on():
                        await on_a_thread(turns, name, self.still_s)
                    last = turns
                return await registry.store(lambda: old.form(registry.drops.due(old))), ""
            except StoreError as error:
                if isinstance(error, DamagedError) or registry.database.damaged:
                    log.error("flow %s could not be brought to its end: %s", name, error)
                    return None, f"flow {name} could not be brought to its end ({error}): {ABANDONED}"
                errors.error("the end of flow %s waits for the database: %s", name, error)
                await asyncio.sleep(1.0)
            except TimeoutError:
                gap = f"flow {name} was stuck when it was brought to its end: {ABANDONED}"
                log.error("%s", gap)
                return None, gap
            except Exception as error:
                log.exception("flow %s could not be brought to its end", name)
                return None, f"flow {name} could not be brought to its end ({error!r}): {ABANDONED}"


class LastTurns:
    """The last turns of a flow, in which it works off its queues."""

    def __init__(self, turns: Iterator[Said], send: Send) -> None:
        self._turns, self._send = turns, send
        self.at = time.monotonic()
        """When the last of them ended."""
        self.given_up = False

    def run(self) -> None:
        """Runs the turns, on the flow's own thread. Raises `EdgertError` once they are given up."""
        for instance, messages in self._turns:
            if self.given_up:
                raise EdgertError("it was given up")
            self.at = time.monotonic()
            if messages:
                self._send(instance, messages)


async def on_a_thread(turns: LastTurns, name: str, still_s: float) -> None:
    """Runs them on a thread of their own, which no end of the process waits for. Raises `TimeoutError` when no turn
    has ended for `still_s`."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def end(error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        fault: BaseException | None = None
        try:
            turns.run()
        except BaseException as error:  # noqa: BLE001 - the waiting task raises it
            fault = error
        with suppress(RuntimeError):  # the loop is closed: no task waits
            loop.call_soon_threadsafe(end, fault)

    began = turns.at = time.monotonic()
    threading.Thread(target=run, name=f"end-of-{name}", daemon=True).start()
    said = False
    try:
        while not done.done():
            await asyncio.wait({done}, timeout=min(1.0, still_s))
            now = time.monotonic()
            if not done.done() and now - turns.at >= still_s:
                raise TimeoutError
            if not said and now - began >= LONG_S:
                said = True
                log.warning("flow %s is being brought to its end, which takes long: it works off what it has", name)
        done.result()
    finally:
        turns.given_up = True
        done.cancel()
