"""What a flow that is replaced or removed says at its end."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from edgert.core.checkpoint import Checkpoint
from edgert.core.errors import DamagedError, EdgertError, StoreError
from edgert.runtime.flow_run import FlowRun
from edgert.store.database import Database
from gateway.checkpointer import Checkpointer, OnStore
from gateway.gaps import ABANDONED
from gateway.hosts import Host, Send
from gateway.once import Once

log = logging.getLogger(__name__)

STILL_S = 60.0
"""A flow on its way to its end is given up when no turn of it ends for so long: an operator is blocked."""
LONG_S = 10.0
"""Said in the log when it takes longer."""


class Turns:
    """When the last turn of a flow ended that is brought to its end."""

    def __init__(self) -> None:
        self.at = time.monotonic()
        self.given_up = False

    def turned(self) -> None:
        """Called by the flow's thread. Raises where nobody waits for it any more."""
        if self.given_up:
            raise EdgertError("it was given up")
        self.at = time.monotonic()


async def last_words(
    old: FlowRun, host: Host, send: Send, checkpointer: Checkpointer, store: OnStore, database: Database
) -> tuple[Checkpoint | None, str]:
    """Runs a halted flow, to which nothing is fed any more, to its end, however long that takes while it goes on: what
    is to be written of it (None: nothing), and "". What is blocked, cannot be brought to its end, or packed then, ends
    as its last checkpoint left it: None, and what is lost. Meanwhile checkpoints of the others are made; packing much
    state takes long, so it is not done on the loop."""
    name, once, turns, drained = old.flow.name, Once(log), Turns(), False
    while True:
        try:
            if not drained:
                drain = await store(lambda: host.drain(old, send, turns.turned))
                async with checkpointer.others_go_on():
                    await on_a_thread(drain, turns, name)
                drained = True
            return await store(lambda: old.form(checkpointer.drops.due(old))), ""
        except StoreError as error:
            if isinstance(error, DamagedError) or database.damaged:
                log.error("flow %s could not be brought to its end: %s", name, error)
                return None, f"flow {name} could not be brought to its end ({error}): {ABANDONED}"
            once.error("the end of flow %s waits for the database: %s", name, error)
            await asyncio.sleep(1.0)
        except TimeoutError:
            gap = f"flow {name} was blocked when it was brought to its end: {ABANDONED}"
            log.error("%s", gap)
            return None, gap
        except Exception as error:
            log.exception("flow %s could not be brought to its end", name)
            return None, f"flow {name} could not be brought to its end ({error!r}): {ABANDONED}"


async def on_a_thread(work: Callable[[], None], turns: Turns, name: str) -> None:
    """Does the work on a thread of its own, which no end of the process waits for. Raises `TimeoutError` when no turn
    has ended for `STILL_S`."""
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
            work()
        except BaseException as error:  # noqa: BLE001 - whoever waits is to have it
            fault = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(end, fault)

    began = turns.at = time.monotonic()
    threading.Thread(target=run, name=f"end-of-{name}", daemon=True).start()
    said = False
    try:
        while not done.done():
            await asyncio.wait({done}, timeout=min(1.0, STILL_S))
            now = time.monotonic()
            if not done.done() and now - turns.at >= STILL_S:
                raise TimeoutError
            if not said and now - began >= LONG_S:
                said = True
                log.warning("flow %s is being brought to its end, which takes long: it works off what it has", name)
        done.result()
    finally:
        turns.given_up = True
        done.cancel()
