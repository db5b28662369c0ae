"""What a stored flow goes on from at a start: its last checkpoint, or where that is damaged, the last one before that
which is whole.

A card that rots shows in the checksums of what is stored. The flow then opens a new epoch that goes on from that
checkpoint: results made after it count no more, input that comes again is taken again, and what was acknowledged in
between is missing, which a gap says. Where nothing whole is left to go back to (the snapshot, on which all deltas
build, is damaged), the flow begins with nothing in its windows, behind all that it had taken, and its results stay.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgert.core.errors import DamagedError, EdgertError, StoreError
from edgert.core.ids import epoch_ordinal
from edgert.runtime.state import join_queues, unpack_parts
from edgert.store.database import Database
from edgert.store.records import Mark, StoredFlow
from gateway.base.epochs import successor

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where a flow goes on, with the state and queues that belong to it."""

    stored: StoredFlow
    blobs: Sequence[bytes]
    queue: bytes
    gap: str = ""
    """What is missing, if this is not its last checkpoint."""
    lost: int = 0
    """Messages of it that were taken in, and had no room in the database."""


def last_checkpoint(database: Database, flow: str) -> tuple[list[bytes], bytes]:
    """State and queues of a flow's last checkpoint; what was spilled since stands at the queues' end. Raises
    `StoreError`, `DamagedError` if they are not whole."""
    spilled = database.spilled(flow)
    blobs, queues = database.state(flow), [database.queue(flow), *(spilled.queues if spilled else ())]
    _, fault = _whole([*blobs, *filter(None, queues)])
    if fault:
        raise DamagedError(f"what is stored of flow {flow} is damaged: {fault}")
    return blobs, join_queues(queues)


def resumption(database: Database, stored: StoredFlow) -> Resumption:
    """Writes the fallback before it is used, if there has to be one. Raises `StoreError` for a flow that cannot go on,
    `EdgertError` if nobody may."""
    flow = stored.name
    blobs, queues = database.state(flow), [database.queue(flow)]
    if spilled := database.spilled(flow):
        at = replace(spilled.position, links=stored.position.links)  # of links nothing is spilled
        stored, queues = replace(stored, position=at), [*queues, *spilled.queues]
    whole, fault = _whole([*blobs, *filter(None, queues)])
    if not fault:
        lost = spilled.lost if spilled else 0
        return Resumption(stored, blobs, join_queues(queues), lost=lost)
    if whole >= len(blobs):
        to, gap = _here(database, stored, database.last_state(flow)), "what waited in its queues is missing"
    elif mark := _newest(database.marks(flow)[:whole]):
        to, gap = mark, _between(mark, stored)
    else:
        to, gap = _here(database, stored, 0), "what its operators held (open windows) is missing"
    after = successor(max([stored.epoch, *database.epochs(flow)]))
    gap = f"a checkpoint of flow {flow} is damaged ({fault}); {gap}"
    try:
        database.fall_back(flow, to, after, gap)
    except DamagedError:
        raise
    except StoreError as error:  # without it nothing of the flow is safe: what came now would be acknowledged and lost
        raise EdgertError(f"{gap}; that could not be written, so the gateway does not start: {error}") from error
    log.error("%s; epoch %d is opened", gap, epoch_ordinal(after))
    return Resumption(replace(stored, epoch=after, position=to.position), database.state(flow), b"", gap)


def _whole(blobs: Sequence[bytes]) -> tuple[int, str]:
    """How many of the first of them are, and what is wrong with the next."""
    for number, blob in enumerate(blobs):
        try:
            unpack_parts(blob)
        except DamagedError as error:
            return number, str(error)
    return len(blobs), ""


def _newest(marks: Sequence[Mark | None]) -> Mark | None:
    return next((mark for mark in reversed(marks) if mark), None)


def _here(database: Database, stored: StoredFlow, number: int) -> Mark:
    """Not back in its input, and nothing that was shipped is made again."""
    epoch = database.epoch(stored.name)
    assert epoch is not None
    return Mark(number, stored.position, epoch, database.last_sequences(stored.name, epoch))


def _between(mark: Mark, stored: StoredFlow) -> str:
    return (
        f"it goes on from the last one that is whole, with messages up to number {mark.position.index:,} of the "
        f"{stored.position.index:,} that were taken: what was acknowledged in between, or waited in its queues then, "
        "is missing, and what was shipped since is void"
    )
