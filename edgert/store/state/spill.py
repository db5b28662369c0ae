"""Input of flows that are stuck, inside a transaction of the one database.

It stands behind the flow's last checkpoint, as if it waited in its queues, until the next one covers it. So it may be
acknowledged: a start feeds it again. No more is kept than `QUOTA_BYTES` per flow: what is older has left the queues of
the running flow as well, which hold no more than that, so it is lost only to a crash, and counted then. (Of a flow that
does not run nothing is given that has no `room`: `gateway.checkpoint.input_spill`.)
"""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from edgert.core.checkpoint.position import Position
from edgert.store.state.records import Spill, Spilled

QUOTA_BYTES: Final = 8_388_608
"""The most queued input that is owed an acknowledgement (`edgert.runtime.instance.source_queue.OWED_BYTES`)."""


def put(db: sqlite3.Connection, spill: Spill, quota_bytes: int) -> None:
    """More of it; from now on all input up to its position is here."""
    flow = spill.flow
    query = "SELECT number, bytes, messages FROM spill WHERE flow = ? ORDER BY number"
    kept = db.execute(query, (flow,)).fetchall()
    over, lost = sum(size for _, size, _ in kept) + spill.bytes - quota_bytes, 0
    for number, size, messages in kept:
        if over <= 0:
            break
        db.execute("DELETE FROM spill WHERE flow = ? AND number = ?", (flow, number))
        over, lost = over - size, lost + messages
    next_number = kept[-1][0] + 1 if kept else 1
    db.execute(
        "INSERT INTO spill VALUES (?, ?, ?, ?, ?)", (flow, next_number, spill.bytes, spill.messages, spill.queue)
    )
    missing = msgspec.msgpack.encode(sorted(spill.position.missing))
    db.execute(
        "INSERT INTO spilled VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE "
        "SET position = excluded.position, missing = excluded.missing, lost = lost + excluded.lost",
        (flow, spill.position.index, missing, lost),
    )


def room(db: sqlite3.Connection, flow: str, quota_bytes: int) -> int:
    """Returns how many bytes more there may be before something is given up."""
    (kept,) = db.execute("SELECT coalesce(sum(bytes), 0) FROM spill WHERE flow = ?", (flow,)).fetchone()
    return quota_bytes - int(kept)


def forget(db: sqlite3.Connection, flow: str) -> None:
    """A checkpoint covers it. Costs no write where there is none."""
    if db.execute("DELETE FROM spilled WHERE flow = ?", (flow,)).rowcount:
        db.execute("DELETE FROM spill WHERE flow = ?", (flow,))


def lost_are_said(db: sqlite3.Connection, flow: str) -> None:
    """Messages that had no room are counted from here on."""
    db.execute("UPDATE spilled SET lost = 0 WHERE flow = ?", (flow,))


def read(db: sqlite3.Connection, flow: str) -> Spilled | None:
    """None: nothing of the flow's input was spilled since its last checkpoint."""
    found = db.execute("SELECT position, missing, lost FROM spilled WHERE flow = ?", (flow,)).fetchone()
    if found is None:
        return None
    position, missing, lost = found
    holes = frozenset(msgspec.msgpack.decode(missing, type=list[int]))
    queues = db.execute("SELECT blob FROM spill WHERE flow = ? ORDER BY number", (flow,)).fetchall()
    return Spilled(Position(position, holes), [blob for (blob,) in queues], lost)
