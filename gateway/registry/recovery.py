"""The checkpoint from which a stored flow resumes at a start: the last one, or the newest whole one before a damaged
one.

Checksums show that a card has damaged stored data. The flow then opens a new epoch that resumes from the whole
checkpoint. Results made after that checkpoint are void, and input that comes again is taken again. Messages
acknowledged in between are missing, and a gap says so. If the snapshot is damaged, no checkpoint is whole, since all
deltas build on it: the flow then begins with empty windows, behind all the input that it had taken, and its results
stay.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgert.core.errors import DamagedError, EdgertError, StoreError
from edgert.core.ids import epoch_ordinal
from edgert.runtime.checkpoint.packing import join_queues, unpack_parts
from edgert.store.database import Database
from edgert.store.state.records import StateExtent, StoredFlow
from gateway.base.epochs import epoch_after

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resumption:
    """The checkpoint position at which a flow resumes, with its state and queues."""

    stored: StoredFlow
    blobs: Sequence[bytes]
    queue: bytes
    gap: str = ""
    """The part of the flow's data that is missing, in words; empty if the flow resumes from its last checkpoint."""
    lost: int = 0
    """Messages of the flow that were taken in and had no room in the database."""


def last_checkpoint(database: Database, flow: str, whole: Sequence[bytes] = ()) -> tuple[list[bytes], bytes]:
    """Returns state and queues of a flow's last checkpoint; entries spilled since stand at the end of the queues.
    `whole`: pieces of state that were found to be whole before. Raises `StoreError`, and `DamagedError` if they are not
    whole."""
    spilled = database.spilled(flow)
    blobs, queues = database.state(flow), [database.queue(flow), *(spilled.queues if spilled else ())]
    looked_at = blobs[len(whole) :] if blobs[: len(whole)] == list(whole) else blobs
    _, fault = _whole([*looked_at, *filter(None, queues)])
    if fault:
        raise DamagedError(f"what is stored of flow {flow} is damaged: {fault}")
    return blobs, join_queues(queues)


def resumption(database: Database, stored: StoredFlow) -> Resumption:
    """Returns where a flow resumes; a fallback to an older checkpoint is written first. Raises `StoreError` for a flow
    that cannot resume, and `EdgertError` if the gateway must not start."""
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
    elif extent := _newest(database.extents(flow)[:whole]):
        to, gap = extent, _between(extent, stored)
    else:
        to, gap = _here(database, stored, 0), "what its operators held (open windows) is missing"
    after = epoch_after(max([stored.epoch, *database.epochs(flow)]))
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
    """Returns how many blobs are whole before the first damaged one, and the fault of that one."""
    for number, blob in enumerate(blobs):
        try:
            unpack_parts(blob)
        except DamagedError as error:
            return number, str(error)
    return len(blobs), ""


def _newest(extents: Sequence[StateExtent | None]) -> StateExtent | None:
    return next((extent for extent in reversed(extents) if extent), None)


def _here(database: Database, stored: StoredFlow, number: int) -> StateExtent:
    """The present position: no input is taken again, and no shipped result is made again."""
    epoch = database.epoch(stored.name)
    assert epoch is not None
    return StateExtent(number, stored.position, epoch, database.last_sequences(stored.name, epoch))


def _between(extent: StateExtent, stored: StoredFlow) -> str:
    return (
        f"it goes on from the last one that is whole, with messages up to number {extent.position.index:,} of the "
        f"{stored.position.index:,} that were taken: what was acknowledged in between, or waited in its queues then, "
        "is missing, and what was shipped since is void"
    )
