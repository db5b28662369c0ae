"""What a flow that is replaced or removed says at its end."""

from __future__ import annotations

import asyncio
import logging

from edgert.core.errors import DamagedError, StoreError
from edgert.runtime.flow_run import CommitForm, FlowRun
from edgert.store.database import Database
from gateway.checkpointer import Checkpointer, OnStore
from gateway.gaps import ABANDONED
from gateway.hosts import Host, Send
from gateway.once import Once

log = logging.getLogger(__name__)


async def last_words(
    old: FlowRun, host: Host, send: Send, checkpointer: Checkpointer, store: OnStore, database: Database
) -> tuple[CommitForm | None, str]:
    """Runs a halted flow, to which nothing is fed any more, to its end: what is to be written of it (None: nothing),
    and "". What cannot be brought to its end, or packed then, ends as its last checkpoint left it, and the rest of the
    gateway goes on: None, and what is lost. Packing much state takes long, so it is not done on the loop."""

    def drain() -> CommitForm | None:
        host.drain(old, send)
        return old.form(checkpointer.drops.due(old))

    name, once = old.flow.name, Once(log)
    while True:
        try:
            return await store(drain), ""
        except StoreError as error:
            if isinstance(error, DamagedError) or database.damaged:
                log.error("flow %s could not be brought to its end: %s", name, error)
                return None, f"flow {name} could not be brought to its end ({error}): {ABANDONED}"
            once.error("the end of flow %s waits for the database: %s", name, error)
            await asyncio.sleep(1.0)
        except Exception as error:
            log.exception("flow %s could not be brought to its end", name)
            return None, f"flow {name} could not be brought to its end ({error!r}): {ABANDONED}"
