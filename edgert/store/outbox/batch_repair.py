"""Batches of the outbox that are damaged, as a card that rots leaves them: a gap takes their numbers, since a receiver
could make nothing of them and would wait for them for good. Inside a transaction of the one database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from edgert.core.results.results import GapBatch, pack_result
from edgert.store.outbox import outbox
from edgert.store.outbox.outbox import FIRST, OutboxEntry
from edgert.store.outbox.quota import Shed, StreamKey

DAMAGED: Final = "batch damaged"
TEXT: Final = "what the outbox held is damaged: the card may be worn out"
ENTRIES: Final = (
    "SELECT epoch, stream, sequence, payload, digest FROM outbox "
    "WHERE flow = ? AND epoch = ? AND stream = ? AND sequence > ? ORDER BY sequence LIMIT ?"
)
AT_ONCE: Final = 32


def mend(db: sqlite3.Connection, gateway: str, flow: str, epoch: int) -> list[Shed]:
    """Looks at all that waits of an epoch."""
    query = "SELECT stream FROM stream WHERE flow = ? AND epoch = ? AND batches > 0"
    streams = [stream for (stream,) in db.execute(query, (flow, epoch)).fetchall()]
    damaged = [(stream, e.sequence) for stream in streams for e in _entries(db, flow, epoch, stream) if not e.is_whole]
    return [replace(db, gateway, (flow, epoch, stream), sequence) for stream, sequence in damaged]


def mend_first(db: sqlite3.Connection, gateway: str, key: StreamKey) -> list[Shed]:
    """Looks at the first batch that waits in a stream."""
    found = [OutboxEntry(*row) for row in db.execute(ENTRIES, (*key, 0, 1)).fetchall()]
    return [replace(db, gateway, key, entry.sequence) for entry in found if not entry.is_whole]


def _entries(db: sqlite3.Connection, flow: str, epoch: int, stream: int) -> Iterator[OutboxEntry]:
    after = 0
    while found := db.execute(ENTRIES, (flow, epoch, stream, after, AT_ONCE)).fetchall():
        yield from (OutboxEntry(*row) for row in found)
        after = found[-1][2]


def replace(db: sqlite3.Connection, gateway: str, key: StreamKey, sequence: int) -> Shed:
    """Puts a gap in the place of a damaged batch; in that of an epoch's opening, the opening once more."""
    flow, epoch, stream = key
    query = "SELECT rows FROM outbox WHERE flow = ? AND epoch = ? AND stream = ? AND sequence = ?"
    (rows,) = db.execute(query, (*key, sequence)).fetchone()
    query = "SELECT max(sequence) FROM outbox WHERE flow = ? AND epoch = ? AND stream = ? AND sequence < ?"
    (before,) = db.execute(query, (*key, sequence)).fetchone()
    if before is None:
        before = 1 if stream == FIRST else 0  # an epoch begins with its opening, also where the tables lack it again
    change = outbox.free(db, *key, sequence - 1, sequence)
    if stream == FIRST and sequence == 1:
        query = "SELECT payload FROM opening WHERE flow = ? AND epoch = ?"
        (opening,) = db.execute(query, (flow, epoch)).fetchone()
        return Shed(flow, DAMAGED, 0, 0, change.plus(outbox.put(db, *key, 1, 0, opening)))
    # What stood there without rows was a gap itself, with all the numbers since the batch before, and nobody knows any
    # more how many rows; or it said what was dropped, which nobody knows any more either.
    gap = GapBatch(
        gateway=gateway, flow=flow, epoch=epoch, stream=stream, sequence=sequence,
        flow_version=outbox.version(db, flow, epoch), reason=DAMAGED, rows=rows or None,
        numbers=1 if rows else sequence - before, text=TEXT,
    )  # fmt: skip
    change = change.plus(outbox.put(db, *key, sequence, 0, pack_result(gap)))
    return Shed(flow, DAMAGED, 1, rows, change)
