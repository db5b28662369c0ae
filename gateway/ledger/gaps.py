"""Missing results of a flow, reported in the log and to the tables. All but `write_gap` runs on the store thread."""

from __future__ import annotations

import asyncio
import logging

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.errors import DamagedError, StoreError
from edgert.store.database import Database
from gateway.base.retry_log import RetryLog
from gateway.base.tasks import OnStore

log = logging.getLogger(__name__)

ABANDONED = "its open windows, and what of its input they did not have yet, are lost"
RETRY_S = 1.0


def say_gap(database: Database, name: str, text: str, *, no_room: bool = False) -> None:
    """`no_room`: see `Database.put_gap`. Raises `StoreError` if it can be said later."""
    try:
        database.put_gap(name, text, no_room=no_room)
    except DamagedError as error:
        log.error("the tables are not told that something of flow %s is missing: %s", name, error)


def say_no_room(database: Database, name: str) -> int:
    """Reports, once, the messages that are lost because the database had no room for them, and returns how many. The
    flow resumes from what the database holds. Raises `StoreError` if it can be reported later."""
    spilled = database.spilled(name)
    if spilled is None or not spilled.lost:
        return 0
    text = f"flow {name} was stuck, and {spilled.lost} messages of its input had no room in the database"
    say_gap(database, name, text, no_room=True)
    log.error("%s: they are lost", text)
    return spilled.lost


async def write_gap(
    store: OnStore,
    database: Database,
    name: str,
    text: str,
    retry_s: float = RETRY_S,
) -> None:
    """Retries until the gap is written. `store` runs a call on the store thread."""
    errors = RetryLog(log)
    while True:
        try:
            await store(lambda: say_gap(database, name, text))
            return
        except StoreError as error:
            errors.error("that something of flow %s is missing cannot be written yet: %s", name, error)
            await asyncio.sleep(retry_s)


def last_of_failed(database: Database, name: str) -> Checkpoint | None:
    """Returns the last checkpoint of a flow that failed, with the gap that it leaves: its open windows cannot be
    completed. None if nothing is lost, or the stored state is damaged. Raises `StoreError`."""
    try:
        if database.state(name) or database.queue(name) or database.spilled(name):
            gap = f"flow {name} could not go on and was replaced or removed: {ABANDONED}"
            return Checkpoint(name, Position(), [], b"", gap=gap)  # no flow resumes from this checkpoint
    except DamagedError as error:
        log.error("the tables are not told that the open windows of flow %s are lost: %s", name, error)
    return None
