"""Results that left ahead of their checkpoint, inside a transaction of the one database.

They stand in the outbox, numbered, before anything is sent: so no number can carry other rows after a crash. State and
input position come later, with the checkpoint. If it is never made, the rows are made again under other numbers. How
many those are is known: it is counted per flow since the last checkpoint, in the transaction that numbers them.
"""

from __future__ import annotations

import sqlite3


def put(db: sqlite3.Connection, flow: str, rows: int) -> None:
    """`rows` more of `flow` leave ahead of their checkpoint."""
    db.execute(
        "INSERT INTO ahead (flow, rows, repeated) VALUES (?, ?, 0) "
        "ON CONFLICT DO UPDATE SET rows = rows + excluded.rows",
        (flow, rows),
    )


def covered(db: sqlite3.Connection, flow: str) -> None:
    """The flow's checkpoint is in this transaction. Costs no write where nothing had left ahead."""
    db.execute("UPDATE ahead SET rows = 0 WHERE flow = ? AND rows > 0", (flow,))


def go_back(db: sqlite3.Connection, flow: str | None = None) -> dict[str, int]:
    """A flow (None: each of them) goes on from its last checkpoint: what had left ahead of the next one is made again,
    and counted. Returns the rows by flow."""
    chosen = "WHERE rows > 0 AND (? IS NULL OR flow = ?)"
    found = dict(db.execute(f"SELECT flow, rows FROM ahead {chosen}", (flow, flow)).fetchall())
    if found:
        db.execute(f"UPDATE ahead SET repeated = repeated + rows, rows = 0 {chosen}", (flow, flow))
    return found
