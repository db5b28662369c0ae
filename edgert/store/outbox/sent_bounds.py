"""The numbers of a stream that may have left the board, inside a transaction of the one database.

Two bounds are kept in `stream`, each written before batches up to it are sent. `departed` separates batches that this
database numbered from batches of a newer database with the same numbers (`gateway/uplink/reconcile.py`). Batches up to
`leaving` may not be shed (`quota`).
"""

from __future__ import annotations

import sqlite3

from edgert.store.outbox.quota import StreamKey

LEAVING_AHEAD = 256
"""`leaving` runs 256 numbers ahead, so it is written once per 256 batches. So many more stay in a full outbox."""
_OF_STREAM = "WHERE flow = ? AND epoch = ? AND stream = ?"


def started(db: sqlite3.Connection) -> None:
    """Notes at a start that batches which were being sent when the last process ended may have left the board."""
    db.execute("UPDATE stream SET departed = sequence WHERE departed IS NULL")


def departed(db: sqlite3.Connection, flow: str) -> dict[int, dict[int, int]]:
    """See `Database.departed`."""
    query = "SELECT epoch, stream, coalesce(departed, sequence) FROM stream WHERE flow = ? ORDER BY epoch, stream"
    found: dict[int, dict[int, int]] = {}
    for epoch, stream, number in db.execute(query, (flow,)).fetchall():
        found.setdefault(epoch, {})[stream] = number
    return found


def is_bound(db: sqlite3.Connection, key: StreamKey) -> bool:
    """True if some numbers of a stream cannot have left, as far as `departed` says."""
    return db.execute(f"SELECT 1 FROM stream {_OF_STREAM} AND departed IS NOT NULL", key).fetchone() is not None


def unbind(db: sqlite3.Connection, key: StreamKey) -> None:
    """From now on each number of a stream may have left."""
    db.execute(f"UPDATE stream SET departed = NULL {_OF_STREAM}", key)


def may_leave(db: sqlite3.Connection, key: StreamKey, number: int) -> bool:
    """True if a stream may be sent up to `number`."""
    (most,) = db.execute(f"SELECT leaving FROM stream {_OF_STREAM}", key).fetchone()
    return number <= int(most)


def leave(db: sqlite3.Connection, key: StreamKey, number: int, ahead: int) -> None:
    """From now on it may be sent so far, and `ahead` numbers further."""
    db.execute(f"UPDATE stream SET leaving = ? {_OF_STREAM}", (number + ahead, *key))
