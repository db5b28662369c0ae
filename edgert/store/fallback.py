"""Back to the last checkpoint that is whole, when what is stored of a flow's state is damaged: inside a transaction of
the one database.

The last delta of each checkpoint has an extent: what the checkpoint covers of the input, and up to which numbers
results had been given. What was made after it counts no more (the new epoch cuts the old one there): the flow makes it
again from the input that comes again. Input that was acknowledged meanwhile does not come again, and is the gap.
"""

from __future__ import annotations

import sqlite3

import msgspec

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.store import look_ups
from edgert.store.outbox import outbox
from edgert.store.outbox.outbox import OutboxSize
from edgert.store.state import spill
from edgert.store.state.records import NO_LINKS, StateExtent, columns_of, position_of

MOST_HOLES = 1_000
"""A checkpoint with more of them gets no extent, not to write them twice; only after a start are they many."""
DAMAGED = "checkpoint damaged"


def put_state(db: sqlite3.Connection, commit: Checkpoint) -> None:
    """The deltas of a checkpoint; to be called when its results have their numbers."""
    if not commit.deltas:
        return
    plain = [(commit.flow, delta) for delta in commit.deltas[:-1]]
    db.executemany("INSERT INTO state (flow, kind, blob) VALUES (?, 'delta', ?)", plain)
    last, missing = (commit.flow, commit.deltas[-1]), commit.position.missing
    if len(missing) > MOST_HOLES:
        db.execute("INSERT INTO state (flow, kind, blob) VALUES (?, 'delta', ?)", last)
        return
    (epoch,) = db.execute("SELECT epoch FROM flow WHERE name = ?", (commit.flow,)).fetchone()
    cut = msgspec.msgpack.encode(outbox.last_of_all(db, commit.flow, epoch))
    db.execute(
        "INSERT INTO state (flow, kind, blob, position, missing, links, epoch, cut) "
        "VALUES (?, 'delta', ?, ?, ?, ?, ?, ?)",
        (*last, *columns_of(commit.position), epoch, cut),
    )


def merge_state(db: sqlite3.Connection, flow: str, snapshot: bytes, last: int) -> None:
    """One snapshot in the place of all up to number `last`, whose extent it takes; nothing if that is gone."""
    extent_of = "position, missing, epoch, cut, links"
    query = f"SELECT {extent_of} FROM state WHERE flow = ? AND number = ?"
    extent = db.execute(query, (flow, last)).fetchone()
    if extent is None:
        return
    db.execute("DELETE FROM state WHERE flow = ? AND number <= ?", (flow, last))
    query = f"INSERT INTO state (number, flow, kind, blob, {extent_of}) VALUES (?, ?, 'snapshot', ?, ?, ?, ?, ?, ?)"
    db.execute(query, (last, flow, snapshot, *extent))


def extents(db: sqlite3.Connection, flow: str) -> list[StateExtent | None]:
    """Returns the extents of a flow's snapshot and deltas, oldest first."""
    query = "SELECT number, position, missing, links, epoch, cut FROM state WHERE flow = ? ORDER BY number"
    return [
        None
        if position is None
        else StateExtent(
            number,
            position_of(position, missing, NO_LINKS if links is None else links),
            epoch,
            msgspec.msgpack.decode(cut, type=dict[int, int]),
        )
        for number, position, missing, links, epoch, cut in db.execute(query, (flow,))
    ]


def forget_extent(db: sqlite3.Connection, flow: str) -> None:
    """The numbers of its results mean something else from now on."""
    db.execute("UPDATE state SET position = NULL WHERE flow = ?", (flow,))


def go_back(db: sqlite3.Connection, flow: str, to: StateExtent, successor: int, gap: str) -> OutboxSize:
    """The flow goes on from `to`, with nothing in its queues, in the epoch `successor`, which says `gap`. What waits in
    the outbox stays. Returns how the outbox changes."""
    db.execute("DELETE FROM state WHERE flow = ? AND number > ?", (flow, to.number))
    db.execute("DELETE FROM queue WHERE flow = ?", (flow,))
    spill.forget(db, flow)
    if not to.number:  # nothing is left of what it had of retained messages
        look_ups.put(db, flow, {look_ups.ALL: successor})
    (newest,) = db.execute("SELECT epoch FROM flow WHERE name = ?", (flow,)).fetchone()
    change = OutboxSize(0, 0, 0)
    if db.execute("SELECT 1 FROM opening WHERE flow = ? AND epoch = ?", (flow, newest)).fetchone():
        stay = outbox.last_of_all(db, flow, newest)
        change = outbox.reopen(db, flow, newest, successor, to.epoch, to.cut, stay, gap, DAMAGED)
        db.execute("UPDATE stream SET departed = 0 WHERE flow = ? AND epoch = ?", (flow, successor))
    query = "UPDATE flow SET position = ?, missing = ?, links = ?, epoch = ? WHERE name = ?"
    db.execute(query, (*columns_of(to.position), successor, flow))
    # what was acknowledged meanwhile may look as if it were not: see `Inbox.resume`
    db.execute("INSERT OR REPLACE INTO meta SELECT 'doubtful_to', value - 1 FROM meta WHERE key = 'next_index'")
    return change
